"""Lines as messages: keys written as sources read them, and errors that name their line."""

from io import BytesIO

import pytest

from streams.app.topic.json_messages import LineMapping, blocks
from streams.errors import InvalidUsage


def test_values_are_the_lines_as_they_were_written() -> None:
    messages = LineMapping().messages([b'{"amount": 12.50} ', b"", b"  ", b"null", b'"x"'])
    assert messages.keys is None
    assert messages.values.to_pylist() == ['{"amount": 12.50}', "null", '"x"']


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (("id",), "1.50"),
        (("name",), '"a\\u00e9"'),
        (("id", 'o"k'), '{"id":1.50,"o\\"k":{"x": [1]}}'),
    ],
)
def test_a_key_is_the_member_or_an_object_of_several(key, expected) -> None:
    line = b'{"id": 1.50, "name": "a\\u00e9", "o\\"k": {"x": [1]}}'
    messages = LineMapping(key).messages([line])
    assert messages.keys is not None
    assert messages.keys.to_pylist() == [expected]
    assert LineMapping(key, deletes=True).messages([line]).values.to_pylist() == [None]


@pytest.mark.parametrize(
    ("line", "key", "message"),
    [
        (b'{"id": 1', (), "line 8: expected JSON, actual a text that ends too early"),
        (b"{'id': 1}", (), "line 8: expected JSON, actual other text at character 2"),
        (b"NaN", (), "line 8: expected JSON, actual other text at character 1"),
        (b"\xff", (), "line 8: expected UTF-8"),
        (b"1 2", (), "line 8: expected one JSON document, actual more at character 3"),
        (b"[1]", ("id",), "line 8: expected a JSON object with id"),
        (b'{"a": 1}', ("id",), "line 8: no member 'id' to make the key of (it has a)"),
        (b"{}", ("id",), "line 8: no member 'id' to make the key of (it has none)"),
    ],
)
def test_a_line_that_cannot_be_sent_is_named(line, key, message) -> None:
    with pytest.raises(InvalidUsage) as refused:
        LineMapping(key).messages([b'{"id": 0}', line], first=7)
    assert str(refused.value) == message


@pytest.mark.parametrize("text", [b"", b"a", b"a\n", b"a\nb", b"\n\na\r\n"])
def test_blocks_are_all_lines_of_a_stream(text: bytes) -> None:
    lines = [line for block in blocks(BytesIO(text)) for line in block]
    assert b"\n".join(lines).rstrip(b"\n") == text.rstrip(b"\n")


def test_lines_of_a_pipe_come_before_its_end() -> None:
    class Pipe(BytesIO):
        def read1(self, size: int | None = -1, /) -> bytes:
            return super().read1(min(size or 0, 5))

    assert list(blocks(Pipe(b"1\n2\n345\n6"))) == [[b"1", b"2"], [b"345"], [b"6"]]
