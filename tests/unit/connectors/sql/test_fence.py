"""Random splits and merges of key ranges, against what each key was last committed at."""

from hypothesis import given
from hypothesis import strategies as st

from tests.support.fence_script import FenceScript

KEYS = 16
RANGE = st.tuples(st.integers(0, KEYS - 1), st.integers(0, KEYS - 1)).map(sorted)
STEP = st.one_of(
    st.tuples(st.just("open"), RANGE),
    st.tuples(st.just("commit"), st.integers(0, 7)),
)


class Keys:
    """The oracle: of each key the checkpoint of its last commit, and who has it."""

    def __init__(self) -> None:
        self.committed = ["zero"] * KEYS
        self.owner = [""] * KEYS

    def open(self, name: str, begin: int, end: int) -> None:
        """Whoever has one key of the range loses all of its keys."""
        out = {*self.owner[begin : end + 1]}
        self.owner = ["" if owner in out else owner for owner in self.owner]
        self.owner[begin : end + 1] = [name] * (end + 1 - begin)

    def commit(self, name: str, checkpoint: str) -> bool:
        keys = [key for key in range(KEYS) if self.owner[key] == name]
        for key in keys:
            self.committed[key] = checkpoint
        return bool(keys)


def told(text: str, begin: int, end: int) -> list[str]:
    """The checkpoint of each key, as a session was told it."""
    lines = text.splitlines()
    parts = lines[:-1] or lines
    checkpoints: dict[int, str] = {}
    for line in parts:
        low, high = (int(end, 16) for end in line.split()[0].split("-"))
        checkpoint = line.rpartition("=")[2]
        for key in range(low, high + 1):
            assert key not in checkpoints, "parts do not overlap"
            checkpoints[key] = "zero" if checkpoint.startswith("f8") else checkpoint
    assert sorted(checkpoints) == list(range(begin, end + 1))
    return [checkpoints[key] for key in range(begin, end + 1)]


@given(st.lists(STEP, max_size=40))
def test_a_session_begins_where_each_key_was_last_committed(
    steps: list[tuple[str, object]],
) -> None:
    """Reference 1.8: a merge never goes behind any row that it covers, nor does a split."""
    script, keys, names = FenceScript(), Keys(), list[str]()
    for number, (_, what) in enumerate(steps):
        if isinstance(what, list):
            begin, end = what
            names.append(f"s{number}")
            text = script.open(
                names[-1], begin << 28, (end << 28) | 0x0FFFFFFF, may_be_apart=True
            )
            assert told(text, begin, end) == keys.committed[begin : end + 1]
            keys.open(names[-1], begin, end)
        elif names:
            assert isinstance(what, int)
            name = names[-1 - what % len(names)]
            expected = "committed" if keys.commit(name, f"c{number}") else "fenced"
            assert script.commit(name, f"c{number}".encode()) == expected
    live = {owner for owner in keys.owner if owner}
    assert len(script.rows) <= KEYS + 2 * len(live), "rows that count for no key are deleted"
