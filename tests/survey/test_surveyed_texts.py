"""Labels: counts, rare characters, and each kind of doubt with a clean twin; clean texts of many scripts."""

from __future__ import annotations

import json
import time
import tracemalloc
import unicodedata
from dataclasses import asdict

import numpy as np
import pytest

from ppocr_ext.data.issue_rules import RULES
from ppocr_ext.sources.samples import Sample
from ppocr_ext.survey import texts as survey_texts
from ppocr_ext.survey.texts import TextReport, TextSurvey, likely_wrong

ENGLISH = (
    "Please mind the gap",
    "Platform 12",
    "Exit Kx 5 AB",
    "don't!",
    "NO",
    "12:45",
    "Blue book, 3 pages",
)


def survey(*labels: str) -> TextReport:
    looked = TextSurvey()
    for line, label in enumerate(labels, 1):
        looked.add(Sample(f"img/{line}.jpg", label, f"labels.txt:{line}"))
    return looked.report()


def codes(*labels: str) -> set[str]:
    return {each.code for each in survey(*labels).findings}


TRAPS = {  # code -> pairs of a doubtful label and its clean twin
    "outer_space": [(" Way out", "Way out"), ("Way out ", "Way out"), (" ", "-")],
    "double_space": [("Way  out", "Way out")],
    "full_width_space": [("东京\u3000站", "东京 站")],
    "unusual_space": [("Way\tout", "Way out"), ("Way\xa0out", "Way out"), ("5\u2009km", "5 km")],
    "full_width": [("１２ pages", "12 pages"), ("Ｅxit", "Exit"), ("车牌Ａ", "车牌，！：")],
    "decomposed": [
        (unicodedata.normalize("NFD", label), unicodedata.normalize("NFC", label))
        for label in ("café", "Đường số", "한국어", "Ёлка", "が")
    ],
    "twin_character": [("\u212bngström", "Ångström"), ("ﬁnal", "final"), ("⼀二", "一二"), ("𝐀bc", "Abc")],
    "invisible": [
        *((f"Way{each}out", "Way out") for each in "\u200b\u200c\u202e\ufeff\x07\ud800\xad"),
        ("שלום\u200f", "שלום"),
    ],
    "wrong_encoding": [("cafÃ©", "café AMANHÃ ÂNGULO"), ("Way \ufffd", "Way ?"), ("itâ€™s", "it’s â")],
    "mixed_scripts": [
        ("NОTICE", "NOTICE"),  # О U+041E
        ("МОСКВA ждёт", "МОСКВА ждёт"),  # A U+0041
        ("ЕХIT 5", "EXIT 5"),
        ("ΑTHENS", "ΑΘΗΝΑ"),  # Α U+0391
        ("ΘΗBΑ", "kΩ μm Δt hν"),
        ("Tелефон", "USB-кабель, H2О 3D-принтер SMSка"),
    ],
    "look_alike_script": [("А123ВС77", "A123BC77"), ("ΝΟ", "NO")],
    "mixed_arabic": [("یکي", "یکی"), ("كتابک", "كتابك")],
    "presentation_forms": [("ﻼﻣﺎ", "لاما ﷼ ﴿١﴾"), ("\ufb2aלום", "ש\u05c1לום")],
    "reversed_hebrew": [("םולש", "שלום"), ("םילשורי ריע", "עיר ירושלים"), ("ןֹאצ", 'צֹאן תנ"ך תנ״ך ך')],
    "reversed_arabic": [("ةسردم", "مدرسة"), ("ىلع", "على ة ى")],
    "illegible": [("###", "#1 #"), ("*", "3*4"), ("???", "Who?"), ("Illegible", "legible"), ("<unk>", "unk")],
}


@pytest.mark.parametrize(("code", "doubtful", "clean"), [(c, *pair) for c in TRAPS for pair in TRAPS[c]])
def test_each_trap_is_named_and_its_clean_twin_is_not(code: str, doubtful: str, clean: str) -> None:
    usual = (*ENGLISH, "שלום עולם", "ירושלים", "المدينة الكبيرة")  # in logical order
    report = survey(*usual, doubtful)
    assert [each.code for each in report.findings] == [code]
    finding = report.findings[0]
    assert (finding.count, finding.share) == (1, 1 / (len(usual) + 1))
    assert finding.examples[0][0] == f"labels.txt:{len(usual) + 1}"
    assert finding.examples[0][1].isprintable()
    assert codes(*usual, clean) == set()


def test_every_rule_has_a_trap() -> None:
    assert {code for code, rule in RULES.items() if rule.character is not None} == TRAPS.keys()


def test_what_is_clean_alone() -> None:
    assert codes("ىستىق", "سۋ ۇلكەن") == codes("انګلیسي", "ولیکي") == set()  # Kazakh and Pashto
    assert codes("１２", "３４") == set()
    assert codes("А123ВС77", "МОСКВА") == set()


