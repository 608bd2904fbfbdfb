"""Images: unusable ones by reason, sizes, depth, exact and near copies within and across splits."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import cv2
import lmdb
import numpy as np
import pytest

from ppocr_ext.sources.samples import Sample
from ppocr_ext.survey.images import ImageReader, ImageReport, survey_images

FONTS = (cv2.FONT_HERSHEY_SIMPLEX, cv2.FONT_HERSHEY_DUPLEX, cv2.FONT_HERSHEY_TRIPLEX)


def draw(text: str, height: int = 40, seed: int = 0, font: int = FONTS[0], tilt: float = 0.0) -> np.ndarray:
    """A text line on a photo-like ground: brightness, blur and noise depend on the seed."""
    generator = np.random.default_rng(seed)
    (width, _), below = cv2.getTextSize(text, font, 1, 2)
    page = np.full((48, width + 12, 3), generator.integers(150, 240), np.uint8)
    left = int(generator.integers(2, 9))
    cv2.putText(page, text, (left, 42 - below), font, 1, (30, 30, 60), 2, cv2.LINE_AA)
    turned = cv2.warpAffine(
        page, np.float32([[1, tilt, 0], [0, 1, 0]]), page.shape[1::-1], borderMode=cv2.BORDER_REPLICATE
    )
    noisy = cv2.GaussianBlur(turned, (3, 3), 0) + generator.normal(0, 3, page.shape)
    line = np.clip(noisy, 0, 255).astype(np.uint8)
    return cv2.resize(line, (round(line.shape[1] * height / 48), height), interpolation=cv2.INTER_AREA)


class Folder:
    """A data folder that grows by one image and sample at a time."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.samples: list[Sample] = []

    def add(self, name: str, text: str, pixels: np.ndarray, split: str = "", quality: int = 90) -> None:
        cv2.imwrite(str(self.root / name), pixels, [cv2.IMWRITE_JPEG_QUALITY, quality])
        self.samples.append(Sample(name, text, f"labels.txt:{len(self.samples) + 1}", split))

    def survey(self, **options: int) -> ImageReport:
        return survey_images(self.samples, len(self.samples), ImageReader(self.root), **options)


