"""Images in which nothing can be read are found in a sample of the data; those beside them are not named."""

from __future__ import annotations

from pathlib import Path

import cv2
import lmdb
import numpy as np
import pytest

from ppocr_ext.charset import Charset
from ppocr_ext.data.image_check import unseen_issue
from ppocr_ext.data.issue_rules import RULES
from ppocr_ext.data.preflight import (
    LOOKED_AT,
    SpreadSample,
    check_label_files,
    check_lmdbs,
)
from ppocr_ext.data.sample_rules import SampleIssue, SampleRules
from ppocr_ext.io.image_pixels import decode_image

USABLE = SampleRules(Charset(tuple("0123456789")), 25)


def text(height: int = 32, width: int = 96, dark: int = 0, light: int = 255) -> np.ndarray:
    """Digits on a plain background: [height, width]."""
    image = np.full((32, 96), light, np.uint8)
    cv2.putText(image, "1234", (4, 25), cv2.FONT_HERSHEY_SIMPLEX, 0.9, dark, 2)
    return cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA)


def png(image: np.ndarray) -> bytes:
    return bytes(cv2.imencode(".png", image)[1])


def issue_of(image: np.ndarray, label: str) -> SampleIssue | None:
    return unseen_issue(decode_image(png(image)), png(image), label)


def transparent(background: int) -> np.ndarray:
    """Black digits whose background is transparent and has the colour ``background``."""
    alpha = 255 - text()
    return np.dstack([np.where(alpha > 0, 0, background).astype(np.uint8)] * 3 + [alpha])


UNSEEN = {
    "one colour": (np.full((32, 96), 200, np.uint8), "flat_image", "one colour"),
    "faint": (text(dark=120, light=125), "flat_image", "contrast of 5"),
    "black on transparent": (transparent(0), "flat_image", "transparency"),
    "16 bits, small values": (text().astype(np.uint16), "flat_image", "255 of 65,535"),
    "1×300": (text(1, 300), "tiny_image", "300×1"),
    "300×1": (text(300, 1), "tiny_image", "1×300"),
    "two rows": (np.vstack([text(24), text(40, dark=90)]), "two_rows", "96×64"),
    "vertical": (np.ascontiguousarray(np.rot90(text())), "tall_image", "32×96"),
}
SEEN = {
    "plain": text(),
    "light on dark": 255 - text(),
    "pale": text(dark=200, light=240),
    "black on transparent white": transparent(255),
    "16 bits": text().astype(np.uint16) * 257,
    "square": text(48, 48),
    "small": text(12, 40),
}


@pytest.mark.parametrize("name", UNSEEN)
def test_what_cannot_be_seen_is_named(name: str) -> None:
    image, reason, detail = UNSEEN[name]
    issue = issue_of(image, "1234")
    assert issue is not None and issue.reason == reason and detail in issue.detail
    assert RULES[reason].what and RULES[reason].fix


@pytest.mark.parametrize("name", SEEN)
def test_what_can_be_seen_is_not_named(name: str) -> None:
    assert issue_of(SEEN[name], "1234") is None


def test_a_squeezed_word_is_no_vertical_text() -> None:
    squeezed = text(64, 40)
    assert issue_of(squeezed, "INTERNATIONAL") is None
    assert issue_of(np.ascontiguousarray(np.rot90(text(32, 260))), "INTERNATIONAL") is not None


@pytest.mark.parametrize("count", [1, 9, 10, 11, 1000, 4096])
def test_a_sample_is_spread_evenly(count: int) -> None:
    sample = SpreadSample(10)
    for number in range(count):
        sample.add([number])
    steps = set(np.diff(sample.items))
    assert sample.items[0] == 0 and len(steps) <= 1
    assert min(count, 5) <= len(sample.items) <= 10
    assert count - sample.items[-1] <= max(steps, default=1)


def test_preflight_looks_at_images_of_every_file(tmp_path: Path) -> None:
    good, bad = png(text()), png(UNSEEN["faint"][0])
    (tmp_path / "good.png").write_bytes(good)
    (tmp_path / "bad.png").write_bytes(bad)
    first, second = tmp_path / "first.txt", tmp_path / "second.txt"
    first.write_text("good.png\t1234\n" * 300)
    second.write_text("good.png\t1234\nno.png\t1\n" * 50 + "bad.png\t1234\n" * 100)
    report = check_label_files([first, second], tmp_path, USABLE)
    assert report.usable == 450 and LOOKED_AT / 2 <= report.looked_at <= LOOKED_AT
    assert {(sample.file, sample.reason) for sample in report.unseen} == {(second, "flat_image")}
    share = len(report.unseen) / report.looked_at
    assert share == pytest.approx(100 / 450, abs=0.02)
    folder = tmp_path / "lmdb"
    with lmdb.open(str(folder), map_size=1 << 22) as environment, environment.begin(write=True) as put:
        for number, image in enumerate((good, bad, good), start=1):
            put.put(b"label-%09d" % number, b"1234")
            put.put(b"image-%09d" % number, image)
        put.put(b"num-samples", b"3")
    report = check_lmdbs(folder, USABLE)
    assert report.looked_at == 3
    assert [(sample.line, sample.reason) for sample in report.unseen] == [(2, "flat_image")]