CLEAN = {
    "arabic": (
        "ذهب أحمد إلى المدرسة في الصباح الباكر، وقرأ كتابًا عن تاريخ المدينة القديمة.",
        "قالت المعلّمة: «من جدّ وجد، ومن زرع حصد»، ثم عاد إلى البيت مساءً ومعه هديّة صغيرة لأخته فاطمة.",
        "هل رأيتَ القمرَ على الشاطئ؟ العنوان: شارع ١٢، الطابق ٣، مستشفى السلام (PDF 25).",
        "بِسْمِ اللَّهِ الرَّحْمَٰنِ الرَّحِيمِ ﴿١﴾ الْحَمْدُ لِلَّهِ رَبِّ الْعَالَمِينَ",
        "أهلاً وسهلاً بكم، لا بأس عليكم إن شاء الله؛ المحـــطة التالية: ساحة الشهداء.",
    ),
    "persian": (
        "من می‌خواهم به کتاب‌خانهٔ شهر بروم، چون کتاب‌های تازه‌ای رسیده‌اند و دوستانم آن‌جا هستند.",
        "آیا شما نان‌وایی و میوه‌فروشی را می‌شناسید؟ بله، خیابان آزادی، پلاک ۱۲۳، طبقهٔ سوم.",
        "قیمت این کالا ۴۵٬۰۰۰ ﷼ است و «خانه‌ی ما» نزدیکِ ایستگاه مترو است؛ پنج‌شنبه‌ها نمی‌آیند.",
    ),
    "hebrew": (
        "שלום לכולם, היום נלך אל בית־הספר הישן ונקרא ספרים על ארץ ישראל ועל תולדות העם.",
        "בצה״ל, בתנ\"ך ובארה״ב: ג'ירפה, צ׳יפס ו-20 אנשים; מנכ״לית החברה אמרה שאין זמן לחכות.",
        "בְּרֵאשִׁית בָּרָא אֱלֹהִים אֵת הַשָּׁמַיִם וְאֵת הָאָרֶץ׃ וַיֹּאמֶר אֱלֹהִים יְהִי־אוֹר וַיְהִי־אוֹר׃",
        "אי־אפשר לדעת אם הרכבת לתל־אביב תצא בזמן; סוף־סוף הגיע קיץ (WiFi 5G).",
    ),
    "others": (
        "Съешь же ещё этих мягких французских булок, да выпей чаю. Чай 5 кг № 3, ул. Мира, Wi-Fi",
        "Київ, Україна: їжак і ґанок. Ђорђе и Љубица једу ћевапе. Ωραία η θάλασσα στην Ελλάδα!",
        "東京タワーへ行きました。ｱﾊﾟｰﾄ 5㎡ ①、Suicaカード「ＯＫ」。中文，ABC公司！价格：¥５",
        "서울역 KTX 3번 출구 ㅋㅋ. नमस्ते दुनिया, क्षमा करें पढ़ाई. น้ำดื่มสะอาด 10 บาท. Tiếng Việt rất đẹp",
        "L’été, naïf; Größe 5 µm ± 0.5 Ω; ½ ™ … « oui » – 10 €. සිංහල ක්‍ෂ. 👩‍💻 ❤️ மொழி ೫ ភាសា\u200bខ្មែរ",
    ),
}


@pytest.mark.parametrize("script", CLEAN)
def test_clean_texts_give_no_warning(script: str) -> None:
    sentences = CLEAN[script]
    words = [word for sentence in sentences for word in sentence.split()]
    assert len(words) >= 30
    report = survey(*sentences, *words)
    full = {"full_width"} if script == "others" else set()  # ５ and Ａ stand beside 5 and A there
    assert {each.code for each in report.findings} - {"repeated_line"} == full


@pytest.mark.parametrize(("script", "code"), [("hebrew", "reversed_hebrew"), ("arabic", "reversed_arabic")])
def test_reversed_sentences_are_named_unless_all_are_reversed(script: str, code: str) -> None:
    turned = [sentence[::-1] for sentence in CLEAN[script]]
    found = survey(turned[-1], *CLEAN[script] * 2)
    assert (code in {each.code for each in found.findings}, found.order) == (True, "logical")
    found = survey(*turned)
    assert (code in {each.code for each in found.findings}, found.order) == (False, "visual")
    assert survey(*ENGLISH).order == ""


def test_counts_lengths_and_rarest() -> None:
    report = survey(*["ab"] * 17, "a", "abc", "Żab" + "b" * 20)
    assert (report.samples, report.single, report.longest) == (20, 1, (23, "labels.txt:20"))
    assert tuple(report.lengths) == (1, 2, 3)
    assert list(report.characters.items()) == [("b", 39), ("a", 20), ("c", 1), ("Ż", 1)]
    assert report.rarest[:2] == (("c", 1, "labels.txt:19"), ("Ż", 1, "labels.txt:20"))
    assert json.loads(json.dumps(asdict(report)))["characters"]["c"] == 1
    assert (survey().samples, survey("").samples) == (0, 1)


