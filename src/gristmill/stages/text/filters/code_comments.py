"""Find comments in source code, also in broken code, in time proportional to its length.

A scanner knows for a language what begins and ends comments, and what hides these marks: strings, regular expressions,
here-documents. Everything else is skipped. Nothing is an error: an unclosed comment or string ends with the text, or
with the line in languages that end it there.

Docstrings of Python count too. The scanner does not use `tokenize` and `ast`: they refuse broken code, and versions of
Python differ in what they accept.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from gristmill.near_names import did_you_mean

MAX_LOST_TAGS = 50
"""Unclosed here-documents that are tried in a document; for each the rest of the text is searched."""


@dataclass(frozen=True, slots=True)
class Syntax:
    """The syntax of comments in a language. Patterns are regular expressions and must match in linear time."""

    line: tuple[str, ...] = ()
    """Begins of comments that end with the line."""

    block: tuple[tuple[str, str], ...] = ()
    """Begin and end of comments that may span lines."""

    literals: tuple[str, ...] = ()
    """Whole strings and the like, which hide comment marks. Without an end they match to the end of the text."""

    nested: bool = False
    """Whether comments that span lines may be nested."""

    heredocs: bool = False
    """Whether there are here-documents: ``<<TAG``, lines, ``TAG``."""


def comments(source: str, syntax: Syntax) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each comment, without its marks."""
    find = _scanner(syntax).search
    position = lost = 0
    while match := find(source, position):
        position = max(match.end(), match.start() + 1)
        kind = match.lastgroup
        if kind and kind.startswith("comment"):
            yield match.span(kind)
        elif kind and kind.startswith("nested"):
            block = syntax.block[int(kind.removeprefix("nested"))]
            end, position = _end_of_nested(source, match.end(), *block)
            yield match.end(), end
        elif kind == "tag" and lost < MAX_LOST_TAGS:
            end_tag = re.compile(rf"^[ \t]*{re.escape(match['tag'])}\b", re.MULTILINE).search(source, position)
            if end_tag:
                position = end_tag.end()
            else:
                lost += 1


def comment_length(source: str, syntax: Syntax) -> int:
    """Return the number of characters of all comments, without their marks, joined by spaces."""
    return max(sum(end - start + 1 for start, end in comments(source, syntax)) - 1, 0)


@functools.cache
def _scanner(syntax: Syntax) -> re.Pattern[str]:
    parts = []
    for i, (begin, end) in enumerate(syntax.block):
        if syntax.nested:
            parts.append(rf"{begin}(?P<nested{i}>)")
        else:
            parts.append(rf"{begin}(?P<comment_block{i}>.*?)(?:{end}|\Z)")
    parts += [rf"{begin}(?P<comment_line{i}>[^\r\n]*+)" for i, begin in enumerate(syntax.line)]
    if syntax.heredocs:
        parts.append(r"""<<[~-]?(?P<quote>["']?)(?P<tag>[A-Za-z_]\w{0,63})(?P=quote)""")
    parts += syntax.literals
    return re.compile("|".join(f"(?:{part})" for part in parts), re.DOTALL | re.MULTILINE)


def _end_of_nested(source: str, position: int, begin: str, end: str) -> tuple[int, int]:
    """Return where the content of a nested comment ends, and where the code after it begins."""
    depth = 1
    for match in _edges(begin, end).finditer(source, position):
        depth += 1 if match.lastgroup == "begin" else -1
        if not depth:
            return match.span()
    return len(source), len(source)


@functools.cache
def _edges(begin: str, end: str) -> re.Pattern[str]:
    return re.compile(f"(?P<begin>{begin})|(?P<end>{end})")


def _line_string(quote: str) -> str:
    """A string with backslash escapes that ends at the end of the line at the latest."""
    return rf"{quote}[^{quote}\\\n]*+(?:\\.[^{quote}\\\n]*+)*+{quote}?"


def _long_string(quote: str) -> str:
    """A string with backslash escapes that may span lines."""
    return rf"{quote}[^{quote}\\]*+(?:\\.[^{quote}\\]*+)*+{quote}?"


def _doubled_string(quote: str, prefix: str = "") -> str:
    """A string in which a quote is written twice and a backslash has no meaning."""
    return rf"{prefix}{quote}[^{quote}]*+(?:{quote}{quote}[^{quote}]*+)*+{quote}?"


