"""How a process ended, in one line, and after which ends it is not started again."""

from dataclasses import replace

import pytest

from streams.app.restart_policy import (
    ENOUGH,
    LONGEST_PAUSE_S,
    SPARK_STABLE_S,
    STABLE_S,
    End,
    Ends,
    last_error,
)

PYTHON = """\
2026-01-02 03:04:05,678 INFO streams.replica.main: replica serves replica=r1
Traceback (most recent call last):
  File "/x/a.py", line 1, in <module>
    raise ValueError("first")
ValueError: first

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/x/b.py", line 2, in f
    g()
    ^^^
streams.errors.Determinate: no java: expected version 17
2026-01-02 03:04:06,000 INFO streams.replica.main: the end
"""
JAVA = """\
Exception in thread "main" java.lang.IllegalStateException: outer
\tat org.example.Main.main(Main.java:1)
Caused by: java.lang.OutOfMemoryError: Java heap space
\tat org.example.Main.inner(Main.java:2)
\t... 12 more
26/01/02 03:04:05 WARN Utils: a loopback address
"""


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", ""),
        (PYTHON, "streams.errors.Determinate: no java: expected version 17"),
        (JAVA, "Caused by: java.lang.OutOfMemoryError: Java heap space"),
        ("2026-01-02 03:04:05,678 ERROR streams.app: brokers are away\n", "brokers are away"),
        ("26/01/02 03:04:05 ERROR Lane: boom\n26/01/02 03:04:05 INFO Lane: x\n", "boom"),
        ("error: no environment in /x\n", "no environment in /x"),
        (
            'Exception in thread "main" org.apache.spark.SparkException: no such master\n'
            "\tat org.apache.spark.deploy.SparkSubmit.error(SparkSubmit.scala:1)\n"
            "26/01/02 03:04:05 ERROR streams.app.service_process: unexpected error, exiting\n"
            "Traceback (most recent call last):\n"
            '  File "/x/java_gateway.py", line 1, in launch\n'
            "PySparkRuntimeError: [JAVA_GATEWAY_EXITED] Java gateway process exited\n",
            "org.apache.spark.SparkException: no such master",
        ),
        ("JAVA_HOME is not set\n", "JAVA_HOME is not set"),
        ("2026-01-02 03:04:05,678 INFO streams.app: all is well\n", ""),
        ("2026-01-02 03:04:05,678 WARNING streams.app: error rate is high\n", ""),
    ],
)
def test_the_last_error_is_one_line(text: str, error: str) -> None:
    last = last_error(text)
    assert "\n" not in last
    assert error in last
    assert bool(last) == bool(error)


def test_an_end_says_how_and_why() -> None:
    assert str(End(1, "no java", 2.0)) == "ended with exit code 1: no java"
    assert str(End(-9, "", 2.0)) == "was ended by signal SIGKILL"
    assert str(End(-63, "", 2.0)) == "was ended by signal 63"


def test_three_ends_in_the_same_way_are_enough() -> None:
    ends = Ends()
    assert ENOUGH == 3
    notes = [ends.note(End(1, f"port {port}: run 1f0c77e2-aa", 5.0)) for port in (1, 22, 333)]
    assert notes == [False, False, True]


@pytest.mark.parametrize(
    "between",
    [End(2, "no java", 1.0), End(1, "no memory", 1.0), End(1, "no java", STABLE_S + 1)],
    ids=["another code", "another error", "after it ran long enough"],
)
def test_an_end_in_another_way_counts_anew(between: End) -> None:
    ends, same = Ends(), End(1, "no java", 1.0)
    notes = [ends.note(end) for end in (same, same, between, same, same)]
    assert notes == [False] * 5
    assert ends.note(same)


def test_spark_takes_longer_to_fail() -> None:
    ends, end = Ends(SPARK_STABLE_S), End(1, "All masters are unresponsive", 170.0)
    assert [ends.note(end) for _ in range(3)] == [False, False, True]
    assert not ends.note(replace(end, lasted_s=SPARK_STABLE_S + 1))


def test_pauses_grow_until_it_ran_long_enough() -> None:
    ends = Ends()
    pauses = []
    for lasted_s in [1.0] * 8 + [STABLE_S + 1]:
        ends.note(End(1, "", lasted_s))
        pauses.append(ends.pause_s)
    assert pauses[:3] == [0.2, 0.4, 0.8]
    assert pauses[7] == LONGEST_PAUSE_S
    assert pauses[8] == 0.2


def test_who_is_killed_has_not_ended_by_itself() -> None:
    ends = Ends()
    assert not any(ends.note(End(-9, "", 1.0)) for _ in range(10 * ENOUGH))
    assert ends.pause_s == LONGEST_PAUSE_S
    assert [ends.note(End(1, "no java", 1.0)) for _ in range(ENOUGH)] == [False, False, True]


def test_an_excuse_saves_the_process_and_begins_the_count_anew() -> None:
    ends, end = Ends(), End(1, "No space left on device", 1.0)
    excuses = ["no room", "no room", "", ""]
    asked_of: list[End] = []

    def excuse(end: End) -> str:
        asked_of.append(end)
        return excuses[len(asked_of) - 1]

    notes, pauses = [], []
    for _ in range(9):
        notes.append((ends.is_last(end, excuse), ends.outlook))
        pauses.append(ends.pause_s)
    plain = (False, "restarting")
    excused = (False, "no room; restarting until that is over")
    assert notes == [*[plain, plain, excused] * 2, plain, plain, (True, plain[1])]
    assert len(asked_of) == 3, "it is asked for no more often than somebody would be given up"
    assert pauses == [min(0.2 * 2**i, LONGEST_PAUSE_S) for i in range(9)]
