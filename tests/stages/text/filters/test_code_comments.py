"""Comments of many languages: found where they are, and not where strings hide their signs."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill.stages.text.filters.code_comments import ALIASES, SYNTAXES, comment_length, comments, syntax_of


def found(source: str, language: str) -> list[str]:
    return [source[start:end] for start, end in comments(source, syntax_of(language))]


CASES = [
    ("c", "int a; // one\n/* two\n */ b", [" one", " two\n "]),
    ("c", 'char *s = "/* no */ // no"; // yes', [" yes"]),
    ("c", r'"\"// no" /*yes*/', ["yes"]),
    ("c", "char q = '\"'; // yes", [" yes"]),
    ("c", "int n = 1'000'000; // yes", [" yes"]),
    ("c", "L'\"' // yes", [" yes"]),
    ("c", 'auto s = R"x(" // no )" /* no */)x"; // yes', [" yes"]),
    ("c", 'char *s = "not ended\nint a; // yes', [" yes"]),
    ("c", "a /* not ended // b", [" not ended // b"]),
    ("c", "/**/x/***/", ["", "*"]),
    ("c", "x // one\r\ny", [" one"]),
    ("text/x-c++", "a; // b", [" b"]),
    ("Java", 'String s = """\n // no "quoted" \n"""; // yes', [" yes"]),
    ("csharp", r'var s = @"C:\"; // yes', [" yes"]),
    ("csharp", 'var s = @"a ""// no"" b"; // yes', [" yes"]),
    ("javascript", "let r = /\"[/*]'/; // yes", [" yes"]),
    ("javascript", "let r = a / b / c; // yes", [" yes"]),
    ("javascript", "`// no\n${a} /* no */` // yes", [" yes"]),
    ("application/javascript", "return /\\/\\/ no/.test(x) // yes", [" yes"]),
    ("go", "s := `\\`; // yes\nt := `// no`", [" yes"]),
    ("rust", "/* a /* b */ c */ d", [" a /* b */ c "]),
    ("rust", "fn f<'a>(x: &'a str) { '\"' } // yes", [" yes"]),
    ("rust", 'let s = r#"a "// no" b"#; // yes', [" yes"]),
    ("rust", "/* a /* not ended", [" a /* not ended"]),
    ("kotlin", 'val s = """// no""" // yes', [" yes"]),
    ("swift", 'let s = #"a "// no"# // yes', [" yes"]),
    ("shell", "#!/bin/sh\necho a#b $# ${x#y} \\# '# no' \"# no\" # yes\n", ["!/bin/sh", " yes"]),
    ("shell", "cat <<EOF\n# no\nEOF\n# yes", [" yes"]),
    ("shell", "cat <<'EOF' > file\n it's \"\nEOF\n# yes", [" yes"]),
    ("shell", "echo $((1 <<n)) # yes", [" yes"]),
    ("python", 'x = \'#no\' # yes\ny = """# no\n"""', [" yes"]),
    ("ruby", 'x = "#{y} # no" # yes\n=begin\nmore\n=end\n', [" yes", "\nmore\n"]),
    ("ruby", "a =~ /# no/ # yes", [" yes"]),
    ("perl", "$#a; # yes\n=pod\nmore\n=cut\n", [" yes", "\nmore\n"]),
    ("sql", "select '-- no', 'it''s -- no' -- yes\n/* and */", [" yes", " and "]),
    ("html", "<p>a</p><!-- b --><!-- c", [" b ", " c"]),
    ("xml", "<a><![CDATA[<!-- no -->]]></a><!-- yes -->", [" yes "]),
    ("css", "a { background: url(http://x/*y*/z) } /* yes */", [" yes "]),
    ("scss", "a { b: url(//no) } // yes", [" yes"]),
    ("lua", 'x = "-- no" --[[ one\n ]] y --[==[ two ]] ]==] -- three', [" one\n ", " two ]] ", " three"]),
    ("lua", "x = [[ -- no ]] -- yes", [" yes"]),
    ("haskell", "f' = a --> b -- yes\n{- c {- d -} e -}", [" yes", " c {- d -} e "]),
    ("ocaml", 'let s = "(* no *)" (* a (* b *) *)', [" a (* b *) "]),
    ("lisp", '(a "; no" #\\; b) ; yes', [" yes"]),
    ("julia", "x = a' # one\n#= two #= three =# =#", [" one", " two #= three =# "]),
    ("matlab", "x = a'; % one\ny = '% no';\n%{\ntwo\n%}\n", [" one", "\ntwo\n"]),
    ("pascal", "a { one } 'it { no' (* two *) // three", [" one ", " two ", " three"]),
    ("php", "<?php #[Attribute]\n$a = '# no'; # one\n// two\n/* three */", [" one", " two", " three "]),
    ("powershell", '$a = "# no" # one\n<# two #>', [" one", " two "]),
    ("visualbasic", "x = \"' no\" ' one\nRem two\n", [" one", " two"]),
    ("yaml", 'a: b#c\nd: "# no" # yes', [" yes"]),
    ("tex", "50\\% of % yes", [" yes"]),
    ("fortran", "print *, '! no' ! yes", [" yes"]),
    ("erlang", 'a = "% no", $%, b % yes', [" yes"]),
    ("zig", "const s =\n    \\\\ // no\n; // yes", [" yes"]),
    ("ada", 's := "-- no"; -- yes', [" yes"]),
    ("dockerfile", "RUN a # no\n# yes", [" yes"]),
    ("ini", "a = b ; no\n; yes", [" yes"]),
]


