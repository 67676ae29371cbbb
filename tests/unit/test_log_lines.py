"""Log lines: one JSON object each, whatever is logged, by Python and by Java."""

import io
import json
import logging
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from streams.app.restart_policy import last_error
from streams.java import find_java, package_directory
from streams.log_lines import JsonLines, as_text, log4j2
from streams.replica.spark import session

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
HOSTILE = 'a "quoted" \\ line\nand { another\x00\t\N{GREEK SMALL LETTER ALPHA}\ud800'


def logged(log: Callable[[logging.Logger], object]) -> list[str]:
    """The lines that a service writes meanwhile."""
    logger, stream = logging.Logger("streams.x"), io.StringIO()  # noqa: LOG001  nobody else's
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines("replica"))
    logger.addHandler(handler)
    log(logger)
    return stream.getvalue().splitlines()


def fail(text: str) -> None:
    raise ValueError(text)


def test_a_line_has_all_there_is_to_know() -> None:
    def log(logger: logging.Logger) -> None:
        try:
            fail("1\n2")
        except ValueError:
            logger.exception("%s failed", "step", extra={"offset": 7, "of": Path("/x")})

    (line,) = logged(log)
    values = json.loads(line)
    assert list(values) == [
        "time", "level", "logger", "message", "service", "fields", "exception",
    ]  # fmt: skip
    assert TIME.fullmatch(values["time"])
    assert (values["level"], values["logger"]) == ("ERROR", "streams.x")
    assert (values["message"], values["service"]) == ("step failed", "replica")
    assert values["fields"] == {"offset": 7, "of": "/x"}
    assert values["exception"].startswith("Traceback (most recent call last):\n")
    assert values["exception"].endswith("ValueError: 1\n2")


def test_the_time_is_utc() -> None:
    record = logging.makeLogRecord({"name": "x", "msg": "m", "created": 1_700_000_000.0625})
    assert json.loads(JsonLines("up").format(record))["time"] == "2023-11-14T22:13:20.062Z"


@pytest.mark.parametrize("value", [HOSTILE, float("nan"), float("inf"), b"\xff", {1: 2}, None])
def test_whatever_is_logged_is_one_line_of_json(value: object) -> None:
    (line,) = logged(lambda logger: logger.warning("%s", value, extra={"value": value}))
    values = json.loads(line, parse_constant=pytest.fail)
    assert line.isascii()
    assert values["message"] == str(value)


def test_a_line_without_more_has_no_more() -> None:
    (line,) = logged(lambda logger: logger.info("m"))
    assert json.loads(line).keys() == {"time", "level", "logger", "message", "service"}


def test_the_last_error_is_found_in_json_lines_too() -> None:
    def log(logger: logging.Logger) -> None:
        try:
            fail("no room")
        except ValueError:
            logger.exception("unexpected error, exiting")
        logger.info("the end")

    text = "\n".join(logged(log))
    assert last_error(text) == "ValueError: no room"
    (line,) = logged(lambda logger: logger.error("brokers are away", extra={"n": 1}))
    assert last_error(line) == "streams.x: brokers are away n=1"
    assert last_error(logged(lambda logger: logger.info("fine"))[0]) == ""


@pytest.mark.parametrize("line", ['{"time": 1', '{"time": 1}', "plain", "", "[1]"])
def test_a_line_of_another_form_stays_as_it_is(line: str) -> None:
    assert as_text(line) == [line]


ENDING = """
import logging, sys, threading, warnings
from streams.log_lines import configure, counts
configure(sys.argv[1], "storage", sys.stdout)
logging.getLogger("py4j").info("no line of ours")
logging.getLogger("a.b").info("hello", extra={"k": 1})
warnings.warn("old")
thread = threading.Thread(target=lambda: 1 / 0, name="t1")
thread.start()
thread.join()
print(sorted(counts().items()), file=sys.stderr)
raise KeyError("gone")
"""


def test_warnings_and_ends_of_threads_and_of_the_process_are_lines() -> None:
    command = [sys.executable, "-c", ENDING, "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    counted = "[('critical', 0), ('error', 1), ('warning', 1)]\n"
    assert (done.returncode, done.stderr) == (1, counted)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(line["level"], line["logger"]) for line in lines] == [
        ("INFO", "a.b"),
        ("WARNING", "py.warnings"),
        ("ERROR", "streams.log_lines"),
        ("CRITICAL", "streams.log_lines"),
    ]
    assert {line["service"] for line in lines} == {"storage"}
    assert lines[0]["fields"] == {"k": 1}
    assert lines[2]["message"] == "ZeroDivisionError ends thread t1"
    assert lines[3]["message"] == "KeyError ends the process"
    assert lines[3]["exception"].endswith("KeyError: 'gone'")


def test_text_has_the_fields_at_the_end_of_the_line() -> None:
    command = [sys.executable, "-c", ENDING, "text"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert re.fullmatch(r"\S+ \S+ INFO a\.b: hello k=1\n", done.stdout)
    assert "KeyError: 'gone'" in done.stderr


def test_java_writes_the_same_form(tmp_path: Path) -> None:
    spark = package_directory("pyspark")
    assert spark is not None
    file = tmp_path / "log4j2.properties"
    file.write_text(log4j2("replica"))
    with (tmp_path / "lines").open("w") as lines:
        port, process = launch_gateway(
            classpath=f"{spark}/jars/*",
            javaopts=[f"-Dlog4j2.configurationFile={file}", "-XX:TieredStopAtLevel=1"],
            java_path=str(find_java()),
            redirect_stderr=lines,
            die_on_exit=True,
            return_proc=True,
        )
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
        logger = gateway.jvm.org.apache.logging.log4j.LogManager.getLogger("org.x.Y")
        text = HOSTILE.removesuffix("\ud800")
        logger.info("not written")
        logger.warn(text)  # noqa: G010  Java's
        logger.fatal("m", gateway.jvm.java.lang.IllegalStateException("1\n2"))
        gateway.shutdown()
        process.stdin.close()  # which ends it
        process.wait()
    plain, failed = map(json.loads, (tmp_path / "lines").read_text().splitlines())
    assert list(plain) == ["time", "level", "logger", "message", "service"]
    assert TIME.fullmatch(plain["time"])
    assert (plain["level"], plain["logger"]) == ("WARNING", "org.x.Y")
    assert (plain["message"], plain["service"]) == (text, "replica")
    assert failed["level"] == "CRITICAL"
    assert failed["exception"].startswith("java.lang.IllegalStateException: 1\n2\n\tat ")


def test_sparks_driver_is_told_to(tmp_path: Path) -> None:
    with session.log_lines("json") as option:
        match = re.fullmatch(r' "-Dlog4j2\.configurationFile=(.+)"', option)
        assert match is not None
        assert Path(match[1]).read_text() == log4j2("replica")
        options = session.defaults(session.SparkSettings(), tmp_path, option)
    assert options["spark.driver.extraJavaOptions"].endswith(option)
    assert not Path(match[1]).exists()
    with session.log_lines("text") as option:
        assert option == ""
