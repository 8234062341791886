"""Repair and normal forms of Unicode."""

from __future__ import annotations

import re
import unicodedata
from typing import Any, Literal

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
