"""Modifiers that normalize Unicode, white space and quotation marks."""

from __future__ import annotations

import re
import unicodedata
from typing import Any, Literal

from gristmill.kernels.texts import Texts
from gristmill.lazy import Array, np
from gristmill.stages.registry import builtin
from gristmill.stages.text.modifiers.document_modifier import DocumentModifier

Form = Literal["NFC", "NFD", "NFKC", "NFKD"]
FORMS = ("NFC", "NFD", "NFKC", "NFKD")

NOT_PLAIN = rb"[\x80-\xff\x00-\x08\x0b\x0e-\x1f\x7f&]"
"""ftfy does not change ASCII without these, except line ends."""
ODD = re.compile(r"[^\t\n\f\r -%'-~]")
ODD_LINE_BREAKS = re.compile(r"[^\t\n\f -%'-~]")
"""The same in text."""


@builtin
class UnicodeReformatter(DocumentModifier):
    """Repairs text that was decoded wrongly ("schÃ¶n" for "schön") with ftfy. The arguments are ftfy's options.

    The defaults are cautious: no change of quotes, widths, ligatures, line ends or normal form. ``unescape_html`` is
    "auto" (unless the text has a "<"), True or False; ``normalization`` is None or a form such as "NFC".
    """

    def __init__(
        self,
        *,
        unescape_html: str | bool = "auto",
        remove_terminal_escapes: bool = True,
        fix_encoding: bool = True,
        restore_byte_a0: bool = True,
        replace_lossy_sequences: bool = True,
        decode_inconsistent_utf8: bool = True,
        fix_c1_controls: bool = True,
        fix_latin_ligatures: bool = False,
        fix_character_width: bool = False,
        uncurl_quotes: bool = False,
        fix_line_breaks: bool = False,
        fix_surrogates: bool = True,
        remove_control_chars: bool = True,
        normalization: Form | None = None,
        max_decode_length: int = 1_000_000,
    ) -> None:
        _check_form(normalization)
        options = {name: value for name, value in locals().items() if name != "self"}
        self.options: dict[str, Any] = options
        self.triggers = (NOT_PLAIN, rb"\r") if fix_line_breaks else (NOT_PLAIN,)

    def preload(self) -> None:
        _ftfy()

    def modify_document(self, text: str) -> str:
        ftfy = _ftfy()
        config = ftfy.TextFixerConfig(explain=False, **self.options)
        odd = ODD_LINE_BREAKS if self.options["fix_line_breaks"] else ODD
        # ftfy repairs line by line. Only one thing depends on earlier lines: after the first "<", "auto" does not
        # unescape entities. Lines of plain ASCII need no repair.
        lines = text.split("\n")
        for n, line in enumerate(lines):
            if "<" in line and config.unescape_html == "auto":
                config = config._replace(unescape_html=False)
            if odd.search(line):
                end = "\n" if n < len(lines) - 1 else ""
                lines[n] = ftfy.fix_text(line + end, config=config).removesuffix(end)
        return "\n".join(lines)


@builtin
class UnicodeNormalizer(DocumentModifier):
    """Converts text to a normal form: "NFC" composes letters and accents, "NFKC" also unifies variants ("ﬁ", "①")."""

    triggers = (rb"[\x80-\xff]",)

    def __init__(self, form: Form = "NFC") -> None:
        if form is None:
            raise ValueError(f"UnicodeNormalizer needs a form: one of {', '.join(FORMS)}.")
        _check_form(form)
        self.form = form

    def modify_document(self, text: str) -> str:
        return text if unicodedata.is_normalized(self.form, text) else unicodedata.normalize(self.form, text)


def _check_form(form: str | None) -> None:
    if form is not None and form not in FORMS:
        raise ValueError(f"there is no normal form {form!r}: use one of {', '.join(FORMS)}.")


def _ftfy() -> Any:
    try:
        import ftfy
    except ImportError:
        raise ImportError("UnicodeReformatter needs ftfy: pip install 'gristmill[text]'.") from None
    return ftfy


MANY_NEWLINES = re.compile(r"\n{3,}")
MANY_WINDOWS_NEWLINES = re.compile(r"(?:\r\n){3,}")
OTHER_NEWLINES = re.compile("\r\n?|[\x85\u2028\u2029]")
OTHER_BLANKS = re.compile(r"[^\S\n ]")
SPACES = re.compile(r" {2,}")


@builtin
class NewlineNormalizer(DocumentModifier):
    """Keeps at most two newlines in a row, that is one empty line; the same for Windows line ends."""

    triggers = (rb"\n\n\n", rb"\r\n\r\n\r\n")

    def modify_document(self, text: str) -> str:
        return MANY_WINDOWS_NEWLINES.sub("\r\n\r\n", MANY_NEWLINES.sub("\n\n", text))


@builtin
class WhitespaceNormalizer(DocumentModifier):
    """Replaces each run of spaces, tabs and other blanks by one space, and removes it at ends of lines and of the text.

    Line ends of all kinds become newlines, and their number stays. With ``keep_newlines=False`` they count as blanks,
    and the text becomes one line. Not for code: indentation is lost.
    """

    def __init__(self, keep_newlines: bool = True) -> None:
        self.keep_newlines = keep_newlines
        newlines = (rb"\n ", rb" \n") if keep_newlines else (rb"\n",)
        self.triggers = (rb"  ", *newlines, rb"[\t\r\v\f\x1c-\x1f\x80-\xff]")

    def candidates(self, texts: Texts) -> Array:
        found = super().candidates(texts)
        some = texts.ends > texts.starts
        ends = np.concatenate([texts.starts[some], texts.ends[some] - 1])
        found[some] |= np.isin(texts.data[ends], [ord(" "), ord("\n")]).reshape(2, -1).any(axis=0)
        return found

    def modify_document(self, text: str) -> str:
        if not self.keep_newlines:
            return " ".join(text.split())
        text = OTHER_BLANKS.sub(" ", OTHER_NEWLINES.sub("\n", text))
        text = SPACES.sub(" ", text) if "  " in text else text
        return text.replace(" \n", "\n").replace("\n ", "\n").strip()


SINGLE = re.compile("[\u2018-\u201b]")
DOUBLE = re.compile("[\u201c-\u201f]")


@builtin
class QuotationRemover(DocumentModifier):
    """Removes the straight double quotes around a whole text.

    A text of several lines keeps them if its first line ends with one: then only that line is quoted.
    """

    def candidates(self, texts: Texts) -> Array:
        long = texts.ends - texts.starts > 2
        quoted = long.copy()
        quoted[long] = texts.data[texts.starts[long]] == ord('"')
        quoted[long] &= texts.data[texts.ends[long] - 1] == ord('"')
        return quoted

    def modify_document(self, text: str) -> str:
        if len(text) <= 2 or text[0] != '"' or text[-1] != '"':
            return text
        first, newline, _ = text.partition("\n")
        return text if newline and first.endswith('"') else text[1:-1]


@builtin
class QuotationNormalizer(DocumentModifier):
    """Replaces curly and low quotation marks and apostrophes by straight ones."""

    triggers = (rb"\xe2\x80[\x98-\x9f]",)

    def modify_document(self, text: str) -> str:
        return DOUBLE.sub('"', SINGLE.sub("'", text))