def _plain_string(quote: str) -> str:
    """A string that ends at the next quote, also after a backslash."""
    return rf"{quote}[^{quote}]*+{quote}?"


DOUBLE = _line_string('"')
SINGLE = _line_string("'")
TRIPLE_DOUBLE = r'"""(?:[^"\\]|\\.|"(?!""))*+(?:""")?'
TRIPLE_SINGLE = r"'''(?:[^'\\]|\\.|'(?!''))*+(?:''')?"
BACKTICK = _long_string("`")
PREFIXED_CHARACTER = rf"\b(?:u8|[LuU]){SINGLE}"
CHARACTER = rf"(?<!\w){SINGLE}"
ONE_CHARACTER = r"'(?:[^'\\\n]|\\.[^'\n]{0,8})'"
ESCAPED = r"\\."
RAW_CPP = r'R"(?P<raw_cpp>[^()\\\s"]{0,16})\((?:.*?\)(?P=raw_cpp)"|.*)'
RAW_RUST = r'\bb?r(?P<raw_rust>#{0,8})"(?:.*?"(?P=raw_rust)|.*)'
RAW_SWIFT = r'(?P<raw_swift>#{1,8})"(?:.*?"(?P=raw_swift)|.*)'
LONG_LUA = r"\[(?P<long_lua>=*+)\[(?:.*?\](?P=long_lua)\]|.*)"
REGEX = (
    r"(?:(?<=[=(,:;!&|?{}\[+*%~^<>-])|(?<=\breturn)|(?<=\bcase)|^)[ \t]*+"
    r"/(?![/*])(?:[^/\\\[\n]|\\.|\[(?:[^\]\\\n]|\\.){0,200}+\]){1,500}+/"
)

SLASHES = r"//"
HASH = r"#"
SPACED_HASH = r"(?:(?<=[\s;&|()])|^)#"
DASHES = r"--"
SLASH_STAR = (r"/\*", r"\*/")
PAREN_STAR = (r"\(\*", r"\*\)")

C = Syntax((SLASHES,), (SLASH_STAR,), (RAW_CPP, DOUBLE, PREFIXED_CHARACTER, CHARACTER))
JAVA = Syntax((SLASHES,), (SLASH_STAR,), (TRIPLE_DOUBLE, DOUBLE, SINGLE))
NESTING = Syntax((SLASHES,), (SLASH_STAR,), (TRIPLE_DOUBLE, DOUBLE, ONE_CHARACTER), nested=True)
JAVASCRIPT = Syntax((SLASHES, r"\A#!"), (SLASH_STAR,), (REGEX, DOUBLE, SINGLE, BACKTICK))
HASHES = Syntax((HASH,), (), (TRIPLE_DOUBLE, TRIPLE_SINGLE, DOUBLE, SINGLE))
SHELL = Syntax((SPACED_HASH,), (), (ESCAPED, _plain_string("'"), _long_string('"')), heredocs=True)
HTML = Syntax((), (("<!--", "-->"),), ())
XML = Syntax((), (("<!--", "-->"),), (r"<!\[CDATA\[(?:.*?\]\]>|.*)",))
LISP = Syntax((";",), ((r"#\|", r"\|#"),), (ESCAPED, _long_string('"')), nested=True)
PERCENT = Syntax(("%",), (), (ESCAPED,))

