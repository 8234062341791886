"""Common words of languages in many scripts, out of which texts are made that no two of which are alike."""

from __future__ import annotations

SPACED = {
    "latin": "und das ist nicht ein haus am fluß über die straße geht der müller früh nach süden où la forêt été "
    "garçon niño mañana señor ação não coração żółty źródło łąka çalışma güneş öğretmen árbol corazón",
    "cyrillic": "вода мельница зерно мука камень колесо река поле ветер хлеб дорога дом человек время работа утро "
    "вечер город книга слово старый новый большой белый идти стоять говорить видеть можно тогда потом",
    "greek": "νερό μύλος σιτάρι αλεύρι πέτρα τροχός ποτάμι χωράφι άνεμος ψωμί δρόμος σπίτι άνθρωπος χρόνος δουλειά "
    "πρωί βράδυ πόλη βιβλίο λέξη παλιός νέος μεγάλος λευκός πηγαίνω μιλώ βλέπω τότε μετά",
    "arabic": "ماء طاحونة حبوب دقيق حجر عجلة نهر حقل ريح خبز طريق بيت إنسان وقت عمل صباح مساء مدينة كتاب كلمة قديم "
    "جديد كبير أبيض يذهب يتكلم يرى يمكن ثم بعد",
    "hebrew": "מים טחנה תבואה קמח אבן גלגל נהר שדה רוח לחם דרך בית אדם זמן עבודה בוקר ערב עיר ספר מילה ישן חדש גדול "
    "לבן הולך מדבר רואה אפשר אז אחר",
    "devanagari": "पानी चक्की अनाज आटा पत्थर पहिया नदी खेत हवा रोटी सड़क घर मनुष्य समय काम सुबह शाम शहर किताब शब्द पुराना "
    "नया बड़ा सफेद जाना बोलना देखना तब बाद फिर",
    "korean": "물이 방앗간은 곡식을 밀가루와 돌이 바퀴가 강물은 들판에 바람이 빵을 길에서 집으로 사람은 시간이 "
    "일을 아침에 저녁에 도시의 책을 말은 오래된 새로운 커다란 하얀 갑니다 말합니다 봅니다 그때 나중에",
    "emoji": "🌾 🌊 🍞 🏠 🚂 ⛰️ 🌬️ 🪨 ⚙️ 📚 👩‍🌾 🌅 🌙 🚲 🐎 🧺 🧂 🥖 🌻 🐓 🇩🇪 👍🏽 🛤️ 🔥 ❄️ mill bread wheel",
}
"""Words that stand between spaces."""

UNSPACED = {
    "chinese": "水 磨坊 谷物 面粉 石头 轮子 河流 田野 大风 面包 道路 房子 人们 时间 工作 早晨 晚上 城市 书本 词语 古老 "
    "新的 巨大 白色 走向 说话 看见 可以 然后 以后 因为 所以 我们 他们",
    "japanese": "水は 風車 穀物を 小麦粉 石の 車輪が 川で 畑に 風が パンを 道路 家から 人々は 時間 仕事を 朝に "
    "夕方 都市の 本を 言葉 古い 新しい 大きな 白い 行きます 話します 見ます できる それから",
    "thai": "น้ำ โรงสี ข้าว แป้ง หิน ล้อ แม่น้ำ ทุ่งนา ลม ขนมปัง ถนน บ้าน มนุษย์ เวลา งาน เช้า เย็น เมือง หนังสือ คำ เก่า ใหม่ ใหญ่ "
    "ขาว ไป พูด เห็น ได้ แล้ว หลังจาก",
}
"""Words that are written without spaces between them."""

ENDS = {"chinese": "。", "japanese": "。", "thai": " ", "devanagari": "।", "emoji": "\n"}
"""The end of a sentence, where it is not a full stop."""
SCRIPTS = (*SPACED, *UNSPACED)


def words_of(script: str) -> list[str]:
    return (SPACED.get(script) or UNSPACED[script]).split()


def space_of(script: str) -> str:
    return " " if script in SPACED else ""
