"""The check of language by characters, with alphabets from CLDR and with other histograms."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.kernels.texts import Texts
from gristmill.stages.text.filters.histogram import COMMON, PEERS_FOLDER, HistogramFilter, alphabet, alphabets

# The first article of the Universal Declaration of Human Rights.
ARTICLE = {
    "en": "All human beings are born free and equal in dignity and rights. They are endowed with reason.",
    "de": "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Sie sind mit Vernunft und Gewissen begabt.",
    "fr": "Tous les êtres humains naissent libres et égaux en dignité et en droits. Ils sont doués de raison.",
    "vi": "Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền.",
    "tr": "Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar. Akıl ve vicdana sahiptirler.",
    "ru": "Все люди рождаются свободными и равными в своем достоинстве и правах. Они наделены разумом и совестью.",
    "uk": "Всі люди народжуються вільними і рівними у своїй гідності та правах. Вони наділені розумом і совістю.",
    "el": "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα.",
    "he": "כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם. כולם חוננו בתבונה ובמצפון.",
    "ar": "يولد جميع الناس أحراراً متساوين في الكرامة والحقوق. وقد وهبوا عقلاً وضميراً.",
    "fa": "تمام افراد بشر آزاد به دنیا می‌آیند و از لحاظ حیثیت و حقوق با هم برابرند.",
    "hi": "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।",
    "bn": "সমস্ত মানুষ স্বাধীনভাবে সমান মর্যাদা এবং অধিকার নিয়ে জন্মগ্রহণ করে।",
    "ta": "மனிதப் பிறிவியினர் சகலரும் சுதந்திரமாகவே பிறக்கின்றனர்.",
    "th": "มนุษย์ทั้งปวงเกิดมามีอิสระและเสมอภาคกันในศักดิ์ศรีและสิทธิ",
    "ka": "ყველა ადამიანი იბადება თავისუფალი და თანასწორი თავისი ღირსებითა და უფლებებით.",
    "hy": "Բոլոր մարդիկ ծնվում են ազատ ու հավասար իրենց արժանապատվությամբ ու իրավունքներով։",
    "am": "የሰው ልጅ ሁሉ ሲወለድ ነጻና በክብርና በመብትም እኩልነት ያለው ነው።",
    "ko": "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.",
    "ja": "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。",
    "zh": "人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心，并应以兄弟关系的精神相对待。",
}
SCRIPT = {lang: "latin" for lang in ("en", "de", "fr", "vi", "tr")} | {lang: "cyrillic" for lang in ("ru", "uk")}
SCRIPT |= {lang: "arabic" for lang in ("ar", "fa")}


@pytest.mark.parametrize("lang", ARTICLE)
def test_a_language_keeps_its_own_text_and_drops_that_of_other_scripts(lang):
    one = HistogramFilter(lang)
    assert one.score_document(ARTICLE[lang]) > 0.97
    for other, text in ARTICLE.items():
        if SCRIPT.get(other, other) != SCRIPT.get(lang, lang):
            assert not one.keep_document(one.score_document(text)), other


def test_letters_that_a_language_does_not_have_lower_the_score():
    assert HistogramFilter("de").score_document("Würde") == 1.0
    assert HistogramFilter("en").score_document("Würde") == pytest.approx(0.8)
    assert HistogramFilter("uk").score_document("вільними") > HistogramFilter("ru").score_document("вільними")


@settings(deadline=None)
@given(st.lists(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=50), max_size=6))
def test_the_score_is_the_share_of_visible_characters_that_are_in_the_alphabet(texts):
    one = HistogramFilter("de")
    visible = [[char for char in text if not char.isspace()] for text in texts]
    expected = [sum(char in one.alphabet for char in text) / max(len(text), 1) for text in visible]
    assert one.score_batch(Texts.of(texts)).tolist() == pytest.approx(expected)


def test_space_buys_no_verdict():
    one = HistogramFilter("en")
    assert one.score_document("漢字" + " " * 1000) == 0
    assert one.score_batch(Texts.of(["", " \n\t", "\u3000"])).tolist() == [0, 0, 0]
    assert not one.keep_batch(np.array([0.0, 0.8])).any()
    assert one.keep_batch(np.array([0.81])).all()


def test_letters_that_are_written_in_two_parts_belong_to_the_language():
    assert HistogramFilter("de").score_document("Wu\u0308rde") == 1.0


def test_every_alphabet_of_the_table_can_be_read_and_has_letters():
    assert len(alphabets()) > 300
    for lang in alphabets():
        assert len(alphabet(lang) - set(COMMON)) > 10, lang


def test_languages_have_more_than_one_name():
    assert alphabet("tl") == alphabet("fil")
    assert alphabet("sr_Latn") == alphabet("sr-Latn") != alphabet("sr")


def test_an_unknown_language_is_an_error_with_near_names():
    with pytest.raises(ValueError, match=r"'sr-Latin' are not known\. Did you mean 'sr-Latn'"):
        HistogramFilter("sr-Latin")


@pytest.mark.parametrize("folder", ["", PEERS_FOLDER])
def test_other_histograms_are_read_down_to_the_threshold_character(tmp_path, folder):
    (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    (tmp_path / folder / "xx").write_bytes(b"  900\na 500\nb 300\n] 10\nz 5\n")
    one = HistogramFilter("xx", cache_dir=str(tmp_path))
    assert one.score_document("ab ba") == 1.0
    assert one.score_document("abz]") == 0.5
    assert HistogramFilter("xx", cache_dir=str(tmp_path), threshold_char="b").score_document("ab") == 0.5


def test_a_histogram_that_is_not_there_is_an_error_that_says_where_it_was_looked_for(tmp_path):
    with pytest.raises(FileNotFoundError, match=f"{tmp_path}/yy"):
        HistogramFilter("yy", cache_dir=str(tmp_path))


def test_a_filter_travels_without_its_table():
    one = HistogramFilter("en")
    one.preload()
    sent = pickle.dumps(one)
    assert len(sent) < 10_000
    assert pickle.loads(sent).score_document("Würde") == one.score_document("Würde")
