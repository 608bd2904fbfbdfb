"""`ppocr-ext doubtful`: what is sorted out, by hand-made readings and by a model whose readings are the labels."""

import math
import re
import shutil
from pathlib import Path

import numpy as np
import paddle
import pytest
from saved_runs import save_run
from tiny_runs import tiny_config

from ppocr_ext.charset import Charset
from ppocr_ext.cli.main import main
from ppocr_ext.errors import DataError
from ppocr_ext.recognition.ctc_text import Character, Reading, label_losses
from ppocr_ext.recognition.doubtful import JudgedLine, check_judges, kind_of, label_first
from ppocr_ext.recognition.images import ListedImage, list_images
from ppocr_ext.recognition.recognizer import Recognizer


def test_the_loss_of_a_label_is_paddle_s() -> None:
    rng = np.random.default_rng(1)
    probabilities = rng.dirichlet(np.full(6, 0.3), (7, 9)).astype(np.float32)
    labels = [[1], [2, 2, 3], [], None, [1, 2, 3, 4], [5, 5, 5, 5, 5], [4, 4, 4, 4, 4, 4]]
    known = [n for n, each in enumerate(labels) if each]
    padded = np.array([each + [0] * (6 - len(each)) for each in map(labels.__getitem__, known)], np.int32)
    logits = paddle.to_tensor(np.log(np.maximum(probabilities[known], 1e-20)).transpose(1, 0, 2))
    lengths = [paddle.to_tensor(each) for each in ([9] * len(known), [len(labels[n]) for n in known])]
    paddle_s = paddle.nn.functional.ctc_loss(logits, paddle.to_tensor(padded), *lengths, 0, "none").numpy()
    found = label_losses(probabilities, labels)
    assert found[known[:-1]] == pytest.approx(paddle_s.ravel()[:-1], rel=1e-4)
    assert found[2] == pytest.approx(-np.log(probabilities[2, :, 0]).sum(), rel=1e-4)  # blanks alone
    assert math.isnan(found[3]) and found[6] == math.inf  # six equal characters need 11 frames
    assert np.isnan(label_losses(probabilities[:2], [None, None])).all()


def reading(text: str, confidence: float, loss: float = math.nan, error: str | None = None) -> Reading:
    characters = tuple(Character(each, confidence) for each in text)
    return Reading(text, confidence if text else 0.0, characters, error=error, loss=loss)


def line(label: str, strong: Reading, weak: Reading | None = None, name: str = "a.png") -> JudgedLine:
    return JudgedLine(ListedImage(name, Path(name), label), label, strong, label, weak)


@pytest.mark.parametrize(
    ("judged", "kind"),
    [
        (line("ab", reading("ab", 0.9, 0.3), reading("ab", 0.94)), "kept"),
        (line("ab", reading("ab", 0.9, 0.3), reading("ab", 0.96)), "easy"),
        (line("ab", reading("ab", 0.9, 0.3), reading("ac", 0.96)), "kept"),  # surely, and wrong
        (line("", reading("ab", 0.9), reading("ac", 0.96)), "easy"),
        (
            line("ab", reading("ac", 0.9, 9.0), reading("ab", 0.96)),
            "easy",
        ),  # another model believes the label
        (line("ab", reading("ac", 1.0, 7.0)), "suspect"),  # 1,096 times as probable
        (line("ab", reading("ac", 1.0, 6.8)), "kept"),
        (line("ab", reading("ac", 0.5, 7.0)), "kept"),  # 274 times
        (line("ab", reading("ac", 0.9, math.inf)), "suspect"),
        (line("ab", reading("ac", 0.14, 99.0)), "broken"),
        (line("ab", reading("", 0.0, 2.0)), "broken"),
        (line("", reading("", 0.0)), "broken"),  # no text
        (line("ab", reading("ac", 0.9)), "unjudged"),
        (line("ab", reading("", 0.0, error="gone")), "unreadable"),
    ],
)
def test_each_line_is_of_one_kind(judged: JudgedLine, kind: str) -> None:
    assert kind_of(judged) == kind


def test_models_that_cannot_judge_are_refused_and_a_known_cause_is_named() -> None:
    right = [line("ab", reading("ab", 0.9, 0.3), reading("ab", 0.8))] * 2
    check_judges([*right, *[line("ab", reading("ac", 0.9, 9.0), reading("ab", 0.8))] * 8])  # 20 %
    dots = [line("ab", reading("a·b", 0.9, 9.0))] * 9
    for lines, code, words in (
        ([*right[:1], *dots], "poor_judge", "--ignore '·'"),
        ([line("ab", reading("zz", 0.9, 9.0))], "poor_judge", "trained on such lines"),
        ([line("ab", reading("ab", 0.9, 0.3), reading("ab", 0.9))], "equal_models", "--weak"),
    ):
        with pytest.raises(DataError, match=re.escape(words)) as error:
            check_judges(lines)
        assert error.value.code == code