@pytest.mark.parametrize(("language", "source", "expected"), CASES)
def test_comments_are_distinguished_from_strings(language, source, expected):
    assert found(source, language) == expected


@pytest.mark.parametrize("language", SYNTAXES)
def test_prose_and_nothing_have_a_length_in_every_language(language):
    syntax = syntax_of(language)
    assert comment_length("", syntax) == 0
    assert comment_length(" \n\t\r\n", syntax) == 0
    assert 0 <= comment_length("It's 5 o'clock, he said: \"well.", syntax) <= 31


def test_every_alias_leads_to_a_language():
    assert set(ALIASES.values()) <= set(SYNTAXES)
    assert not set(ALIASES) & set(SYNTAXES)


def test_an_unknown_language_is_named_with_the_nearest_known_one():
    with pytest.raises(ValueError, match=r"'pyhton'.*Did you mean 'python'"):
        syntax_of("pyhton")


COMMENT_SIGNS = ["//", "/*", "*/", "#", "--", "<!--", "-->", "(*", "*)", "{-", "-}", "%", ";", "#|", "|#", "#=", "=#"]
STRING_SIGNS = ["'", '"', "\\", "`", "[[", "]]", "<<A", '"""', 'R"(', 'r#"', "/", "[", "="]
SIGNS = [*COMMENT_SIGNS, *STRING_SIGNS, "A", "x", "é", " ", "\n", "\r\n", "\0"]


@given(st.sampled_from(sorted(SYNTAXES)), st.lists(st.sampled_from(SIGNS), max_size=40).map("".join))
def test_comments_lie_in_the_source_in_order_whatever_it_is(language, source):
    position = 0
    for start, end in comments(source, syntax_of(language)):
        assert position <= start <= end <= len(source)
        position = end


@given(
    st.sampled_from(["c", "java", "javascript", "go", "rust", "sql", "kotlin", "swift", "csharp"]),
    st.lists(st.tuples(st.sampled_from(["block", "string", "code"]), st.text("ab /#-", max_size=8)), max_size=12),
)
def test_what_was_put_into_comments_is_what_comes_out(language, parts):
    source, expected = "", []
    for kind, text in parts:
        if kind == "block":
            text = text.replace("/", ".").replace("*", ".")
            source += f"/*{text}*/\n"
            expected.append(text)
        elif kind == "string":
            quote = "'" if language == "sql" else '"'
            source += f"x({quote}{text}{quote}),\n"
        else:
            source += text.replace("/", "").replace("-", "") + ";\n"
    assert found(source, language) == expected


HOSTILE = [
    '"',
    "'",
    '\\"',
    "/*",
    "//",
    'R"(',
    'r#"',
    "[[",
    "<<A\n",
    "=/[",
    "<!--",
    "{-",
    "(*",
    "#=",
    '"""',
    "\\",
    "<<A ",
]


@pytest.mark.parametrize("sign", HOSTILE)
def test_broken_code_takes_time_in_proportion_to_its_length(sign):
    """A scan that went back to each sign would take minutes for this, not fractions of a second."""
    source = sign * (100_000 // len(sign))
    for language in ("c", "javascript", "rust", "shell", "lua", "haskell", "ocaml", "html", "java"):
        began = time.process_time()
        comment_length(source, syntax_of(language))
        assert time.process_time() - began < 5


def test_here_documents_without_end_are_looked_for_a_bounded_number_of_times():
    source = "".join(f"cat <<TAG{i}\n" for i in range(20_000)) + "# yes"
    began = time.process_time()
    assert comment_length(source, syntax_of("shell")) == len(" yes")
    assert time.process_time() - began < 5
