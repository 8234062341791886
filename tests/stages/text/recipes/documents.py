"""Documents for the recipes: prose that every rule keeps, and for each rule texts just inside and just outside of it.

``EXPECTED`` says for some of them which rule of a recipe drops them first; None: the recipe keeps them.
"""

from __future__ import annotations

PROSE = """\
The old mill stood at the bend of the river, where the water was quick even in dry summers.
Farmers from nine villages used to bring their rye to it, and most of them stayed until the evening to talk.
Its wheel had been mended so often that hardly a plank of the first one was left, yet people called it ancient.
A miller with good ears could tell by the sound alone whether the stones were set too close together.
When the frost came early, boys were paid a penny each to break the ice around the sluice with long poles.
In spring the dam needed care, for the melting snow brought branches and once a whole boat with nothing inside.
Flour was weighed on a scale that the council had stamped, because neighbours do not always trust each other.
Few remember who planted the three poplars, but maps from the last century show them already as tall trees.
Today the building is a small museum with a bakery, and on Sundays it smells of bread as far as the bridge.
Visitors may turn a hand mill themselves, which teaches respect for those who did it every single morning."""

LINES = PROSE.split("\n")
WORDS = " ".join(LINES).replace(".", "").replace(",", "").split()
"""The words of the prose without its marks."""
RARE = [w for w in WORDS if w.lower() not in ("the", "be", "to", "of", "and", "that", "have", "with")]
ONE_LINE = " ".join(LINES)


def words(count: int) -> str:
    """So many words in sentences of ten, on lines of their own; different ones as far as there are."""
    chosen = [WORDS[i % len(WORDS)] for i in range(count)]
    return "\n".join(" ".join(chosen[i : i + 10]) + "." for i in range(0, count, 10))


def lines_with(count: int, change: int, how: str) -> str:
    """Return lines of prose, some of them changed: ``how`` with a {} for the line without its full stop."""
    made = [LINES[i % 10].rstrip(".") + f" year {i}" * (i >= 10) for i in range(count)]
    return "\n".join(how.format(line) if i < change else f"{line}." for i, line in enumerate(made))


