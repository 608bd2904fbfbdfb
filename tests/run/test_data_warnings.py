"""Warnings of usable data with which a training rarely succeeds; equal images are compared with all pairs."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest
from error_codes import raises_code
from lmdb_files import write_lmdb

from ppocr_ext.charset import Charset
from ppocr_ext.cli.main import main
from ppocr_ext.config import Config
from ppocr_ext.data.equal_images import compare_images
from ppocr_ext.data.preflight import check_label_files, check_lmdbs
from ppocr_ext.data.preflight_report import PreflightReport
from ppocr_ext.data.sample_rules import SampleRules
from ppocr_ext.issues import Issue
from ppocr_ext.run.data_check import run_preflight
from ppocr_ext.run.frame_counts import FrameCounts
from ppocr_ext.text_direction import LEFT_TO_RIGHT, RIGHT_TO_LEFT, RIGHT_TO_LEFT_VISUAL, turned

DIGITS = Charset(tuple("0123456789"))
Tiny = Callable[..., Config]


def flat(folder: Path, count: int) -> Path:
    """A label file of ``count`` images of one colour."""
    cv2.imwrite(str(folder / "flat.png"), np.full((32, 96, 3), 90, np.uint8))
    file = folder / "flat.txt"
    file.write_text("flat.png\t123456\n" * count)
    return file


def test_they_are_recorded_also_where_they_are_errors(tiny, tmp_path):
    values = {
        "Train.dataset.data_dir": str(tmp_path),
        "Train.dataset.label_file_list": [str(flat(tmp_path, 3))],
        "Global.strict": True,
    }
    record, frames = tmp_path / "preflight.json", {"Train": FrameCounts({})}
    with raises_code(Exception, "flat_image"):
        run_preflight(tiny("student", **values), DIGITS, frames, record)
    assert [warning["code"] for warning in json.loads(record.read_text())["warnings"]] == ["flat_image"]


def test_config_check_shows_them(tiny, tmp_path, capsys):
    values = {
        "Eval.dataset.data_dir": str(tmp_path),
        "Eval.dataset.label_file_list": [str(flat(tmp_path, 2))],
    }
    file = tmp_path / "my.yml"
    file.write_text(tiny("student", **values, **{"Global.dry_step": False}).to_yaml())
    for options, level, code in ([], "warning", 0), (["--strict"], "error", 2):
        assert main(["config", "--check", "-c", str(file), *options]) == code
        said = capsys.readouterr().out
        assert f"{level}: {file}:" in said and "Eval.dataset.label_file_list: 2 of 2" in said
        assert "no issues" not in said


def test_many_images_are_compared_by_path_alone(tiny, tmp_path, captchas, monkeypatch):
    """A copy is not found then, and that is said."""
    name, label = (captchas / "train_list.txt").read_text().splitlines()[0].split("\t")
    (tmp_path / "copy.png").write_bytes((captchas / name).read_bytes())
    (tmp_path / "val.txt").write_text(f"{tmp_path}/copy.png\t{label}\n")
    values = {"Eval.dataset.label_file_list": [str(tmp_path / "val.txt")]}
    config = tiny("student", **values, **{"Global.allow_outside_data_dir": True})
    frames, said, found = {"Train": FrameCounts({}), "Eval": FrameCounts({})}, list[str](), list[Issue]()
    for most in (25, 24):
        monkeypatch.setattr("ppocr_ext.run.data_check.MOST_READ", most)
        run_preflight(config, DIGITS, frames, report=said.append, warn=found.extend)
        assert [issue.code for issue in found] == ["trained_samples"]
        assert any("compared by path" in text for text in said) == (most == 24)
    run_preflight(config, DIGITS, {"Eval": FrameCounts({})}, report=said.append, warn=found.extend)
    assert len(found) == 1  # an evaluation alone compares nothing


@pytest.mark.parametrize(("direction", "order", "fix"), [
    (LEFT_TO_RIGHT, str, RIGHT_TO_LEFT),
    (LEFT_TO_RIGHT, turned, ""),
    (RIGHT_TO_LEFT, str, ""),
    (RIGHT_TO_LEFT, turned, RIGHT_TO_LEFT_VISUAL),
    (RIGHT_TO_LEFT_VISUAL, str, RIGHT_TO_LEFT),
    (RIGHT_TO_LEFT_VISUAL, turned, ""),
])  # fmt: skip
def test_labels_in_another_order_than_the_direction_are_named(
    tiny: Tiny, captchas: Path, tmp_path: Path, direction: str, order: Callable[[str], str], fix: str
) -> None:
    images = [line.split("\t")[0] for line in (captchas / "train_list.txt").read_text().splitlines()]
    labels = ["المدينة 12", "مدرسة", "שלום"]
    charset = Charset(tuple(sorted(set("".join(labels)))), direction=direction)
    rows = [f"{image}\t{order(label)}" for image, label in zip(images, labels, strict=False)]
    (tmp_path / "list.txt").write_text("\n".join(rows) + "\n", encoding="utf-8")
    values = {"Train.dataset.label_file_list": [str(tmp_path / "list.txt")], "Global.max_text_length": 30}
    config = tiny("student", **values)
    found = list[Issue]()
    for image_check in (
        "header",
        "decode",
    ):  # lines that one regular expression reads, and those that it does not
        frames = {"Train" if image_check == "header" else "Eval": FrameCounts({})}
        values = {"Eval.dataset.label_file_list": [str(tmp_path / "list.txt")]}
        run_preflight(config.with_values(values), charset, frames, warn=found.extend)
    assert [issue.code for issue in found] == ["label_order"] * 2 * bool(fix)
    assert all(f"Global.text_direction={fix}" in issue.fix for issue in found)


def test_labels_that_lose_letters_of_the_other_case_are_named(
    tiny: Tiny, captchas: Path, tmp_path: Path
) -> None:
    one, two = (line.split("\t")[0] for line in (captchas / "train_list.txt").read_text().splitlines()[:2])
    (tmp_path / "list.txt").write_text(f"{one}\tQXghL\n{two}\tgh\n")
    config = tiny("student", **{"Train.dataset.label_file_list": [str(tmp_path / "list.txt")]})
    found = list[Issue]()
    for letters in ("qxghl", "ghQXL"):
        charset = Charset(tuple(letters), drops_unknown=True)
        run_preflight(config, charset, {"Train": FrameCounts({})}, warn=found.extend)
    assert [issue.code for issue in found] == ["other_case"]


def test_characters_that_a_fine_tuning_unlearns_are_named_the_space_and_look_alikes_first(
    tiny: Tiny, captchas: Path, tmp_path: Path
) -> None:
    one, two = (line.split("\t")[0] for line in (captchas / "train_list.txt").read_text().splitlines()[:2])
    (tmp_path / "list.txt").write_text(f"{one}\tab0\n{two}\t#b\n")
    config = tiny("student", **{"Train.dataset.label_file_list": [str(tmp_path / "list.txt")]})
    charset = Charset((*"abABO0", " "), use_space=True, folds_case=True, drops_unknown=True)
    said = list[str]()
    for values in ({"pretrained_model": "w"}, {}, {"pretrained_model": "w", "checkpoints": "c"}):
        changed = config.with_values({f"Global.{key}": value for key, value in values.items()})
        run_preflight(changed, charset, {"Train": FrameCounts({})}, report=said.append, warn=list)
    own = tiny("distill", **{"Train.dataset.label_file_list": [str(tmp_path / "list.txt")]})
    for name in ("Teacher", "Student"):
        changed = own.with_values({f"Architecture.Models.{name}.pretrained": "w"})
        run_preflight(changed, charset, {"Train": FrameCounts({})}, report=said.append, warn=list)
    found = [text for text in said if "no label has" in text]
    named = "' ', 'O' (like '0'), 'A', 'B'"
    (tmp_path / "more.txt").write_text(f"{one}\tA B\n")
    for more in ({}, {"labelled": False}, {"dataset": {"name": "Drawn"}}):
        mix = [{"dataset": {"label_file_list": [str(tmp_path / "more.txt")]}, "share": 0.5} | more]
        changed = config.with_values({"Global.pretrained_model": "w", "Train.mix": mix})
        run_preflight(changed, charset, {"Train": FrameCounts({})}, report=said.append, warn=list)
    mixed = [text for text in said if "no label has" in text and text not in found]
    assert len(mixed) == 1 and mixed[0].endswith("unlearns: 'O' (like '0'), 'A', 'B'")
    assert len(found) == 2 and all("4 of 7" in text and text.endswith(named) for text in found)


@pytest.mark.parametrize(("columns", "errors"), [
    ("{path}\t{label}\t{width}\t{height}", []),
    ("{path}\t{label}\t320\t{double}", []),  # sizes of a smaller copy
    ("{path}\t{label}\t{height}\t{width}", ["other_size"]),
    ("{path}\t{width}\t{height}\t{label}", ["other_size", "one_text"]),
])  # fmt: skip
def test_sizes_in_another_column_are_found(
    tiny: Tiny, captchas: Path, tmp_path: Path, columns: str, errors: list[str]
) -> None:
    rows = [line.split("\t") for line in (captchas / "train_list.txt").read_text().splitlines()]
    height, width = cv2.imread(str(captchas / rows[0][0])).shape[:2]
    sizes = {"width": width, "height": height, "double": 320 * height // width}
    lines = [columns.format(path=path, label=label, **sizes) for path, label in rows]
    (tmp_path / "list.txt").write_text("\n".join(lines) + "\n")
    dataset = {"label_file_list": [str(tmp_path / "list.txt")], "ds_width": True}
    config = tiny("student", **{f"Train.dataset.{key}": value for key, value in dataset.items()})
    found = list[Issue]()
    run_preflight(config, DIGITS, {"Train": FrameCounts({})}, warn=found.extend)
    assert [issue.code for issue in found if issue.level == "error"] == errors


@pytest.mark.parametrize("turns", [False, True])
def test_tall_images_are_named_unless_they_are_turned(tiny: Tiny, tmp_path: Path, turns: bool) -> None:
    file = flat(tmp_path, 3)
    values = {"Train.dataset.data_dir": str(tmp_path), "Train.dataset.label_file_list": [str(file)]}
    cv2.imwrite(str(tmp_path / "flat.png"), np.tile(np.arange(160, dtype=np.uint8)[:, None], 32))
    config, found = tiny("student", **values, **{"Global.turn_tall_images": turns}), list[Issue]()
    run_preflight(config, DIGITS, {"Train": FrameCounts({})}, warn=found.extend)
    assert [issue.code for issue in found if issue.code == "tall_image"] == ["tall_image"] * (not turns)


RULES = SampleRules(Charset.default(), 5)
NAMES = ["a.png", "b.png", "c.png", "d.png", "copy_of_a.png", "sub/../b.png", "./c.png", "in/d.png"]
SAME_PATH = {"sub/../b.png": "b.png", "./c.png": "c.png", "in/d.png": "d.png"}


@pytest.fixture
def folder(tmp_path):
    for number, name in enumerate(NAMES[:4]):
        cv2.imwrite(str(tmp_path / name), np.full((8, 24, 3), 50 * number, np.uint8))
    (tmp_path / "copy_of_a.png").write_bytes((tmp_path / "a.png").read_bytes())
    (tmp_path / "sub").mkdir()
    (tmp_path / "in").symlink_to(".")
    return tmp_path


def report_of(folder: Path, *files: list[str]) -> PreflightReport:
    paths = []
    for number, lines in enumerate(files):
        paths.append(folder / f"{len(list(folder.glob('*.txt')))}_{number}.txt")
        paths[-1].write_text("".join(f"{line}\n" for line in lines))
    return check_label_files(paths, folder, RULES)


def pairs(trained: list[list[str]], evaluated: list[list[str]], same: dict[str, str]) -> dict[str, int]:
    """Count as the documentation says, by comparing each sample with the first of its image."""
    first: dict[str, tuple[str, int, int]] = {}
    counts = dict.fromkeys(("trained_samples", "conflicting_labels", "repeated_samples"), 0)
    for section, files in enumerate((trained, evaluated)):
        for file, lines in enumerate(files):
            for line in lines:
                name, label = line.lower().split("\t")
                if label == "?":  # cannot be used
                    continue
                image = same.get(name, name)
                known, at_section, at_file = first.setdefault(image, (label, section, file))
                counts["trained_samples"] += at_section < section
                counts["conflicting_labels"] += known != label
                counts["repeated_samples"] += known == label and at_section == section and at_file != file
    return {kind: count for kind, count in counts.items() if count}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("by_content", [True, False])
def test_counts_are_those_of_all_pairs(folder, seed, by_content):
    draw = random.Random(seed)
    same = SAME_PATH | ({"copy_of_a.png": "a.png"} if by_content else {})

    def lines() -> list[str]:
        return [f"{draw.choice(NAMES)}\t{draw.choice('aAb?')}" for _ in range(draw.randint(1, 5))] + [
            "b.png\tb"
        ]

    trained, evaluated = [lines(), lines()], [lines(), lines()]
    found = compare_images([report_of(folder, *trained), report_of(folder, *evaluated)], by_content)
    assert {kind: count for kind, (count, _) in found.items()} == pairs(trained, evaluated, same)


def test_examples_name_both_samples_in_their_order(folder):
    train = report_of(folder, ["d.png\t1", "nothing", "a.png\t1", "b.png\t2"])
    evaluated = report_of(folder, ["copy_of_a.png\t3", "c.png\t4", "b.png\t2", *["a.png\t1"] * 9])
    found = compare_images([train, evaluated], by_content=True)
    ours, theirs = evaluated.files[0].path, train.files[0].path
    count, examples = found["trained_samples"]
    assert count == 11 and examples == [
        ((f"{theirs}:3", "a.png", "1"), (f"{ours}:1", "copy_of_a.png", "3")),
        ((f"{theirs}:4", "b.png", "2"), (f"{ours}:3", "b.png", "2")),
        ((f"{theirs}:3", "a.png", "1"), (f"{ours}:4", "a.png", "1")),
    ]
    assert found["conflicting_labels"] == (1, examples[:1])


def test_each_image_of_a_line_counts_but_the_line_once(folder):
    train = report_of(folder, ["a.png\t1", "b.png\t1"])
    evaluated = report_of(folder, ['["copy_of_a.png", "b.png", "c.png"]\t1'])
    count, _ = compare_images([train, evaluated], by_content=True)["trained_samples"]
    assert count == 1


@pytest.mark.parametrize("by_content", [True, False])
def test_lmdbs(tmp_path, by_content):
    pictures = [
        cv2.imencode(".png", np.full((8, 24, 3), 50 * number, np.uint8))[1].tobytes() for number in range(4)
    ]
    write_lmdb(tmp_path / "train", ["1", "2", "3"], images=dict(enumerate(pictures, start=1)))
    write_lmdb(tmp_path / "eval", ["1", "3"], images={1: pictures[3], 2: pictures[2]})
    train, evaluated = (check_lmdbs(tmp_path / name, RULES) for name in ("train", "eval"))
    expected = {}
    if by_content:
        places = f"{tmp_path / 'train'}#3", f"{tmp_path / 'eval'}#2"
        expected = {
            "trained_samples": (
                1,
                [((places[0], "image-000000003", "3"), (places[1], "image-000000002", "3"))],
            )
        }
    assert compare_images([train, evaluated], by_content) == expected
    assert compare_images([train, train], by_content)["trained_samples"][0] == 3


def test_an_image_that_is_gone_since_the_check_is_compared_by_its_path(folder):
    train, evaluated = (
        report_of(folder, ["a.png\t1", "b.png\t1"]),
        report_of(folder, ["a.png\t1", "c.png\t1"]),
    )
    (folder / "a.png").unlink()
    assert compare_images([train, evaluated], by_content=True)["trained_samples"][0] == 1
