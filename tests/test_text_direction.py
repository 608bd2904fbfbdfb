"""Texts of right-to-left scripts in the order of the image and as they are read."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from ppocr_ext.charset import Charset
from ppocr_ext.recognition.images import ImageList, ListedImage
from ppocr_ext.text_direction import (
    LEFT_TO_RIGHT,
    LOGICAL,
    RIGHT_TO_LEFT,
    RIGHT_TO_LEFT_VISUAL,
    VISUAL,
    client_direction,
    default_direction,
    is_right_to_left,
    order_of,
    order_votes,
    turned,
)

# as they are read -> from the left of the image to its right, by python-bidi 0.6.12, with which the clients turn texts
IMAGES = {
    "مدرسة": "ةسردم",
    "عام 2020": "2020 ماع",
    "من 10 إلى 20": "20 ىلإ 10 نم",
    "شارع الملك فهد 15": "15 دهف كلملا عراش",
    "هاتف: 0123 456 789": "789 456 0123 :فتاه",
    "نسخة PaddleOCR 3.7 الجديدة": "ةديدجلا PaddleOCR 3.7 ةخسن",
    "هاتف iPhone 15": "iPhone 15 فتاه",
    "القاهرة (مصر)": "(رصم) ةرهاقلا",
    "عام ٢٠٢٠": "٢٠٢٠ ماع",
    "السعر ٥٠٫٥ ريال": "لاير ٥٠٫٥ رعسلا",
    "تاريخ 2020/10/05": "2020/10/05 خيرات",
    "نسبة 50%": "%50 ةبسن",
    "البريد info@example.com": "info@example.com ديربلا",
    "«مرحبا»": "«ابحرم»",
    "כתובת": "תבותכ",
    "שלום עולם": "םלוע םולש",
    "שנת 2020": "2020 תנש",
    "50% הנחה": "החנה 50%",
    "רחוב הרצל 15 (תל אביב)": "(ביבא לת) 15 לצרה בוחר",
    "טלפון 03-1234567": "03-1234567 ןופלט",
    'צה"ל': 'ל"הצ',
    "خیابان ۱۵ متری": "یرتم ۱۵ نابایخ",
    "abc (12 34)": "abc (12 34)",
    "12 34": "12 34",
}


@pytest.mark.parametrize(("text", "image"), IMAGES.items())
def test_a_text_is_turned_as_unicode_orders_it(text: str, image: str) -> None:
    assert turned(text) == image
    assert turned(image) == text


def test_to_turn_twice_changes_nothing_and_the_frames_of_a_label_stay() -> None:
    draw = np.random.default_rng(3)
    letters = list("\u05d0\u05d1\u0633\u0644\u0645abc12\u0663 .,%()-:$")
    for _ in range(3000):
        text = "".join(draw.choice(letters, draw.integers(0, 10)))
        other = turned(text)
        assert turned(other) == text
        assert sum(map(str.__eq__, other, other[1:])) == sum(map(str.__eq__, text, text[1:]))


@pytest.mark.parametrize(
    ("direction", "label", "compared"),
    [
        (LEFT_TO_RIGHT, "image", "image"),
        (RIGHT_TO_LEFT, "text", "text"),
        (RIGHT_TO_LEFT_VISUAL, "image", "text"),
    ],
)
def test_a_label_is_encoded_in_the_order_of_the_image(direction: str, label: str, compared: str) -> None:
    for text, image in IMAGES.items():
        forms = {"text": text, "image": image}
        charset = Charset(tuple(sorted({*text})), direction=direction)
        assert charset.in_image_order(forms[label]) == image
        assert charset.label_to_compare(forms[label]) == forms[compared]
        assert "".join(symbol for _, symbol in charset.as_read(image)) == forms[compared]


def test_labels_are_compared_as_they_are_encoded() -> None:
    assert Charset.default().label_to_compare("aBC1") == "abc1"
    assert Charset(tuple("abc"), drops_unknown=True).label_to_compare("axbY") == "ab"
    assert Charset(tuple("abc")).label_to_compare("axbY") == "axbY"


def test_the_direction_follows_from_what_is_written() -> None:
    assert default_direction("ppocr/utils/dict/arabic_dict.txt") == RIGHT_TO_LEFT_VISUAL
    assert [default_direction(name) for name in ("dict.txt", "", None)] == [LEFT_TO_RIGHT] * 3
    names = ("arabic_PP-OCRv5_mobile_rec", "arabic_PP-OCRv3_mobile_rec", "PP-OCRv5_mobile_rec", None)
    assert [client_direction(name) for name in names] == [RIGHT_TO_LEFT] * 2 + [LEFT_TO_RIGHT] * 2


def test_labels_are_compared_in_the_order_that_their_words_show() -> None:
    for stored in (str, turned):
        files = [ListedImage(text, Path(text), stored(text)) for text in IMAGES]
        for direction in (RIGHT_TO_LEFT, RIGHT_TO_LEFT_VISUAL):
            found = ImageList(files, []).with_labels(
                Charset(tuple(map(chr, range(1800))), direction=direction)
            )
            assert [each.label for each in found.images] == [*IMAGES]
    weak = ListedImage("", Path(), "\u0634\u0645\u0633 12")  # no letter of it shows the order
    charset = Charset(tuple(weak.label or ""), direction=client_direction("arabic_PP-OCRv5_mobile_rec"))
    assert ImageList([weak], []).with_labels(charset).images == [weak]


def test_a_mark_of_direction_is_no_letter() -> None:
    for mark in "\u200f\u061c\u202b\u2067\u2003":
        assert not is_right_to_left([f"A 12 {mark}"])
        assert turned(f"A 12 {mark}") == f"A 12 {mark}"


@pytest.mark.parametrize(
    "text",
    [
        "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd",
        "\u0627\u0644\u0645\u062f\u0631\u0633\u0629",
        "\u0641\u064a \u0627\u0644\u0628\u064a\u062a 12",
    ],
)
def test_letters_show_the_order_of_labels(text: str) -> None:
    assert order_of(Counter(order_votes(text))) == LOGICAL
    assert order_of(Counter(order_votes(turned(text)))) == VISUAL
    assert order_of(Counter(order_votes(text + " " + turned(text)))) == ""
    assert order_of(Counter(order_votes("abc 12"))) == ""