def test_images_with_two_texts_and_groups_in_two_splits() -> None:
    looked = TextSurvey()
    box = ((0.0, 0.0), (9.0, 0.0), (9.0, 5.0), (0.0, 5.0))
    rows = [
        Sample("a.jpg", "one", "l:1", "train", "page1"),
        Sample("a.jpg", "two", "l:2", "train", "page1"),
        Sample("a.jpg", "six", "l:3", "train", "page1", box),  # another part of the page
        Sample("b.jpg", "one", "l:4", "val", "page1"),
        Sample("c.jpg", "one", "l:5", "val", "page2"),
        Sample("c.jpg", "one", "l:6", "val", "page2"),
        Sample("d.jpg", "one", "l:7", "", "page1"),
    ]
    for row in rows:
        looked.add(row)
    places = {each.code: [place for place, _ in each.examples] for each in looked.report().findings}
    assert places == {"other_text": ["l:2"], "repeated_line": ["l:6"], "group_in_splits": ["l:4"]}


def test_memory_does_not_grow_with_the_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey_texts, "_REMEMBERED", 1000)
    looked = TextSurvey()
    tracemalloc.start()
    sizes = []
    for line in range(40_000):
        looked.add(Sample(f"{line}.jpg", f" {line}", f"l:{line}", "train", f"group {line}"))
        if line % 10_000 == 9_999:
            sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert sizes[-1] - sizes[0] < 50_000 and sizes[-1] < 1_000_000


def test_plain_labels_are_fast() -> None:
    rows = [Sample(f"{line}.jpg", f"AB {line:06d}", f"l:{line}") for line in range(50_000)]
    looked = TextSurvey()
    begin = time.process_time()
    for row in rows:
        looked.add(row)
    assert (time.process_time() - begin) / len(rows) < 30e-6  # 3 µs on a free core


def ctc_loss(log_probabilities: np.ndarray, label: np.ndarray) -> float:
    """The CTC loss of one label by its definition: [T, C], class 0 is the blank."""
    states = np.zeros(2 * len(label) + 1, int)
    states[1::2] = label
    skips = np.append([False, False], (states[2:] != 0) & (states[2:] != states[:-2]))
    alpha = np.full(len(states), -np.inf)
    alpha[:2] = log_probabilities[0, states[:2]]
    for row in log_probabilities[1:]:
        one, two = np.append(-np.inf, alpha[:-1]), np.append([-np.inf] * 2, alpha[:-2])[: len(alpha)]
        alpha = np.logaddexp(np.logaddexp(alpha, one), np.where(skips, two, -np.inf)) + row[states]
    return -float(np.logaddexp(alpha[-1], alpha[-2]))


@pytest.mark.parametrize("kind", ["swapped", "character"])
@pytest.mark.parametrize("margin", [8, 7])  # 97 % and 81 % of the labels are read correctly
def test_wrong_labels_come_first(kind: str, margin: float) -> None:
    """Of 3 % wrong labels, swapped or with one wrong character, at least 80 % are in the first 8 %.

    With one wrong character that is so where the network reads well; elsewhere the order beats the plain ones.
    """
    generator = np.random.default_rng(1)
    count, classes, frames = 300, 30, 75
    labels = [generator.integers(1, classes, generator.choice([2, 4, 7, 7, 12, 25])) for _ in range(count)]
    written = [label.copy() for label in labels]
    wrong = generator.choice(count, count * 3 // 100, replace=False)
    for at, other in zip(wrong, np.roll(wrong, 1), strict=True):
        if kind == "swapped":
            written[at] = labels[other]
        else:
            place = generator.integers(len(written[at]))
            written[at][place] = written[at][place] % (classes - 1) + 1
    losses = []
    for label, text in zip(labels, written, strict=True):
        target = np.zeros(frames, int)
        target[np.sort(generator.choice(frames // 3, len(label), replace=False)) * 3] = label
        clear = generator.normal(generator.normal(margin, 9 - margin), 9 - margin, frames)
        logits = generator.normal(0, 1, (frames, classes))
        logits[np.arange(frames), target] += np.where(target == 0, margin + 3, clear)
        losses.append(ctc_loss(logits - np.log(np.exp(logits).sum(1, keepdims=True)), text))
    lengths = [len(text) for text in written]

    def share(order: np.ndarray) -> float:
        return float(np.isin(wrong, order[: count * 8 // 100]).mean())

    ours = share(likely_wrong(losses, lengths))
    assert ours >= max(share(np.argsort(-np.array(losses))), share(np.argsort(-np.array(losses) / lengths)))
    assert ours >= 0.8 or (kind, margin) == ("character", 7)


def test_losses_that_are_no_numbers() -> None:
    assert likely_wrong([1.0, float("nan"), float("inf"), 5.0], [1, 1, 1, 0]).tolist() == [2, 3, 0, 1]
    assert likely_wrong([], []).tolist() == []


@pytest.mark.parametrize(("texts", "codes"), [(["same"] * 3, ["one_text"]), (["same", "same", "other"], [])])
def test_one_text_for_all_images_is_named(texts: list[str], codes: list[str]) -> None:
    survey = TextSurvey()
    for number, text in enumerate(texts):
        survey.add(Sample(f"{number}.png", text, f"list.txt:{number}"))
    assert [finding.code for finding in survey.report().findings] == codes
