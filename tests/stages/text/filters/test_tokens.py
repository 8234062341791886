"""Filters by tokens, with tokenizers that are trained in the tests."""

import math
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("tokenizers")

from gristmill.kernels.texts import Texts
from gristmill.stages.text.filters import tokens
from gristmill.stages.text.filters.tokens import TokenCounter, TokenCountFilter, TokenizerFertilityFilter

PROSE = [
    "The mill grinds the grain, and the miller sweeps the floor.",
    "A stone turns upon a stone; between them flour is made.",
    "Water drives the wheel, the wheel drives the stone.",
]


@pytest.fixture(scope="module")
def trained():
    """A byte-level BPE that puts a mark before and one after what it encodes."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=["[A]", "[Z]"], initial_alphabet=alphabet)
    tokenizer.train_from_iterator(PROSE * 20, trainer)
    tokenizer.post_processor = processors.TemplateProcessing("[A] $0 [Z]", special_tokens=[("[A]", 0), ("[Z]", 1)])
    return tokenizer


@pytest.fixture(scope="module")
def path(trained, tmp_path_factory):
    where = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    trained.save(str(where))
    return str(where)


def test_counts_are_those_of_the_tokenizer_one_by_one(trained, path):
    texts = [*PROSE, "", " ", "漢字 and émigré", "x" * 500]
    expected = [len(trained.encode(text).ids) for text in texts]
    for given in (path, os.path.dirname(path), trained):
        assert TokenCountFilter(given).score_batch(Texts.of(texts)).tolist() == expected
    bare = TokenCountFilter(path, special_tokens=False)
    assert bare.score_batch(Texts.of(texts)).tolist() == [count - 2 for count in expected]


def test_bounds_are_kept_and_reasons_say_which(path):
    one = TokenCountFilter(path, min_tokens=3, max_tokens=10)
    assert one.keep_batch(np.array([2, 3, 10, 11])).tolist() == [False, True, True, False]
    assert one.reasons(np.array([2, 11])) == ["too few tokens", "too many tokens"]
    assert TokenCountFilter(path).keep_batch(np.array([0, 10**12])).all()
    assert "3 to 10" in one.rule()


def test_truncation_and_padding_that_a_tokenizer_asks_for_do_not_change_counts(trained, path, tmp_path):
    from tokenizers import Tokenizer

    cutting = Tokenizer.from_file(path)
    cutting.enable_truncation(4)
    cutting.enable_padding(length=100, pad_id=0, pad_token="[A]")
    cutting.save(str(tmp_path / "tokenizer.json"))
    expected = [len(trained.encode(text).ids) for text in PROSE]
    assert TokenCountFilter(str(tmp_path)).score_batch(Texts.of(PROSE)).tolist() == expected
    assert TokenCountFilter(cutting).score_batch(Texts.of(PROSE)).tolist() == expected
    assert cutting.truncation is not None  # the user's own is left as it was


def test_fertility_is_characters_to_the_token(trained, path):
    one = TokenizerFertilityFilter(path)
    texts = [PROSE[0], "漢字漢字", "", " "]
    bare = [len(trained.encode(text, add_special_tokens=False).ids) for text in texts]
    expected = [len(text) / count if count else -1 for text, count in zip(texts, bare, strict=True)]
    assert one.score_batch(Texts.of(texts)).tolist() == pytest.approx(expected)
    assert one.keep_batch(np.array([2.5, 2.49, -1])).tolist() == [True, False, False]
    assert one.reasons(np.array([2.4, -1.0])) == ["too few characters to the token", "no tokens"]


def test_any_object_with_encode_will_do():
    class Words:
        def encode(self, text):
            return ["<s>", *text.split()]

    assert TokenCountFilter(Words()).score_batch(Texts.of(["a b c", ""])).tolist() == [4, 1]
    assert TokenizerFertilityFilter(Words()).score_batch(Texts.of(["abc de", ""])).tolist() == [3.0, -1.0]


def test_long_documents_are_counted_in_pieces_cut_at_line_ends(trained, path, monkeypatch):
    text = "\n".join(PROSE * 10)
    whole = len(trained.encode(text, add_special_tokens=False).ids)
    counter = TokenCounter(path, special_tokens=False)
    asked = []
    encode, special = counter._load()
    counter._loaded = (lambda pieces: asked.append(sum(map(len, pieces))) or encode(pieces), special)
    monkeypatch.setattr(tokens, "PART", 200)
    assert counter.count([text, PROSE[0]])[0] == pytest.approx(whole, abs=2 * len(text) / 200)
    assert max(asked) <= 200 and sum(asked) == len(text) + len(PROSE[0])


def test_pieces_put_together_are_the_text(monkeypatch):
    monkeypatch.setattr(tokens, "PART", 7)
    for text in (
        "",
        "a",
        "abcdefghijklmnop",
        "a b c d e f g h i j",
        "\n" * 30,
        " " * 30,
        "ab\ncd ef\n\nghijklmnopqrs t",
    ):
        pieces = list(tokens._split(text))
        assert "".join(pieces) == text
        assert all(len(piece) <= 7 for piece in pieces)
    assert list(tokens._split("ab\ncd ef gh")) == ["ab\n", "cd ef", " gh"]


def test_a_filter_travels_by_the_name_of_its_tokenizer(path):
    one = TokenCountFilter(path, min_tokens=1)
    one.preload()
    sent = pickle.dumps(one)
    assert len(sent) < 1000
    assert pickle.loads(sent).score_document(PROSE[0]) == one.score_document(PROSE[0])


def test_a_process_that_forks_after_preload_counts_without_threads_and_without_hanging(path):
    program = f"""
