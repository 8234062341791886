"""How programming languages write comments and strings."""

from __future__ import annotations

from gristmill.near_names import did_you_mean
from gristmill.stages.text.filters.code_comments import Syntax


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