SYNTAXES: dict[str, Syntax] = {
    "ada": Syntax((DASHES,), (), (_doubled_string('"'), ONE_CHARACTER)),
    "c": C,
    "clojure": LISP,
    "csharp": Syntax(
        (SLASHES,), (SLASH_STAR,), (_doubled_string('"', r"(?:@\$|\$@|@)"), TRIPLE_DOUBLE, DOUBLE, SINGLE)
    ),
    "css": Syntax((), (SLASH_STAR,), (DOUBLE, SINGLE, r"\burl\([^)\n\"']*+\)?")),
    "dart": Syntax((SLASHES,), (SLASH_STAR,), (TRIPLE_DOUBLE, TRIPLE_SINGLE, DOUBLE, SINGLE), nested=True),
    "dockerfile": Syntax((r"^[ \t]*+#",), (), ()),
    "elixir": HASHES,
    "erlang": Syntax(("%",), (), (r"\$\\?.", _long_string('"'), _line_string("'"))),
    "fortran": Syntax(("!",), (), (_doubled_string('"'), _doubled_string("'"))),
    "fsharp": Syntax((SLASHES,), ((r"\(\*(?!\))", r"\*\)"),), (TRIPLE_DOUBLE, DOUBLE, ONE_CHARACTER), nested=True),
    "go": Syntax((SLASHES,), (SLASH_STAR,), (DOUBLE, SINGLE, _plain_string("`"))),
    "haskell": Syntax(
        (r"(?<![!#$%&*+./<=>?@\\^|~:-])--+(?![!#$%&*+./<=>?@\\^|~:-])",),
        ((r"\{-", r"-\}"),),
        (_long_string('"'), rf"(?<!\w){ONE_CHARACTER}"),
        nested=True,
    ),
    "html": HTML,
    "ini": Syntax((r"^[ \t]*+[#;]",), (), ()),
    "java": JAVA,
    "javascript": JAVASCRIPT,
    "julia": Syntax(
        (HASH,), ((r"#=", r"=#"),), (TRIPLE_DOUBLE, _long_string('"'), rf"(?<![\w)\]}}.']){ONE_CHARACTER}"), nested=True
    ),
    "kotlin": NESTING,
    "lisp": LISP,
    "lua": Syntax((DASHES,), ((r"--\[(?P<level>=*+)\[", r"\](?P=level)\]"),), (LONG_LUA, DOUBLE, SINGLE)),
    "makefile": Syntax((SPACED_HASH,), (), (ESCAPED,)),
    "matlab": Syntax(("%",), ((r"^[ \t]*+%\{[ \t]*+$", r"^[ \t]*+%\}"),), (r"(?<![\w)\]}.'])'[^'\n]*+'?", DOUBLE)),
    "ocaml": Syntax((), (PAREN_STAR,), (_long_string('"'), rf"(?<!\w){ONE_CHARACTER}"), nested=True),
    "pascal": Syntax((SLASHES,), ((r"\{", r"\}"), PAREN_STAR), (r"'[^'\n]*+'?",)),
    "perl": Syntax(
        (r"(?<!\$)#",), ((r"^=[a-z]\w*", r"^=cut\b"),), (_long_string('"'), _long_string("'")), heredocs=True
    ),
    "php": Syntax((SLASHES, r"#(?!\[)"), (SLASH_STAR,), (_long_string('"'), _long_string("'"))),
    "powershell": Syntax((SPACED_HASH,), (("<#", "#>"),), ("`.", _doubled_string('"'), _doubled_string("'"))),
    "python": HASHES,
    "r": Syntax((HASH,), (), (_long_string('"'), _long_string("'"), BACKTICK)),
    "ruby": Syntax(
        (r"(?<![$?])#(?!\{)",), (("^=begin", "^=end"),), (REGEX, _long_string('"'), _long_string("'")), heredocs=True
    ),
    "rust": Syntax((SLASHES,), (SLASH_STAR,), (RAW_RUST, _long_string('"'), ONE_CHARACTER), nested=True),
    "scala": NESTING,
    "scss": Syntax((SLASHES,), (SLASH_STAR,), (DOUBLE, SINGLE, r"\burl\([^)\n\"']*+\)?")),
    "shell": SHELL,
    "sql": Syntax((DASHES,), (SLASH_STAR,), (_doubled_string("'"), _doubled_string('"'), _plain_string("`"))),
    "swift": Syntax((SLASHES,), (SLASH_STAR,), (RAW_SWIFT, TRIPLE_DOUBLE, DOUBLE), nested=True),
    "tex": PERCENT,
    "toml": HASHES,
    "typescript": JAVASCRIPT,
    "visualbasic": Syntax(("'", r"(?i:^[ \t]*+rem\b)"), (), (_doubled_string('"'),)),
    "yaml": Syntax((SPACED_HASH,), (), (DOUBLE, r"(?<=[\s\[,:{-])" + _doubled_string("'"))),
    "xml": XML,
    "zig": Syntax((SLASHES,), (), (r"\\\\[^\n]*+", DOUBLE, SINGLE)),
}