def coined(number: int) -> str:
    """A word of six letters for each number."""
    return "".join(chr(97 + number // 26**i * 7 % 26) for i in range(3)) + "mil"


def phrases_twice(n: int, share: float) -> str:
    """Return words without repetition, except two phrases of n words that repeat and have this share of all."""
    total = round(2 * n / share)
    fillers = iter([coined(1000 + i) for i in range(total)])
    phrases = [[coined(n * which + i) for i in range(n)] for which in range(2)]
    words: list[str] = []
    for phrase in [*phrases, *phrases]:
        words += [*phrase, *(next(fillers) for _ in range((total - 4 * n) // 4))]
    return " ".join(words)


RUSSIAN = (
    "Старая мельница стояла у изгиба реки, где вода бежала быстро даже в сухое лето. Крестьяне из девяти деревень "
    "привозили сюда рожь и оставались до вечера, чтобы поговорить. Колесо чинили так часто, что от первого не осталось "
    "почти ни одной доски. Хороший мельник узнавал по звуку, не слишком ли близко стоят жернова. Зимой мальчикам "
    "платили монету за то, чтобы они кололи лёд длинными шестами. Весной плотина требовала ухода, потому что талый "
    "снег приносил ветки. Муку взвешивали на весах с печатью совета."
)
CHINESE = "古老的磨坊位于河湾处,即使在干旱的夏天,水流也很急。农民们带着黑麦来到这里,一直聊到晚上。\n" * 3

DOCUMENTS: dict[str, str] = {
    "prose": PROSE,
    "prose, twice as long": PROSE + "\n" + "\n".join(f"In the year {1700 + i} {line}" for i, line in enumerate(LINES)),
    "empty": "",
    "blank": " \n\t \n ",
    "one word": "mill",
    "49 words": words(49),
    "50 words": words(50),
    "100,000 words": words(100_000),
    "100,001 words": words(100_001),
    "words of two letters": " ".join(["of to be as it is at by in on"] * 12) + ".",
    "words of eleven letters": "the of " + " ".join(f"{word}{'n' * (12 - len(word))}" for word in WORDS[:80]),
    "7 hashes for 60 words": words(60) + " " + "#" * 7,
    "6 hashes for 60 words": words(60) + "#" * 6,
    "7 ellipses for 60 words": words(60).replace(".", "...") + "...",
    "10 of 10 lines bullets": lines_with(10, 10, "- {}."),
    "9 of 10 lines bullets": lines_with(10, 9, "• {}."),
    "4 of 10 lines end in an ellipsis": lines_with(10, 4, "{}..."),
    "3 of 10 lines end in an ellipsis": lines_with(10, 3, "{}…"),
    "60 words and 16 numbers": words(60) + " " + " ".join(str(1000 + i * 37) for i in range(16)),
    "60 words and 15 numbers": words(60) + " " + " ".join(str(1000 + i * 37) for i in range(15)),
    "no stop word": " ".join(RARE),
    "one stop word, often": " ".join(f"the {w}" for w in RARE[:60]),
    "Russian": RUSSIAN,
    "Chinese": CHINESE,
    "4 of 10 lines twice": "\n".join([*LINES[:6], *LINES[:4]]),
    "3 of 10 lines twice": "\n".join(["Yes.", "No.", "So.", *LINES[3:7], "Yes.", "No.", "So."]),
    "4 of 10 paragraphs twice": "\n\n".join([*LINES[:6], *LINES[:4]]),
    "a long line twice": "\n".join([" ".join(LINES[:3]), *LINES[3:], " ".join(LINES[:3])]),
    "a long paragraph twice": "\n\n".join(["\n".join(LINES[:3]), *LINES[3:], "\n".join(LINES[:3])]),
    "two words over and over": " ".join(["grain elevator"] * 20) + " " + PROSE.replace("\n", " ")[:400],
    "ten words over and over": "\n".join(f"{i} it was known that the river never rests at night" for i in range(20)),
    "windows lines": PROSE.replace("\n", "\r\n"),
    "lorem ipsum": PROSE + "\nLorem IPSUM dolor sit amet is what a designer writes when there are no words.",
    "a curly bracket": PROSE + "\nfunction mill() { grind(); } is a line that no visitor will ever read in here.",
    "javascript lines": "\n".join(f"Please enable JavaScript to see picture number {i} of the mill." for i in range(9)),
    "policy lines": "\n".join(f"By the use of cookies this page number {i} can remember you well." for i in range(9)),
    "headlines without ends": "\n".join(line.rstrip(".") for line in LINES),
    "short lines with ends": "\n".join("We mill rye here." for _ in range(12)),
    "2 long sentences": "\n".join(LINES[:2]),
    "3 long sentences": "\n".join(LINES[:3]),
    "3 of 25 lines with ends": lines_with(25, 22, "{}"),
    "4 of 25 lines with ends": lines_with(25, 21, "{}"),
    "dialogue": "\n".join(f'"{line}" He said: "So it is with us and the mill, too"' for line in LINES),
    "2 of 25 lines with ends": lines_with(25, 23, "{}"),
    "2 of 3 lines short": "\n".join(["It is a short line by count.", "So is the second one of three.", ONE_LINE]),
    "3 of 4 lines short": "\n".join(["It is a short line.", "So is the second one.", "And so is the third.", ONE_LINE]),
    "a short line twice": PROSE + "\nRye and wheat.\nRye and wheat.",
    "a list": "\n".join(f"{w}." for w in dict.fromkeys(w for w in WORDS if len(w) > 3)),
    "urls": " ".join(f"https://mill.example.org/pictures/{w}.html" for w in WORDS[:40]) + " " + words(60),
    "digits": " ".join(f"rye{i * 7919 % 100_000:05}" for i in range(80)) + " the of",
    "parentheses": " ".join(f"({w.ljust(12, 'n')})" for w in WORDS[:90]),
    "spaced out": "   ".join(WORDS[:90]),
    "one very long word": PROSE + " " + "a" * 1001,
    "boilerplate at the end": "\n\n".join([*LINES, "Terms of use, privacy policy and cookie policy of the mill."]),
}  # fmt: skip

DOCUMENTS |= {f"two phrases of {n} words twice": phrases_twice(n, 0.207 - n / 100) for n in range(5, 11)}

EXPECTED: dict[str, dict[str, str | None]] = {
    "gopher-quality": {
        "prose": None,
        "empty": "word_count",
        "blank": "word_count",
        "one word": "word_count",
        "49 words": "word_count",
        "50 words": None,
        "100,000 words": None,
        "100,001 words": "word_count",
        "words of two letters": "mean_word_length",
        "words of eleven letters": "mean_word_length",
        "7 hashes for 60 words": "symbols_to_words",
        "6 hashes for 60 words": None,
        "7 ellipses for 60 words": "symbols_to_words",
        "10 of 10 lines bullets": "bullets",
        "9 of 10 lines bullets": None,
        "4 of 10 lines end in an ellipsis": "ellipsis",
        "3 of 10 lines end in an ellipsis": None,
        "60 words and 16 numbers": "words_with_letters",
        "60 words and 15 numbers": None,
        "no stop word": "stop_words",
        "one stop word, often": "stop_words",
        "Russian": "stop_words",
    },
    "gopher-repetition": {
        "prose": None,
        "prose, twice as long": "duplicate_5_grams",
        "4 of 10 lines twice": "duplicate_lines",
        "3 of 10 lines twice": None,
        "4 of 10 paragraphs twice": "duplicate_lines",
        "a long line twice": "duplicate_line_chars",
        "two words over and over": "top_2_gram",
        **{f"two phrases of {n} words twice": f"duplicate_{n}_grams" for n in range(5, 11)},
        "ten words over and over": "top_3_gram",
        "policy lines": "top_4_gram",
        "Russian": None,
    },
    "c4": {
        "prose": None,
        "empty": "sentences",
        "blank": "sentences",
        "lorem ipsum": "lorem_ipsum",
        "a curly bracket": "curly_bracket",
        "javascript lines": "sentences",
        "policy lines": "sentences",
        "headlines without ends": "sentences",
        "short lines with ends": "sentences",
        "2 long sentences": "sentences",
        "3 long sentences": None,
        "4 of 10 lines end in an ellipsis": None,
        "Russian": None,
        "windows lines": None,
    },
    "fineweb": {
        "prose": None,
        "empty": "line_punctuation",
        "blank": "line_punctuation",
        "dialogue": None,
        "4 of 25 lines with ends": None,
        "3 of 25 lines with ends": "line_punctuation",
        "2 of 25 lines with ends": "line_punctuation",
        "2 of 3 lines short": None,
        "3 of 4 lines short": "short_lines",
        "a short line twice": "duplicate_line_chars",
        "a list": "short_lines",
        "windows lines": None,
        "Russian": None,
        "Chinese": "line_punctuation",
    },
    "fineweb@1": {
        "prose": None,
        "dialogue": "line_punctuation",
        "empty": "line_punctuation",
        "blank": "line_punctuation",
        "3 of 25 lines with ends": None,
        "2 of 25 lines with ends": "line_punctuation",
        "2 of 3 lines short": None,
        "3 of 4 lines short": "short_lines",
        "a short line twice": "duplicate_line_chars",
        "a list": "short_lines",
        "windows lines": None,
        "Russian": None,
        "Chinese": "duplicate_line_chars",
    },
    "curator-english-heuristics": {
        "prose": None,
        "49 words": "word_count",
        "50 words": None,
        "digits": "numbers",
        "urls": "urls",
        "spaced out": "non_alpha_numeric",
        "parentheses": "parentheses",
        "one very long word": "long_word",
        "headlines without ends": "punctuation",
        "policy lines": "boilerplate",
        "boilerplate at the end": None,
        "4 of 10 lines twice": "duplicate_lines",
        "10 of 10 lines bullets": "bullets",
    },
}