import os
from gristmill.kernels.texts import Texts
from gristmill.stages.text.filters.tokens import TokenCountFilter
one = TokenCountFilter({path!r})
one.preload()
texts = Texts.of({PROSE!r} * 50)
expected = one.score_batch(texts).tolist()
child = os.fork()
if child == 0:
    one.setup()
    os._exit(0 if one.score_batch(texts).tolist() == expected else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert os.environ["TOKENIZERS_PARALLELISM"] == "false"
"""
    environment = {key: value for key, value in os.environ.items() if key != "TOKENIZERS_PARALLELISM"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "parallelism" not in done.stderr


def test_errors_of_a_tokenizer_are_raised_when_the_filter_is_made(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no tokenizer at .*missing/tokenizer\.json"):
        TokenCountFilter(str(tmp_path / "missing" / "tokenizer.json"))
    with pytest.raises(FileNotFoundError, match=r"holds no tokenizer\.json"):
        TokenCountFilter(str(tmp_path))
    with pytest.raises(TypeError, match="no method 'encode'"):
        TokenCountFilter(42)
    with pytest.raises(ValueError, match="above max_tokens"):
        TokenCountFilter(PROSE, min_tokens=2, max_tokens=1)


def test_a_file_that_is_no_tokenizer_is_named(tmp_path):
    bad = tmp_path / "tokenizer.json"
    bad.write_text("{}", encoding="utf-8")
    with pytest.raises(ValueError, match=r"tokenizer\.json is not a tokenizer\.json"):
        TokenCountFilter(str(bad)).preload()


def test_an_encoding_of_tiktoken_is_taken_by_name_if_tiktoken_knows_it():
    if pytest.importorskip("tiktoken", reason="tiktoken is not installed"):
        with pytest.raises(ValueError, match="neither a file nor an encoding of tiktoken"):
            TokenCountFilter("no_such_encoding").preload()


def test_without_tiktoken_a_name_is_an_error_that_names_it():
    try:
        import tiktoken  # noqa: F401  # whether it is there is the question
    except ImportError:
        with pytest.raises(FileNotFoundError, match="pip install tiktoken"):
            TokenCountFilter("cl100k_base")


def test_texts_that_spell_out_special_tokens_are_text_to_tiktoken():
    tiktoken = pytest.importorskip("tiktoken", reason="tiktoken is not installed")
    ranks = {bytes([byte]): byte for byte in range(256)}
    bytewise = tiktoken.Encoding("bytes", pat_str=r"\w+|\W+", mergeable_ranks=ranks, special_tokens={"<|end|>": 256})
    assert TokenCountFilter(bytewise).score_document("a<|end|>") == 8


def test_the_default_has_no_upper_bound(path):
    assert TokenCountFilter(path).most == math.inf