def test_the_least_certain_of_each_part_of_the_list_are_labelled_first() -> None:
    sure = [round(0.99 - 0.001 * (n % 2) - (0.3 if n < 4 else 0), 3) for n in range(60)]
    lines = [line("", reading("a", each), name=f"{n}.png") for n, each in enumerate(sure)]
    first = [int(each.image.name.removesuffix(".png")) for each in label_first(lines)]
    assert sorted(first) == list(range(60))
    assert {n // 3 for n in first[:20]} == set(range(20))  # one of each part
    assert first[:2] == [1, 3]  # the least certain of the first two parts
    assert {0, 2} & set(first[20:22]) == {0}
    assert label_first([]) == []


def test_ignored_characters_are_read_as_nothing_and_a_list_may_have_paths_alone(
    run: Path, images: list[Path], tmp_path: Path
) -> None:
    model = Recognizer(run)
    texts = [each.text for each in model.read(images)]
    ignored = max("".join(texts), key="".join(texts).count)
    assert not any(ignored in each.text for each in model.ignoring(ignored).read(images))
    assert model.read(images)[0].text == texts[0]
    (tmp_path / "paths.txt").write_text("".join(f"{each.name}\r\n\n" for each in images), "utf-8")
    found = list_images([str(tmp_path / "paths.txt")], images[0].parent)
    assert [each.place for each in found.images] == images and not found.has_labels and not found.bad_lines
    charset = Charset(("a", "b"))
    assert charset.ids_to_read("ba") == [2, 1] and charset.ids_to_read("bx") is None


@pytest.fixture
def doubtful(run, images, captchas, tmp_path, monkeypatch, capsys):
    """Run the command on a list whose labels are what the strong model reads; lines 2 and 5 have others."""
    monkeypatch.chdir(tmp_path)
    texts = [each.text for each in Recognizer(run).read(images)]
    texts[2], texts[5] = "0" * 7, "1" * 7
    rows = [f"{each.name}\t{text}\n" for each, text in zip(images, texts, strict=True)]
    (tmp_path / "list.txt").write_text("".join(rows), "utf-8")
    save_run(tiny_config(captchas, tmp_path, "student"), tmp_path / "other", seed=9)

    def call(*words):
        code = main(["doubtful", "--data-dir", str(images[0].parent), "--strong", str(run), *map(str, words)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call, rows


def test_wrong_labels_are_found_in_a_list(doubtful, images, tmp_path):
    call, rows = doubtful
    some = ["--times", 1.5, "--broken", 0]
    code, out, err = call("list.txt", *some)
    assert code == 0, err
    table = [each.split("\t") for each in Path("doubtful.tsv").read_text("utf-8").splitlines()]
    assert table[0] == ["image", "label", "prediction", "loss"] and len(table) == len(rows) + 1
    wrong = {images[2].name, images[5].name}
    assert {table[1][0], table[2][0]} == wrong and "suspect: 2" in out
    assert {each.split("\t")[0] for each in Path("doubtful_suspect.txt").read_text().splitlines()} == wrong
    assert Path("doubtful_kept.txt").read_text("utf-8") == "".join(rows)
    page = Path("doubtful.html").read_text("utf-8")
    assert (
        page.count("data:image/png;base64,") == 2
        and "0000000" in page
        and 'src="http' not in page
        and "href" not in page
    )
    assert call("list.txt", *some, "--suspects", "drop", "--out", "few")[0] == 0
    assert Path("few_kept.txt").read_text("utf-8") == "".join(rows[:2] + rows[3:5] + rows[6:])
    assert call("list.txt", *some, "--weak", "other", "--easy", 0.9999)[0] == 0
    assert Path("doubtful.html").read_text("utf-8").count("<dt>weak model</dt>") == 2
    (tmp_path / "more.txt").write_text("".join([*rows, "gone.png\t1\n", f"{images[0].name}\t\n"]), "utf-8")
    code, out, err = call("more.txt", *some)
    assert code == 1 and "gone.png" in err and "unreadable: 1" in out and "1 lines without a label" in out


def test_lists_in_two_folders_stay_apart(run, images, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = [each.text for each in Recognizer(run).read(images)]
    for folder, order in (("A", 1), ("B", -1)):  # both have 0.png
        lines = [(f"{n}.png", n) for n in range(len(images))]
        Path(folder).mkdir()
        for name, n in lines:
            shutil.copy(images[::order][n], Path(folder, name))
        labels = "".join(f"{name}\t{texts[::order][n]}\n" for name, n in lines)
        Path(folder, "list.txt").write_text(labels, "utf-8")
    options = ["--strong", str(run), "--broken", "0"]
    assert main(["doubtful", "A/list.txt", "B/list.txt", *options]) == 0
    assert main(["doubtful", "doubtful_kept.txt", "--out", "again", *options]) == 0
    kept = [each.split("\t") for each in Path("again_kept.txt").read_text("utf-8").splitlines()]
    assert kept[0] == ["A/0.png", texts[0]] and kept[len(images)] == ["B/0.png", texts[-1]]
    assert not Path("again_suspect.txt").read_text("utf-8")
    assert {each.split("\t")[0] for each in Path("again.tsv").read_text("utf-8").splitlines()[1:]} == {
        name for name, _ in kept
    }


def test_images_without_labels_are_put_in_order(doubtful, images, tmp_path):
    call, _ = doubtful
    assert call(images[0].parent, "--broken", 0)[0] == 0
    first = Path("doubtful_first.txt").read_text("utf-8").splitlines()
    assert sorted(first) == sorted(map(str, images))
    table = [each.split("\t") for each in Path("doubtful.tsv").read_text("utf-8").splitlines()]
    assert table[0] == ["image", "prediction", "confidence"] and [each[0] for each in table[1:]] == first
    page = Path("doubtful.html").read_text("utf-8")
    assert page.count("<dt>prediction</dt>") == len(images) and "<dt>label</dt>" not in page
    code, _, err = call(images[0].parent, "--suspects", "drop")
    assert code == 2 and "missing_labels" in err


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--broken", 0.99999, "--easy", 1], "none_left"),
        (["--times", 0], "bad_value"),
        (["--suspects", "drop", "--weak", "gone"], "missing_file"),
        (["--strong", "other"], "poor_judge"),
        (["--strong", "other", "--weak", "other"], "equal_models"),
    ],
)
def test_options_that_leave_nothing_are_refused(doubtful, words, code):
    found, _, err = doubtful[0]("list.txt", *words)
    assert found == 2 and f"[{code}]" in err and not Path("doubtful.tsv").exists()
