"""The kernels against orjson: what they are sure of is so."""

from __future__ import annotations

import json
import random
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.kernels import json_lines
from gristmill.stages.text.io.raw_lines import Edges, as_bytes, scan, scan_valid, strings

KEYS = ["text", "id", "größe", ""]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=80),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=6), VALUES, max_size=6)


def is_sure(found: Any, row: int) -> bool:
    return row not in found.unsure


def check(lines: list[bytes]) -> None:
    found = scan(Edges.of_list(lines), KEYS)
    for row, line in enumerate(lines):
        if not is_sure(found, row):
            continue
        value = orjson.loads(line)  # raises if the kernel was wrong
        assert isinstance(value, dict)
        for k, key in enumerate(KEYS):
            text = found.value(row, k)
            assert (text is not None) == (key in value)
            if text is not None:
                assert orjson.loads(text) == value[key]
        closing = int(found.closing[row])
        begin = int(found.lines.starts[row])
        assert line[abs(closing) - begin : abs(closing) - begin + 1] == b"}"
        assert (closing < 0) == (not value)


@given(st.lists(OBJECTS, max_size=5), st.booleans(), st.sampled_from([None, 1]))
@settings(max_examples=150, deadline=None)
def test_values_are_where_a_full_parser_finds_them(objects, ascii_only, indent):
    lines = [json.dumps(x, ensure_ascii=ascii_only, indent=indent).replace("\n", " ").encode() for x in objects]
    check(lines)


@given(OBJECTS, st.integers(0, 2**32), st.booleans())
@settings(max_examples=400, deadline=None)
def test_what_is_sure_is_valid_whatever_is_broken(value, seed, ascii_only):
    line = bytearray(json.dumps(value, ensure_ascii=ascii_only).encode())
    rng = random.Random(seed)
    broken = []
    for _ in range(20):
        damaged = bytearray(line)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(damaged) + 1)
            what = rng.random()
            if what < 0.4:
                damaged[at : at + 1] = b""
            elif what < 0.7:
                damaged[at : at + 1] = bytes([rng.choice(b'{}[]",:\\ue0-+.19tfn \xff\xc3\xed\xa0\x80\x1f')])
            else:
                damaged[at:at] = bytes([rng.randrange(256)])
        broken.append(bytes(damaged))
    check(broken)


@pytest.mark.parametrize(
    "line",
    [
        b'{"text":"a","n":[1,2,{"x":[]}],"f":-1.5e-3,"t":true,"z":null}',
        b' { "text" : "a" , "id" : { } } ',
        '{"text":"Größe 中文 😀","größe":1}'.encode(),
        rb'{"text":"\u00e9 \ud83d\ude00 \n\t\" \\ \/"}',
        b"{}",
        b'{"text":"' + b"x" * 1000 + b'"}',
    ],
)
def test_the_kernel_is_sure_of_ordinary_lines(line):
    assert is_sure(scan(Edges.of_list([line]), KEYS), 0)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b'{"a":1',
        b'{"a":1}x',
        b'{"a":01}',
        b'{"a":1.}',
        b'{"a":.5}',
        b'{"a":1e}',
        b'{"a":+1}',
        b'{"a":NaN}',
        b'{"a":1,}',
        b'{"a":[1,]}',
        b'{"a":[}',
        b'{"a":{]}',
        b"{,}",
        b'{"a" 1}',
        b"{a:1}",
        b'{"a":tru}',
        b'{"a":"\t"}',
        b'{"a":"\\x"}',
        b'{"a":"\\u12g4"}',
        b'{"a":"\\ud800"}',
        b'{"a":"\\ude00\\ud800"}',
        b'{"a":"\xff"}',
        b'{"a":"\xc0\x80"}',
        b'{"a":"\xed\xa0\x80"}',
        b'{"a":"\xf5\x80\x80\x80"}',
        b'{"a":"\xe4\xb8"}',
        b'{"a":1e999}',
    ],
)
def test_the_kernel_is_not_sure_of_what_a_parser_refuses(line):
    with pytest.raises(orjson.JSONDecodeError):
        orjson.loads(line)
    assert not is_sure(scan(Edges.of_list([line]), KEYS), 0)


def test_the_kernel_is_not_sure_of_what_is_no_object():
    assert scan(Edges.of_list([b"[]", b'"a"', b"1", b"null"]), KEYS).unsure == [0, 1, 2, 3]


def test_hidden_and_deep_keys_are_found_the_slow_way():
    lines = [b'{"te\\u0078t": "a", "text":"b"}', b'{"text":' + b"[" * 100 + b"]" * 100 + b',"id":"x"}']
    assert scan(Edges.of_list(lines), KEYS).unsure == [0, 1]
    found = scan_valid(Edges.of_list(lines), KEYS)
    assert found.value(0, 0) == b'"b"'
    assert found.value(1, 0) == b"[" * 100 + b"]" * 100
    assert found.value(1, 1) == b'"x"'


@given(st.lists(st.text(max_size=200), max_size=8), st.booleans())
@settings(max_examples=150, deadline=None)
def test_strings_come_out_as_they_went_in(texts, ascii_only):
    lines = [json.dumps({"text": text}, ensure_ascii=ascii_only).encode() for text in texts]
    found = scan_valid(Edges.of_list(lines), ["text"])
    array, is_string = strings(found, 0)
    assert array.to_pylist() == texts
    assert is_string.all()


@given(st.lists(st.text(max_size=200), max_size=8))
@settings(max_examples=150, deadline=None)
def test_texts_are_escaped_as_orjson_does(texts):
    edges = Edges.of_list([text.encode() for text in texts])
    out, at = json_lines.escape(edges.data, edges.starts, edges.ends)
    assert [out[at[i] : at[i + 1]].tobytes() for i in range(len(texts))] == [orjson.dumps(text) for text in texts]


@given(st.binary(max_size=300).map(lambda data: data.replace(b"a", b"\n")))
@settings(deadline=None)
def test_all_line_feeds_are_found(data):
    assert json_lines.line_feeds(as_bytes(data)).tolist() == [i for i, byte in enumerate(data) if byte == 10]
