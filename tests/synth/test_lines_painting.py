"""Images of lines: reproducible, legible, complete, in the size asked for."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace

import cv2
import numpy as np
import pytest
from error_codes import raises_code
from tiny_runs import captchas, tiny

from ppocr_ext.errors import DataError
from ppocr_ext.loop.session import train
from ppocr_ext.synth.lines import LineSource, LineSplit, LineStyle, RandomTexts, find_fonts, find_photos
from ppocr_ext.synth.lines.painting import OFF, bend, place
from ppocr_ext.synth.seeded_random import SeededRandom

PLAIN = LineStyle(
    rotation=OFF,
    shear=OFF,
    perspective=OFF,
    blur=OFF,
    shrink=OFF,
    noise=OFF,
    jpeg=OFF,
    backgrounds=("plain",),
)
WEIGHTS = np.array([0.114, 0.587, 0.299])  # of blue, green, red


@pytest.fixture(scope="module")
def fonts():
    return tuple(
        f for f in find_fonts(["matplotlib"]) if f.name in ("DejaVuSans.ttf", "DejaVuSerif-Bold.ttf")
    )


@pytest.fixture(scope="module")
def source(fonts):
    texts = RandomTexts("abcXYZ019gjy", (1, 12))

    def make(style=LineStyle(), seed=1, **splits):  # noqa: B008 - immutable
        named = splits or {"train": fonts}
        return LineSource({name: LineSplit(texts, some) for name, some in named.items()}, style, seed)

    return make


def test_an_image_depends_on_seed_split_and_index_alone(source, fonts):
    one, other = source(train=fonts, val=fonts), source(train=fonts, val=fonts)
    forwards = [one.image("train", i) for i in range(8)]
    backwards = [other.image("train", i) for i in reversed(range(8))][::-1]
    assert (
        [text for text, _ in forwards]
        == [text for text, _ in backwards]
        == [one.label("train", i) for i in range(8)]
    )
    assert all(np.array_equal(a, b) for (_, a), (_, b) in zip(forwards, backwards, strict=True))
    copied = pickle.loads(pickle.dumps(one)).image("train", 3)
    assert np.array_equal(copied[1], forwards[3][1])
    elsewhere = (source(seed=2).image("train", 0), one.image("val", 0), one.image("train/2", 0))
    assert not any(np.array_equal(forwards[0][1], image) for _, image in elsewhere)


def test_no_ink_is_cut_off_at_the_border():
    style = LineStyle(rotation=(-20, 20), shear=(-30, 30), perspective=(0.2, 0.3), margin=OFF)
    for index in range(60):
        rng = SeededRandom(0, "x", index)
        shape = (rng.whole((8, 80)), rng.whole((5, 600)))
        bent = bend(np.full(shape, 255, np.uint8), style, rng)
        plane = place(bent, style if index % 2 else replace(style, width=200), rng)
        assert not plane[0].any() and not plane[-1].any()
        assert not plane[:, 0].any() and not plane[:, -1].any()
        if index % 2:
            assert plane.sum(dtype=int) == bent.sum(dtype=int)


def test_rotation_turns_as_many_degrees_as_asked():
    ink = np.zeros((40, 60), np.uint8)
    ink[19:21] = 255
    style = replace(PLAIN, rotation=(10, 10), height=200)
    rows, columns = np.nonzero(bend(ink, style, SeededRandom(0, "x", 0)) > 100)
    slope = np.polyfit(columns, rows, 1)[0]
    assert np.degrees(np.arctan(slope)) == pytest.approx(-10, abs=0.7)  # counter-clockwise: up to the right


@pytest.mark.parametrize("backgrounds", [("plain",), ("gradient",), ("texture",), ("photo",)])
def test_text_stands_out_from_any_background(source, tmp_path, backgrounds):
    rng = np.random.default_rng(3)
    for number in range(3):  # checks of black and white, the worst there is
        checks = np.kron(rng.integers(0, 2, (12, 30)) * 255, np.ones((16, 16))).astype(np.uint8)
        cv2.imwrite(str(tmp_path / f"{number}.png"), cv2.merge([checks] * 3))
    style = replace(
        PLAIN, backgrounds=backgrounds, photos=find_photos(tmp_path), contrast=(90, 200), spacing=(0.3, 0.3)
    )
    with_text, without = source(style), source(replace(style, contrast=(90, 200)))
    for index in range(12):
        image = with_text.image("train", index)[1].astype(float) @ WEIGHTS
        rng = SeededRandom(without.seed, "train", index)
        assert image.max() - image.min() >= 80, rng
        values = np.sort(image.ravel())
        gaps = np.diff(values[:: max(1, values.size // 64)])
        assert gaps.max() > 20  # ink and background are two groups of levels


def test_contrast_is_as_asked_on_plain_backgrounds(source):
    lines = source(replace(PLAIN, contrast=(100, 120)))
    for index in range(30):
        levels = lines.image("train", index)[1].astype(float) @ WEIGHTS
        assert 97 <= levels.max() - levels.min() <= 123


def test_effects_do_what_their_names_say(source):
    def mean_of(measure, **changed):
        lines = source(replace(PLAIN, contrast=(120, 120), **changed))
        return np.mean([measure(lines.image("train", i)[1]) for i in range(12)])

    def sharpness(image):
        return cv2.Laplacian(image, cv2.CV_64F).var()

    def unrest(image):
        return image[:3].astype(float).std(axis=1).mean()  # above the text

    plain = mean_of(sharpness)
    assert mean_of(sharpness, blur=(1.2, 1.2)) < 0.5 * plain
    assert mean_of(sharpness, shrink=(2, 2)) < 0.7 * plain
    assert mean_of(unrest, noise=(8, 8), margin=(0.5, 0.5)) == pytest.approx(8, abs=2)
    assert mean_of(sharpness, jpeg=(10, 10)) != plain


@pytest.mark.parametrize(
    ("changed", "option"),
    [
        ({"height": 8}, "height"),
        ({"blur": (2, 1)}, "blur"),
        ({"noise": (0, 500)}, "noise"),
        ({"backgrounds": ("marble",)}, "backgrounds"),
        ({"backgrounds": ("photo",)}, "photos"),
    ],
)
def test_impossible_styles_are_refused(source, changed, option):
    with pytest.raises(DataError) as error:
        source(replace(LineStyle(), **changed))
    assert error.value.code == "bad_value" and str(error.value).startswith(f"{option}: ")


def test_a_style_from_the_options_of_a_command_or_a_config(tmp_path):
    cv2.imwrite(str(tmp_path / "photo.png"), np.zeros((20, 20, 3), np.uint8))
    style = LineStyle.from_options({"blur": 1, "noise": [2.0], "jpeg": [50, 60], "width": None})
    assert style == LineStyle(blur=(1, 1), noise=(2.0, 2.0), jpeg=(50, 60))
    with_photos = LineStyle.from_options({"photos": str(tmp_path)})
    assert with_photos.photos == (str(tmp_path / "photo.png"),) and "photo" in with_photos.backgrounds


def test_a_folder_without_photos_or_with_broken_ones_is_refused(tmp_path):
    with raises_code(DataError, "no_images"):
        find_photos(tmp_path)
    (tmp_path / "broken.jpg").write_bytes(b"not a photo")
    with raises_code(DataError, "broken_image", "broken.jpg"):
        find_photos(tmp_path)


# A run that trains on text lines that are drawn as it asks for them

__all__ = ["captchas", "tiny"]


@pytest.fixture
def lines(tiny, tmp_path):
    """A config of two steps on four lines each."""
    config = tiny("student")
    dataset = {
        "name": "TextLineDataSet",
        "size": 8,
        "length": [2, 5],
        "fonts": ["captcha"],
        "rich_in": ["01", 0.5],
        "style": {"height": 32, "blur": [0, 1], "backgrounds": ["plain", "texture"]},
        "transforms": config.thaw()["Train"]["dataset"]["transforms"],
    }
    return config.with_values(
        {
            "Train.dataset": dataset,
            "Train.loader.batch_size_per_card": 4,
            "Eval.dataset": {**dataset, "seed": 7},
            "Eval.loader.batch_size_per_card": 4,
            "Global.epoch_num": 1,
            "Global.eval_batch_step": [0, 2],
        }
    )


def test_a_run_trains_and_evaluates_on_drawn_lines(lines, tmp_path):
    train(lines)
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if row["kind"] == "train"] == [1, 2]
    assert [row["kind"] for row in rows].count("eval") == 1
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "finished"
    assert (tmp_path / "run" / "latest.pdparams").is_file()


def test_noise_covers_images_larger_than_its_tile(source):
    lines = source(replace(PLAIN, height=300, width=2500, noise=(20, 20)))
    image = lines.image("train", 0)[1].astype(float)
    assert image[:, -50:].std() > 10 and image[-20:].std() > 10