_ALIASES = (
    "c: c++ cpp cc h hpp cuda cu objective-c objc arduino glsl proto; java: java-source groovy gradle solidity; "
    "javascript: js jsx node ecmascript vue json5 jsonc; typescript: ts tsx; shell: bash sh zsh shellscript ksh "
    "awk; python: py script.python python3 cython starlark; csharp: c# cs c-sharp; fsharp: f# fs f-sharp; html: htm "
    "xhtml xhtml+xml markdown md; lisp: scheme racket emacs-lisp common-lisp elisp clj; scss: less sass; "
    "visualbasic: vb vb.net visual-basic vba; sql: mysql postgresql plsql sqlite tsql; xml: svg xsd xsl; tex: "
    "latex; go: golang; rust: rs; ruby: rb; perl: pl; kotlin: kt; haskell: hs; yaml: yml; powershell: ps1; "
    "makefile: make; matlab: octave; ada: vhdl; pascal: delphi; ocaml: ml; ini: properties cfg "
)
ALIASES = {
    alias: language.strip()
    for language, _, aliases in (entry.partition(":") for entry in _ALIASES.split(";"))
    for alias in aliases.split()
}


def syntax_of(language: str) -> Syntax:
    """Return the syntax of a language, by its name or its MIME type: ``"C++"``, ``"text/x-c++"``."""
    name = language.strip().lower()
    for prefix in ("text/", "application/"):
        if name.startswith(prefix):
            name = name.removeprefix(prefix).removeprefix("x-")
    syntax = SYNTAXES.get(ALIASES.get(name, name))
    if syntax is None:
        hint = did_you_mean(name, [*SYNTAXES, *ALIASES])
        raise ValueError(f"comments in {language!r} are not known.{hint} Known are: {', '.join(SYNTAXES)}.")
    return syntax


TOKEN = re.compile(rf"(?P<comment>\#[^\r\n]*+)|{TRIPLE_DOUBLE}|{TRIPLE_SINGLE}|{DOUBLE}|{SINGLE}", re.DOTALL)
HEADER = re.compile(r"^[ \t]*+(?:async[ \t]++)?(?:def|class)\b", re.MULTILINE)
SIGN = re.compile(r"[()\[\]{}:\n]")
STRING = "\0"
"""The placeholder of a string in the skeleton of a program."""
DOCSTRING = re.compile(rf"(?:\s|\\\r?\n)*+[rRuU]?({STRING})(?=(?:[ \t]*+{STRING})*+[ \t]*+(?:[\r\n;]|\Z))")
"""A string that is a statement. Byte strings and formatted strings do not match because of their prefix."""


def natural_length(source: str) -> int:
    """Return the characters of comments, with ``#``, and of docstrings, without quotes and indentation."""
    skeleton, strings, length = skeleton_of(source)
    return length + sum(map(len, docstrings(skeleton, strings)))


def skeleton_of(source: str) -> tuple[str, list[str], int]:
    """Return the program without comments and with placeholders for strings, the strings, and the comments' length."""
    parts: list[str] = []
    strings: list[str] = []
    comments = position = 0
    for match in TOKEN.finditer(source):
        parts.append(source[position : match.start()].replace(STRING, " "))
        position = match.end()
        if match.lastgroup == "comment":
            comments += position - match.start()
        else:
            parts.append(STRING)
            strings.append(match[0])
    parts.append(source[position:].replace(STRING, " "))
    return "".join(parts), strings, comments


def docstrings(skeleton: str, strings: list[str]) -> Iterator[str]:
    """Yield the text of the first string of the module, of each class and of each function."""
    number = position = 0
    for start in _bodies(skeleton):
        if match := DOCSTRING.match(skeleton, start):
            number += skeleton.count(STRING, position, match.start(1))
            position = match.start(1)
            yield _text(strings[number])


def _bodies(skeleton: str) -> Iterator[int]:
    """Yield where the module and the bodies of its classes and functions begin, in order."""
    yield 1 if skeleton.startswith("\ufeff") else 0
    headers = [match.span() for match in HEADER.finditer(skeleton)]
    headers.append((len(skeleton), len(skeleton)))
    for (_, end), (limit, _) in itertools.pairwise(headers):
        depth = 0
        for sign in SIGN.finditer(skeleton, end, limit):
            if sign[0] in "([{":
                depth += 1
            elif sign[0] in ")]}":
                depth -= 1
            elif depth <= 0:
                if sign[0] == ":":
                    yield sign.end()
                break


def _text(literal: str) -> str:
    """Return the text between the quotes, without indentation."""
    width = 3 if literal.startswith(('"""', "'''")) else 1
    return inspect.cleandoc(literal[width:].removesuffix(literal[:width]))
