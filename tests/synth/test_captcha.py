"""CAPTCHAs: the library's pictures, and the same ones in any order, thread and process."""

from __future__ import annotations

import hashlib
import os
import secrets
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import import_module

import captcha.image
import numpy as np
import pytest

from ppocr_ext.errors import DataError
from ppocr_ext.synth.captcha import CaptchaOptions, CaptchaSource
from ppocr_ext.synth.dataset_folder import map_in_processes
from ppocr_ext.synth.lines import LineSource, LineSplit, LineStyle, RandomTexts, find_fonts

FAST = CaptchaOptions()
LIBRARY = CaptchaOptions(painter="library")


@pytest.mark.parametrize("options", [FAST, LIBRARY], ids=["fast", "library"])
def test_an_image_depends_on_seed_stream_and_index_alone(options):
    one, other = CaptchaSource(options, 5), CaptchaSource(options, 5)
    forwards = [one.image("train", i) for i in range(6)]
    backwards = [other.image("train", i) for i in reversed(range(6))][::-1]
    assert [label for label, _ in forwards] == [label for label, _ in backwards]
    assert all(np.array_equal(a, b) for (_, a), (_, b) in zip(forwards, backwards, strict=True))
    again = CaptchaSource(options, 6).image("train", 0), one.image("val", 0)
    assert not any(np.array_equal(forwards[0][1], image) for _, image in again)


def test_threads_draw_the_same():
    source = CaptchaSource(LIBRARY, 1)
    alone = [source.image("x", i)[1] for i in range(12)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda i: source.image("x", i)[1], range(12)))
    assert all(np.array_equal(a, b) for a, b in zip(alone, together, strict=True))


def test_the_library_gets_its_randomness_back():
    CaptchaSource(LIBRARY, 1).image("x", 0)
    assert captcha.image.secrets is secrets


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"width": 33, "height": 21, "length": (1, 9)},
        {"width": 300, "height": 100, "characters": "iljWM.,'"},
    ],
    ids=str,
)
def test_the_fast_painter_draws_the_librarys_picture(changed):
    fast, library = (CaptchaSource(replace(o, **changed), 11) for o in (FAST, LIBRARY))
    differences, unlike = [], []
    for index in range(15):
        (text, ours), (same_text, theirs) = fast.image("t", index), library.image("t", index)
        assert text == same_text
        assert ours.shape == theirs.shape and ours.dtype == theirs.dtype == np.uint8
        differences.append(np.abs(ours.astype(int) - theirs).mean())
        other = library.image("t", index + 1)[1]
        unlike.append(np.abs(ours.astype(int) - other).mean())
    # levels of 255, a pixel: edges differ a little; another picture differs ten times as much
    assert np.mean(differences) < 2.0 and max(differences) < 5.0
    assert np.mean(unlike) > 8 * np.mean(differences)


def test_labels_use_the_characters_and_lengths_asked_for():
    source = CaptchaSource(replace(FAST, characters="aZ9", length=(2, 4)), 0)
    labels = [source.label("train", i) for i in range(300)]
    assert {len(label) for label in labels} == {2, 3, 4}
    assert set("".join(labels)) == set("aZ9")
    assert source.image("train", 7)[0] == labels[7]


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"characters": ""}, "bad_value"),
        ({"characters": "0120"}, "bad_value"),
        ({"characters": "1漢"}, "undrawable_characters"),
        ({"length": (5, 4)}, "bad_value"),
        ({"length": 4}, "bad_value"),
        ({"width": 4}, "bad_value"),
        ({"fonts": ("/no/font.ttf",)}, "bad_font"),
        ({"painter": "slow"}, "bad_value"),
    ],
)
def test_an_option_that_cannot_be_drawn_is_refused_by_name(changed, code):
    with pytest.raises(DataError) as error:
        CaptchaSource(replace(FAST, **changed), 0)
    assert error.value.code == code
    (option,) = changed
    assert str(error.value).startswith(f"{option}: ")


# The images and texts of a seed stay the same from version to version: the tables in README depend on it

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


# Work done in several processes: its order, and its end where one of them is killed or stumbles


class Doubles:
    def __call__(self, task):
        if task == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if task == "stumbles":
            raise DataError("no font", code="bad_font")
        time.sleep(0.01 * (5 - task))
        return 2 * task


def test_results_come_in_the_order_of_the_tasks():
    with map_in_processes(Doubles(), [0, 1, 2, 3, 4], 2) as results:
        assert list(results) == [0, 2, 4, 6, 8]


@pytest.mark.parametrize(("task", "code"), [("killed", "process_killed"), ("stumbles", "bad_font")])
def test_a_process_that_fails_ends_the_work(task, code):
    with pytest.raises(DataError) as error, map_in_processes(Doubles(), [task, 1, 2], 2) as results:
        list(results)
    assert error.value.code == code
