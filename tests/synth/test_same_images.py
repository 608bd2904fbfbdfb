"""The images and texts of a seed stay the same from version to version: the tables in README depend on it."""

from __future__ import annotations

import hashlib
from importlib import import_module

import numpy as np
import pytest

from ppocr_ext.synth.captcha import CaptchaOptions, CaptchaSource
from ppocr_ext.synth.lines import LineSource, LineSplit, LineStyle, RandomTexts, find_fonts

# Images also depend on the versions of these libraries; texts do not.
DRAWN_WITH = {"captcha": "0.7.1", "cv2": "5.0.0", "PIL": "13.0.0"}


def captchas(painter: str) -> CaptchaSource:
    return CaptchaSource(CaptchaOptions(painter=painter), seed=1)


def lines() -> LineSource:
    fonts = find_fonts(["captcha"])
    return LineSource(
        {"train": LineSplit(RandomTexts("0123456789abcXYZ", (2, 9)), fonts)}, LineStyle(), seed=1
    )


SOURCES = {
    "library": (lambda: captchas("library"), "8fa8e0aa3f026a01", "2baf7b76be17c640"),
    "fast": (lambda: captchas("fast"), "8fa8e0aa3f026a01", "8c0726151feb9b41"),
    "lines": (lines, "8ed564d6abb0a249", "4b0855839950044d"),
}


def digest(parts: list[bytes]) -> str:
    return hashlib.sha256(b"\n".join(parts)).hexdigest()[:16]


@pytest.mark.parametrize("name", SOURCES)
def test_the_texts_of_a_seed_stay_the_same(name: str) -> None:
    make, texts, _ = SOURCES[name]
    source = make()
    assert digest([source.label("train", index).encode() for index in range(40)]) == texts


@pytest.mark.skipif(
    {name: import_module(name).__version__ for name in DRAWN_WITH} != DRAWN_WITH,
    reason="drawn with other versions of the libraries",
)
@pytest.mark.parametrize("name", SOURCES)
def test_the_images_of_a_seed_stay_the_same(name: str) -> None:
    make, _, images = SOURCES[name]
    source = make()
    assert digest([np.ascontiguousarray(source.image("train", i)[1]).tobytes() for i in range(20)]) == images