def plate(number: int) -> str:
    return f"{'ABCDEFGH'[number % 8]}{'KLMNP'[number % 5]} {1000 + number}"


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Forty plates in one font, which differ in one or more digits."""
    made = Folder(tmp_path)
    for number in range(40):
        split = "val" if number % 10 == 9 else "train"
        made.add(f"{number}.png", plate(number), draw(plate(number), seed=number), split)
    return made


def test_two_rows_in_an_image_are_named_if_a_tenth_has_them(folder: Folder) -> None:
    for number in range(8):
        if number == 4:
            assert "two_rows" not in found(folder.survey())
        rows = [draw(f"{number}{letter} 123", 24, number) for letter in "AB"]
        width = min(row.shape[1] for row in rows)
        folder.add(
            f"two{number}.png", f"{number}A 123{number}B 123", np.vstack([row[:, :width] for row in rows])
        )
    assert found(folder.survey())["two_rows"] == 8


def found(report: ImageReport) -> dict[str, int]:
    return {each.code: each.count for each in report.findings}


def test_different_plates_and_words_of_one_font_are_clean(folder: Folder) -> None:
    words = [start + end for start in ("st", "sh", "sl", "cl", "fl") for end in ("op", "ip", "ap")]
    for number, word in enumerate(words):
        folder.add(f"word{number}.png", word, draw(word, seed=number), "val" if number % 2 else "train")
    for number in range(9):  # the same word: taken anew in other fonts, turned
        line = draw("Exit 5", 36 + number, number, FONTS[number % 3], (number - 4) / 12)
        folder.add(f"exit{number}.png", "Exit 5", line, "val" if number % 2 else "train")
    report = folder.survey()
    assert (found(report), report.copies) == ({}, {})
    assert report.looked_at == report.usable == 40 + len(words) + 9


CHANGES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "encoded": lambda pixels: pixels,
    "smaller": lambda pixels: cv2.resize(pixels, None, fx=0.85, fy=0.85, interpolation=cv2.INTER_AREA),
    "larger": lambda pixels: cv2.resize(pixels, None, fx=1.2, fy=1.2, interpolation=cv2.INTER_LINEAR),
    "lighter": lambda pixels: cv2.convertScaleAbs(pixels, alpha=1, beta=15),
    "darker": lambda pixels: cv2.convertScaleAbs(pixels, alpha=0.7, beta=0),
    "grey": lambda pixels: cv2.cvtColor(pixels, cv2.COLOR_BGR2GRAY),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_copies_are_near_copies(folder: Folder, change: str) -> None:
    for number in (3, 9, 12):  # the last two of val and train
        pixels = cv2.imread(str(folder.root / f"{number}.png"))
        folder.add(f"copy{number}.jpg", plate(number), CHANGES[change](pixels), "train", quality=75)
    report = folder.survey()
    assert found(report) == {"near_copy": 2, "near_copy_in_other_split": 1}
    assert report.copies == {f"copy{number}.jpg": f"{number}.png" for number in (3, 9, 12)}
    leak = next(each for each in report.findings if each.level == "warning")
    assert leak.examples[0][0] == "labels.txt:42" and "labels.txt:10" in leak.examples[0][1]


def test_exact_copies(folder: Folder) -> None:
    pixels = cv2.imread(str(folder.root / "5.png"))
    folder.add("same.png", plate(5), pixels, "train")
    folder.add("same.bmp", plate(5), pixels, "val")  # other bytes, the same pixels
    folder.add("other.png", "XY 9999", pixels, "train")
    folder.samples.append(folder.samples[7]._replace(split="val"))  # one file in two splits
    folder.samples.append(folder.samples[8])  # the survey of texts names a repeated line
    height, width = pixels.shape[:2]
    whole = ((0, 0), (width, 0), (width, height), (0, height))
    folder.samples.append(folder.samples[5]._replace(box=whole))  # a word of a page
    report = folder.survey()
    assert found(report) == {"copy": 2, "copy_in_other_split": 2, "copy_with_other_text": 1}
    assert report.copies == dict.fromkeys(("same.png", "same.bmp", "other.png"), "5.png") | {"7.png": "7.png"}


def test_unusable_and_doubtful_images(folder: Folder) -> None:
    whole = (folder.root / "1.png").read_bytes()
    (folder.root / "broken.png").write_bytes(whole[: len(whole) // 2])
    bad = bytearray(whole)
    bad[30:60] = bytes(30)
    (folder.root / "damaged.png").write_bytes(bad)  # its ends are whole
    (folder.root / "empty.jpg").write_bytes(b"")
    header = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + (30_000).to_bytes(4, "big") * 2 + bytes(50)
    (folder.root / "huge.png").write_bytes(header)
    os.mkfifo(folder.root / "pipe.png")
    names = [
        "broken.png",
        "damaged.png",
        "empty.jpg",
        "huge.png",
        "pipe.png",
        "missing.png",
        "../out.png",
        "x#1",
    ]
    for name in names:
        folder.samples.append(Sample(name, "AB", f"more.txt:{name}"))
    folder.add("flat.png", "AB", np.full((32, 90, 3), 77, np.uint8))
    folder.add("tiny.png", "AB", draw("AB")[:4])
    folder.add("tall.png", "AB 123", np.rot90(draw("AB 123")).copy())
    folder.add("one.png", "1", draw("1")[:, 6:24])  # tall, but of one character
    report = folder.survey()
    once = ("too_many_pixels", "outside_data_dir", "tiny_image", "flat_image", "tall_image")
    assert found(report) == {"missing_image": 2, "broken_image": 4, **dict.fromkeys(once, 1)}
    assert report.looked_at == 52 and report.usable == 44
    assert report.findings[0].share == 2 / 52
    assert report.findings[0].message == "2 of 52 images are missing"
    assert report.findings[0].examples[0][0] == "more.txt:missing.png"
    json.dumps(asdict(report), default=sorted)


def test_sizes_and_depth(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    line = draw("AB 1234")
    alpha = np.dstack([line, np.full(line.shape[:2], 255, np.uint8)])
    grey = cv2.cvtColor(line, cv2.COLOR_BGR2GRAY)
    kinds = {"rgb.PNG": line, "a b/图.jpg": line, "alpha.png": alpha, "grey.png": grey}
    kinds |= {"deep.png": line.astype(np.uint16) * 256, "deep grey.png": grey.astype(np.uint16) * 256}
    (tmp_path / "a b").mkdir()
    for number, (name, pixels) in enumerate(kinds.items()):
        folder.add(name, f"{number}", pixels)
    report = folder.survey()
    assert report.stored == {"RGB": 2, "16 bit": 2, "RGBA": 1, "grey": 1}
    height, width = line.shape[:2]
    assert set(report.heights) == {height} and set(report.widths) == {width}
    assert set(report.ratios) == {width / height}


def test_a_part_of_many_images_is_spread_over_them(folder: Folder) -> None:
    seen: list[str] = []
    read = ImageReader(folder.root)

    def note(sample: Sample) -> object:
        seen.append(sample.image)
        return read(sample)

    report = survey_images(iter(folder.samples), 40, note, most=9, threads=1)
    assert report.looked_at == 9
    places = [int(name.removesuffix(".png")) for name in seen]
    assert all(0 < later - place < 10 for place, later in pairwise([-1, *places, 40]))
    assert {place % 2 for place in places} == {0, 1}  # no fault in turns is missed


def test_images_of_an_lmdb(tmp_path: Path) -> None:
    path = tmp_path / "set#1"
    path.mkdir()
    image = cv2.imencode(".png", draw("AB"))[1].tobytes()
    with lmdb.open(str(path), map_size=1 << 22) as environment, environment.begin(write=True) as put:
        for key, value in {"num-samples": b"2", "label-000000002": b"AB", "image-000000002": image}.items():
            put.put(key.encode(), value)
    samples = [Sample(f"set#1#{number}", "AB", f"set#1#{number}") for number in (1, 2)]
    report = survey_images(samples, 2, ImageReader(tmp_path))
    assert found(report) == {"missing_image": 1} and report.usable == 1


def test_many_images_take_little_time_whatever_their_texts(tmp_path: Path) -> None:
    lines = [
        cv2.imencode(".jpg", draw(plate(number % 97), seed=number))[1].tobytes() for number in range(400)
    ]
    samples = [Sample(str(number), "the same", f"l:{number}") for number in range(4000)]
    begin = time.process_time()
    report = survey_images(samples, 4000, lambda sample: lines[int(sample.image) % 400])
    assert time.process_time() - begin < 12  # 60 s for 20,000; less than 1 s on a free core
    assert found(report)["copy"] == 3600
    assert survey_images([], 0, ImageReader(tmp_path)).usable == 0
