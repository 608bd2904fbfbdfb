"""The text of CTC's probabilities, against PaddleOCR's own decoder and by hand."""

from dataclasses import replace

import numpy as np
import pytest

from ppocr_ext.charset import Charset
from ppocr_ext.host import open_host
from ppocr_ext.recognition.ctc_text import read
from ppocr_ext.text_direction import RIGHT_TO_LEFT, RIGHT_TO_LEFT_VISUAL, TEXT_DIRECTIONS

LINES = {"dict.txt": list("abc天地0 "), "arabic_dict.txt": list("ابتab1. ")}


def decoder(path, charset, space=False):
    options = {"character_dict_path": str(path), "use_space_char": space}
    return open_host().build_post_process({"name": "CTCLabelDecode"}, options, charset)


def write(folder, name):
    path = folder / name
    path.write_text("\n".join(LINES[name]) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("direction", TEXT_DIRECTIONS)
@pytest.mark.parametrize("name", LINES)
def test_texts_and_confidences_are_the_host_s(tmp_path, name, direction):
    path = write(tmp_path, name)
    charset = replace(Charset.from_file(path), direction=direction)
    rng = np.random.default_rng(5)
    logits = rng.normal(0, 2, (200, 30, charset.ctc_classes)).astype(np.float32)
    logits[:, :, 0] += rng.normal(0, 3, (200, 1))  # some with many blanks, some with none
    logits[:, 1::2] = np.where(rng.random((200, 15, 1)) < 0.4, logits[:, ::2], logits[:, 1::2])  # repeats
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True)
    theirs = decoder(path, charset)(probabilities)
    ours = [read(each, charset) for each in probabilities]
    assert [(each.text, each.confidence) for each in ours] == theirs
    assert {len(each.text) for each in ours} >= {5, 10, 20}
    assert all("".join(c.text for c in each.characters) == each.text for each in ours)


def frames(*rows, classes=4):
    """Probabilities of a list of (class, probability)."""
    out = np.zeros((len(rows), classes), np.float32)
    for row, (index, probability) in zip(out, rows, strict=True):
        row[:] = (1 - probability) / (classes - 1)
        row[index] = probability
    return out


def test_characters_have_their_own_probability_and_columns():
    found = read(
        frames((0, 0.9), (1, 0.8), (1, 0.6), (0, 0.9), (1, 0.7), (3, 0.5)),
        Charset(("x", "y", "z")),
        pixels_per_frame=8.5,
        width=50,
    )
    assert found.text == "xxz"
    assert [round(c.confidence, 4) for c in found.characters] == [0.8, 0.7, 0.5]  # the first frame of each
    assert [(c.first_column, c.last_column) for c in found.characters] == [(8, 25), (34, 42), (42, 49)]
    assert found.confidence == pytest.approx(2 / 3)


def test_columns_stay_in_the_image_where_a_character_is_seen_in_the_padding():
    (character,) = read(
        frames((0, 0.9), (0, 0.9), (2, 0.9)), Charset(("x", "y", "z")), pixels_per_frame=10, width=12
    ).characters
    assert (character.first_column, character.last_column) == (11, 11)


@pytest.mark.parametrize("per_frame", [0.3, 0.5, 1.0, 7.9])
def test_the_columns_of_a_character_are_those_of_its_frames(per_frame):
    """An image of 12 pixels or fewer has fewer columns than its CTC output has frames."""
    rows = frames(*[(number % 2, 0.9) for number in range(20)])
    found = read(rows, Charset(("x", "y", "z")), pixels_per_frame=per_frame).characters
    for number, character in enumerate(found):
        touched = {int((2 * number + 1 + part / 100) * per_frame) for part in range(100)}
        assert {character.first_column, character.last_column} == {min(touched), max(touched)}


def test_nothing_but_blanks_is_an_empty_text_of_confidence_0():
    found = read(frames((0, 0.9), (0, 0.9)), Charset(("x", "y", "z")))
    assert (found.text, found.confidence, found.characters, found.error) == ("", 0.0, (), None)


def test_the_direction_decides_about_the_order_and_no_path_does(tmp_path):
    arabic = Charset.from_file(write(tmp_path, "arabic_dict.txt"))
    rows = frames((1, 0.9), (4, 0.9), (5, 0.9), (2, 0.9), classes=9)
    alef, beh = LINES["arabic_dict.txt"][:2]
    assert read(rows, arabic).text == f"{alef}ab{beh}"
    for direction in (RIGHT_TO_LEFT, RIGHT_TO_LEFT_VISUAL):
        found = read(rows, replace(arabic, direction=direction), pixels_per_frame=8)
        assert found.text == f"{beh}ab{alef}"
        assert [each.first_column for each in found.characters] == [24, 8, 16, 0]
