"""`ppocr-ext predict` as a user runs it, against `eval` and the labels."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from small_fonts import make_font

from ppocr_ext.cli.main import main
from ppocr_ext.data.label_file import read_label_file
from ppocr_ext.evaluation.predictions import read_predictions
from ppocr_ext.metrics import RecMetric
from ppocr_ext.recognition.ctc_text import Reading
from ppocr_ext.recognition.images import ListedImage
from ppocr_ext.recognition.reading_files import ReadImage, reading_sheet, summary, worst_first


@pytest.fixture
def predict(run, captchas, tmp_path, monkeypatch, capsysbinary):
    """Run the command in an empty folder; return exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)

    def call(*words, source=run):
        code = main(["predict", str(source), *map(str, words)])
        out, err = (text.decode("utf-8") for text in capsysbinary.readouterr())
        return code, out, err

    return call


def rows(text):
    return list(csv.reader(io.StringIO(text), delimiter="\t"))


def test_it_writes_the_file_that_an_evaluation_writes(predict, run, captchas, tmp_path, capsysbinary):
    best = f"Global.checkpoints={run / 'best_accuracy'}"
    words = ["-c", run / "config.yml", "-o", best, "--save-predictions", tmp_path / "eval.tsv"]
    assert main(["eval", *map(str, words)]) == 0
    capsysbinary.readouterr()
    expected = (tmp_path / "eval.tsv").read_text()
    for size in (1, 8):
        code, out, err = predict(captchas / "val_list.txt", "--batch-size", size)
        assert code == 0
        assert out == expected
        assert "correct: 0 of 10" in err and "best_accuracy.pdparams" in err  # what is logged
    assert len({each.text for each in read_predictions(tmp_path / "eval.tsv")}) > 5


def test_a_file_of_either_form_with_characters(predict, exported, images, tmp_path):
    text = predict(images[0])[1]
    assert rows(text)[0] == ["image", "prediction", "confidence"]
    (image, prediction, confidence) = rows(text)[1]
    assert image == str(images[0]) and prediction
    options = ["--characters", "--output", "a.jsonl", "--engine", "onnx", "--threads", 1]
    code, out, _ = predict(images[0].parent, *options, source=exported)
    assert (code, out) == (0, "")
    found = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [each["image"] for each in found] == list(map(str, images))
    assert found[0]["text"] == prediction and f"{found[0]['confidence']:.4f}" == confidence
    assert found[0].keys() == {"image", "text", "confidence", "characters"}
    characters = found[0]["characters"]
    assert "".join(each["text"] for each in characters) == prediction
    header, row = rows(predict(images[0], "--characters")[1])
    assert header == ["image", "prediction", "confidence", "confidences", "columns"]
    assert row[3:] == [
        " ".join(f"{each['confidence']:.4f}" for each in characters),
        " ".join(f"{each['first_column']}-{each['last_column']}" for each in characters),
    ]


