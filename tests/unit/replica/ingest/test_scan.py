"""The scanner takes what RFC 8259 takes, and says where it stops."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.replica.ingest.scan import Malformed, Token, document, leading, members

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
scraps = st.text(alphabet='{}[]:,"\\ \n0123456789.eE+-truefalsn/ud8cx\x00\x1fé', max_size=30)


def refuse(name: str) -> None:
    raise ValueError(name)


def python_takes(text: str) -> bool:
    try:
        value = json.loads(text, parse_constant=refuse)
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, UnicodeEncodeError):
        return False
    return True


@given(values, st.sampled_from([None, 1]), st.booleans())
def test_a_document_is_read_as_it_is_written(value, indent, ascii_only):
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        value = 0.0
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    if not python_takes(text):
        return
    token = document(f" \t{text}\r\n")
    assert token.text == text
    assert leading(text + ": more") == text


@given(scraps)
def test_it_takes_exactly_what_python_takes_when_strict(text):
    try:
        document(text)
        is_taken = True
    except Malformed:
        is_taken = False
    assert is_taken == python_takes(text)


def test_members_keep_their_order_their_duplicates_and_their_text():
    text = '{"a" : 1.50, "b":{"a":[1, {"x":null}]},"\\u0061":"\\n" , "c":[]}'
    assert members(text) == [
        ("a", Token("number", "1.50")),
        ("b", Token("object", '{"a":[1, {"x":null}]}')),
        ("a", Token("string", '"\\n"')),
        ("c", Token("array", "[]")),
    ]


def test_depth_is_bounded_by_size_alone():
    deep = "[" * 50_000 + "]" * 50_000
    assert members(f'{{"a":{deep}}}') == [("a", Token("array", deep))]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "expected JSON, actual a text that ends too early"),
        ('{"a":1', "expected JSON, actual a text that ends too early"),
        ('{"a":1}]', "expected one JSON document, actual more at character 8"),
        ('{"a":1} {"a":2}', "expected one JSON document, actual more at character 9"),
        ('{"a":1]', "expected JSON, actual other text at character 7"),
        ('{"a":01}', "expected JSON, actual other text at character 7"),
        ('{"a":NaN}', "expected JSON, actual other text at character 6"),
        ('{"a":-Infinity}', "expected JSON, actual other text at character 6"),
        ('{"a":1,}', "expected JSON, actual other text at character 8"),
        ('{"a":"\\ud800"}', "expected JSON, actual other text at character 6"),
        ('\ufeff{"a":1}', "expected JSON, actual other text at character 1"),
    ],
)
def test_a_refusal_says_where(text, reason):
    with pytest.raises(Malformed) as refused:
        document(text)
    assert str(refused.value) == reason
