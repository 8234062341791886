"""Comments and docstrings of Python, against those that Python itself finds."""

import ast
import inspect
import io
import json
import re
import textwrap
import tokenize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill.stages.text.filters.code_comments import docstrings, natural_length, skeleton_of


def found(source: str) -> tuple[int, list[str]]:
    skeleton, strings, comments = skeleton_of(source)
    return comments, [text for text in docstrings(skeleton, strings) if text]


def by_python(source: str) -> tuple[int, list[str]]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = sum(len(token.string) for token in tokens if token.type == tokenize.COMMENT)
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, kinds) and ast.get_docstring(node)]
    nodes.sort(key=lambda node: getattr(node, "lineno", 0))
    return comments, [ast.get_docstring(node) or "" for node in nodes]


MODULES = [ast, inspect, io, json, re, textwrap, tokenize]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_modules_of_the_library_have_the_comments_and_docstrings_that_python_finds(module):
    source = inspect.getsource(module)
    comments, texts = by_python(source)
    ours, our_texts = found(source)
    assert ours == comments
    assert len(our_texts) == len(texts)
    # A backslash is two signs in the source and often one in the string.
    assert sum(map(len, our_texts)) == pytest.approx(sum(map(len, texts)), rel=0.02)


CASES = [
    '"""Module."""\nx = 1  # one\n',
    "# -*- coding: utf-8 -*-\n'''Module.'''\n",
    'def f(a: str = "no", b=lambda: 1, *, c={1: "no"}) -> "no":\n    """Yes."""\n',
    "class A(B):\n\n    # comment first\n    r'''Raw.'''\n    x = 'no'\n",
    'async def f(): "yes"\n',
    'def f():\n    x = "no"\n    "no"\n',
    'def f():\n    "no" + "no"\n',
    'def f():\n    """no""".strip()\n',
    "def f():\n    b'no'\n",
    "def f():\n    f'no'\n",
    'if x:\n    "no"\n',
    'x = {1:\n  "no"}\n',
    'def f():\n    "yes"; x = 1\n',
    'def outer():\n    """One."""\n    def inner():\n        """Two."""\n    return "# no"\n',
    "class A:\n    '''One.\n\n        Indented.\n    '''\n    def f(self):\n        '''Two.'''\n",
    "x = 1\n",
    "",
]


@pytest.mark.parametrize("source", CASES)
def test_docstrings_are_the_strings_that_come_first(source):
    assert found(source) == by_python(source)


def test_python_2_and_broken_code_are_read_like_any_other():
    assert natural_length('def f():\n    """Doc."""\n    print "x" # no\n') == len("Doc.") + len("# no")
    assert natural_length("def f(:\n  ]]] # one\n") == len("# one")
    assert natural_length('"""never ended # in it') == len("never ended # in it")
    assert natural_length("x = 'not ended # in it\n# out of it") == len("# out of it")


@given(st.lists(st.sampled_from(["def f", "class ", "(", ")", ":", "\n", '"""', "'", "#", "\\", "\0", " ", "x", "é"])))
def test_nothing_is_longer_than_the_source_and_nothing_is_an_error(parts):
    source = "".join(parts)
    assert 0 <= natural_length(source) <= len(source.expandtabs())


WORDS = st.text("abc .,", min_size=1, max_size=20)


@given(st.lists(st.tuples(st.sampled_from(["comment", "function", "string", "class"]), WORDS), max_size=10))
def test_generated_programs_have_what_was_put_into_them(parts):
    source = ""
    for i, (kind, text) in enumerate(parts):
        if kind == "comment":
            source += f"x = {i}  # {text}\n"
        elif kind == "string":
            source += f"x = '# {text}'\n"
        else:
            head = f"def f{i}(a='#', b=[1, 2]):" if kind == "function" else f"class C{i}(A):"
            source += f'{head}\n    """{text}"""\n    x = "{text}"\n'
    assert found(source) == by_python(source)


def test_a_million_open_headers_are_read_once():
    source = "def (\n" * 100_000
    assert natural_length(source) == 0