def test_a_label_file_has_the_readings_that_are_sure_enough(predict, images, tmp_path):
    (tmp_path / "lists").mkdir()
    _, *read = rows(predict(*images)[1])
    limit = sorted(float(row[2]) for row in read)[len(read) // 2]
    words = (*images, "--format", "labels", "--least", limit - 5e-5, "--output", "lists/read.txt")
    code, _, err = predict(*words)
    sure = {image: text for image, text, score in read if float(score) >= limit and text}
    assert code == 0 and f"labels: {len(sure)} of {len(read)}" in err and 0 < len(sure) < len(read)
    lines = read_label_file(tmp_path / "lists" / "read.txt")
    assert {str((tmp_path / "lists" / each.images[0]).resolve()): each.label for each in lines} == sure


def test_what_cannot_be_read_is_reported_and_the_rest_is_read(predict, captchas, images, tmp_path):
    (tmp_path / "broken.png").write_bytes(images[0].read_bytes()[:60])
    listed = f"{images[0]}\t12345\ngone.png\t1\nno tab\nbroken.png\t2\n"
    (tmp_path / "list.txt").write_text(listed)
    code, out, err = predict("list.txt")
    assert code == 1
    assert [row[0] for row in rows(out)] == ["image", str(images[0])]
    assert all(name in err for name in ("gone.png", "broken.png", "list.txt:3"))
    assert "read: 1 image, 3 unreadable" in err
    code, out, _ = predict("list.txt", "--format", "jsonl")
    assert [("error" in json.loads(line), json.loads(line)["label"]) for line in out.splitlines()] == [
        (False, "12345"),
        (True, "1"),
        (True, "2"),
    ]
    code, out, err = predict("broken.png", "gone.png")
    assert code == 2 and "no_images" in err
    code, out, err = predict("list.txt", "--output", "texts.csv")
    assert code == 2 and "bad_value" in err and not Path("texts.csv").exists()


def read_image_of(text, label, confidence):
    return ReadImage(ListedImage(f"{text}/{label}", Path(), label), Reading(text, confidence))


def test_bad_cases_come_by_error_and_then_by_confidence():
    cases = [
        read_image_of("abc", "abc", 0.9),
        read_image_of("abc", "abd", 0.8),
        read_image_of("abc", None, 0.1),
        read_image_of("abc", "xyz", 0.7),
        read_image_of("abc", "abd", 0.3),
        read_image_of("", "x", 0.0),
    ]
    found = [(each.reading.text, each.image.label, each.reading.confidence) for each in worst_first(cases)]
    assert found == [
        ("", "x", 0.0),
        ("abc", "xyz", 0.7),
        ("abc", "abd", 0.3),
        ("abc", "abd", 0.8),
        ("abc", None, 0.1),
        ("abc", "abc", 0.9),
    ]


def test_the_command_sorts_and_draws_the_worst(predict, captchas, tmp_path):
    arguments = [captchas / "val_list.txt", "--bad-cases", "--sheet", "worst.png", "--sheet-images", 3]
    code, out, err = predict(*arguments)
    assert code == 0 and "the worst 3 of 10 images" in err
    confidences = [float(row[3]) for row in rows(out)[1:]]
    assert len(confidences) == 10 and len(set(confidences)) > 5
    sheet = cv2.imread(str(tmp_path / "worst.png"))
    assert sheet is not None
    (captchas / "mine.txt").write_text("".join(f"{row[0]}\t{row[2]}\n" for row in rows(out)[1:]), "utf-8")
    code, _, err = predict(captchas / "mine.txt", "--sheet", "right.png")  # its own readings are the labels
    assert code == 0 and "right.png is not written" in err and not (tmp_path / "right.png").exists()
    assert predict(captchas / "mine.txt", "--output", captchas / "mine.txt")[0] == 2
    assert predict(captchas / "val_list.txt", "--sheet-images", 0, "--sheet", "no.png")[0] == 2


def colored(png, color):
    """How many pixels of a sheet are near a colour, BGR."""
    sheet = cv2.imdecode(np.frombuffer(png, np.uint8), cv2.IMREAD_COLOR)
    return int((np.abs(sheet.astype(int) - color).max(axis=2) < 40).sum())


def test_a_sheet_marks_what_is_wrong_and_names_what_no_font_draws(tmp_path):
    file = tmp_path / "a.png"
    cv2.imwrite(str(file), np.full((200, 90, 3), 250, np.uint8))

    def sheet(text, label):
        return reading_sheet([ReadImage(ListedImage("a", file, label), Reading(text, 0.5))], ["captcha"])

    right, wrong, unknown = sheet("Hallo", "Hallo"), sheet("Hallo", "Hello"), sheet("Hallo", None)
    red, green = (0, 0, 0xC0), (0, 0x60, 0)
    assert colored(wrong[0], red) > 20 and colored(wrong[0], green) > 20
    assert colored(right[0], red) == colored(right[0], green) == colored(unknown[0], red) == 0
    assert right[1] == ""
    assert "U+5929" in sheet("天", "大")[1]


def test_a_sheet_takes_a_font_of_the_system_for_what_no_package_draws(tmp_path, monkeypatch):
    font_manager = pytest.importorskip("matplotlib.font_manager")
    broken = tmp_path / "a.ttf"
    broken.write_bytes(b"no font")
    found = [str(broken), str(make_font(tmp_path / "system.ttf", "天大0.5"))]
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: found)
    file = tmp_path / "a.png"
    cv2.imwrite(str(file), np.full((20, 90, 3), 250, np.uint8))
    read = [ReadImage(ListedImage("a", file, "大"), Reading("天", 0.5))]
    drawn, note = reading_sheet(read)
    assert note == ""
    assert drawn == reading_sheet(read, found[1:])[0] != reading_sheet(read, ["matplotlib"])[0]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["gone_folder"], "missing_file"),
        (["IMAGE", "--output", "."], "not_a_file"),
        (["IMAGE", "--engine", "onnx"], "unsupported_engine"),
        (["IMAGE", "--batch-size", "0"], "bad_value"),
        (["IMAGE", "--threads", "0"], "bad_value"),
        (["IMAGE", "--model", "Pupil"], "unknown_sub_model"),
        (["IMAGE", "-o", "Global.checkpoints=gone"], "missing_file"),
        (["IMAGE", "-o", "Global.checkpoint=x"], "unknown_key"),
        (["IMAGE", "--sheet", "a.png", "--fonts", "gone.ttf"], "missing_file"),
    ],
)
def test_bad_input_is_one_message_and_exit_2(predict, images, words, code):
    found, _, err = predict(*[images[0] if word == "IMAGE" else word for word in words])
    assert found == 2
    assert f"[{code}]" in err and "Traceback" not in err


def test_the_summary_counts_with_and_without_spaces():
    found = [ReadImage(ListedImage("a", Path("a"), "a b"), Reading(text)) for text in ("a b", "ab", "ba")]
    assert "correct: 1 of 3 (33.3%)" in summary(found, [], 1.0, "network")
    loose = [replace(each, is_right=RecMetric().is_right) for each in found]
    assert "correct: 2 of 3 (66.7%); 1 if spaces count" in summary(loose, [], 1.0, "network")
    assert all("space" not in summary(each, [], 1.0, "network") for each in (found, loose[:1]))


def test_the_summary_counts_images_that_clients_turn():
    shapes = (("a", "abc", True), ("b", "1", True), ("c", "abc", False), ("d", None, True))
    found = [
        ReadImage(ListedImage(name, Path(name), text), Reading("abc", tall=tall))
        for name, text, tall in shapes
    ]
    assert "2 images are at least 1.5 times as high as wide, such as a:" in summary(found, [], 1.0, "network")
    assert "as high as wide" not in summary(found[1:3], [], 1.0, "network")
