"""The text of pages, broken ones too, against the parser of Python's library."""

import time
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill.stages.text.filters.code import text_length


class Reference(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.unseen = 0
        self.length = 0

    def handle_starttag(self, tag, attrs):
        self.unseen += tag in ("script", "style")

    def handle_endtag(self, tag):
        self.unseen -= tag in ("script", "style") and self.unseen > 0

    def handle_data(self, data):
        self.length += 0 if self.unseen else 1 if data.isspace() else len(data)


def by_python(source: str) -> int:
    parser = Reference()  # gives the whole text between two tags at once
    parser.feed(source)
    parser.close()
    return parser.length


CASES = [
    "<p>One &amp; two &eacute;&#65;</p>",
    "<!DOCTYPE html><html><head><title>T</title></head><body>b</body></html>",
    "a<script>if (a < b) '</p>'</script>b<STYLE>p > a {}</Style >c",
    "<a title='1 > 2' href=\"x>y\">z</a>",
    "a<!-- <p>no</p> -->b<?php no ?>c",
    "3 < 4 and 5 > 4",
    "a <br/> b<br>c",
    "plain",
    "",
    " \n ",
]


@pytest.mark.parametrize("source", CASES)
def test_text_is_what_is_left_without_markup(source):
    assert text_length(source) == by_python(source)


PIECES = ["<p>", "</p>", "<b class='x'>", "<br/>", "text", " ", "\n", "&amp;", "<!-- c -->", "é", "<script>no</script>"]


@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_pages_of_well_formed_pieces_have_the_text_that_the_library_finds(source):
    assert text_length(source) == by_python(source)


def test_what_does_not_end_hides_the_rest():
    assert text_length("ab<!-- <p>not ended</p>") == 2
    assert text_length("ab<script>not ended") == 2
    assert text_length("ab<p class=") == 2
    assert text_length('ab<p class="x>y') == 2


@given(st.text(st.sampled_from("<>!-/\"'=&; ascriptyle"), max_size=80))
def test_no_page_is_an_error_and_none_grows(source):
    assert 0 <= text_length(source) <= len(source)


@pytest.mark.parametrize(
    "sign", ["<", "<a ", '<a b="', "<!--", "<script", "<script>", "<![CDATA[", "&", "</", "<a =", "<!"]
)
def test_broken_pages_take_time_in_proportion_to_their_length(sign):
    began = time.process_time()
    text_length(sign * (500_000 // len(sign)))
    assert time.process_time() - began < 5
