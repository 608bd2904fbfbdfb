from __future__ import annotations

import base64
import csv
import json
from pathlib import Path

import cv2
import numpy as np
import pytest

from ppocr_ext.cli.main import main
from ppocr_ext.evaluation.predictions import Prediction, write_predictions

LABELS = ["未来", "末日", "土地", "O0", "来日"]
BEFORE = ["末来", "末日", "士地", "OO", "来日"]
AFTER = ["未来", "末日", "士地", "O0", "来曰"]


def predictions(texts: list[str], image: str = "{}.png", first: int = 0) -> list[Prediction]:
    pairs = enumerate(zip(LABELS, texts, strict=True), start=first)
    return [Prediction(image.format(i), label, text, 0.9) for i, (label, text) in pairs]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    write_predictions(tmp_path / "before.tsv", predictions(BEFORE))
    write_predictions(tmp_path / "after.tsv", predictions(AFTER))
    for i in range(5):
        cv2.imwrite(str(tmp_path / f"{i}.png"), np.full([20, 60, 3], 40 * i, np.uint8))
    return tmp_path


def run(files: Path, *more: str) -> int:
    return main(["confusions", str(files / "after.tsv"), "--out", str(files / "out"), *more])


def test_before_and_after(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = run(files, "--before", str(files / "before.tsv"), "--data-dir", str(files))
    said = capsys.readouterr().out
    assert code == 0, said
    found = json.loads((files / "out.json").read_text())
    assert found["after"]["accuracy"]["value"] == pytest.approx(3 / 5)
    assert found["before"]["accuracy"]["value"] == pytest.approx(2 / 5)
    assert found["lines"] == {"only_before_correct": 1, "only_after_correct": 2, "mcnemar_p": 1.0}
    pairs = (files / "out_pairs.tsv").read_text().splitlines()
    assert pairs == [
        "character\tread_as\tcount\tbefore",
        "土\t士\t1\t1",
        "日\t曰\t1\t0",
        "0\tO\t0\t1",
        "未\t末\t0\t1",
    ]
    assert found["look_alikes"] == {"only_before_correct": 1, "only_after_correct": 2, "mcnemar_p": 1.0}
    assert "\nlines: 2 became right, 1 became wrong" in said
    assert "\nlook-alikes: 2 became right, 1 became wrong" in said
    page = (files / "out.html").read_text()
    assert page.count("data:image/png;base64,") == 2
    assert "土 → 士</span>, once" in page and "CJK UNIFIED IDEOGRAPH-571F (U+571F) → " in page
    assert "<dt>before</dt><dd>来日</dd>" in page  # 日 was read, before 曰 was
    characters = (files / "out_characters.tsv").read_text().splitlines()
    assert characters[1].startswith("土\t1\t0\t0\t\t0.0000")


def test_groups_of_look_alikes_are_tabled(files: Path) -> None:
    (files / "groups.txt").write_text("未末来\nO0o\n土士\n日目\n己已\n", encoding="utf-8")
    run(files, "--groups", str(files / "groups.txt"), "--before", str(files / "before.tsv"))
    assert (files / "out_groups.tsv").read_text().splitlines() == [
        "group\tcount\tconfused\tshare\tbefore",
        "土士\t1\t1\t1.0000\t1",
        "未末来\t4\t0\t0.0000\t1",
        "O0o\t2\t0\t0.0000\t1",
        "日目\t2\t0\t0.0000\t0",
    ]
    assert json.loads((files / "out.json").read_text())["before"]["by_group"]["未末来"] == {
        "confused": 1,
        "of": 4,
    }
    page = (files / "out.html").read_text()
    assert '<span class="glyphs">未 末 来</span></td><td>0</td><td>1</td><td>4</td>' in page
    assert "日 目" not in page  # never confused
    run(files, "--groups", str(files / "groups.txt"))
    assert (files / "out_groups.tsv").read_text().splitlines()[1] == "土士\t1\t1\t1.0000"
    page = (files / "out.html").read_text()
    assert "土 士" in page and "未 末 来" not in page


def test_look_alike_error_of_groups_of_one_s_own(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (files / "groups.txt").write_text("土士\n日目\n", encoding="utf-8")
    (files / "dict.txt").write_text("日\n目\n", encoding="utf-8")
    run(files, "--groups", str(files / "groups.txt"))
    found = json.loads((files / "out.json").read_text())["after"]["look_alike_error"]
    assert (found["value"], found["of"]) == (pytest.approx(1 / 3), 3)  # 土 as 士; 日 as 曰 is of no group
    run(files, "--groups", str(files / "groups.txt"), "--dict", str(files / "dict.txt"))
    found = json.loads((files / "out.json").read_text())["after"]["look_alike_error"]
    assert (found["value"], found["of"]) == (0.0, 2)
    (files / "groups.txt").write_text("xy\n", encoding="utf-8")  # a share of nothing
    run(files, "--groups", str(files / "groups.txt"))
    assert json.loads((files / "out.json").read_text())["after"]["look_alike_error"]["value"] is None
    (files / "dict.txt").write_text("我\n你\n", encoding="utf-8")
    assert run(files, "--dict", str(files / "dict.txt")) == 2
    assert "[no_look_alikes]" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "code"),
    [
        (["--max-drop", "0.1"], "missing_option"),
        (["--general-before", "after.tsv"], "missing_option"),
        (["--general", "x", "--general-before", "x", "--max-drop", "2"], "bad_value"),
        (["--before", "none.tsv"], "unreadable_file"),
    ],
)
def test_what_cannot_be_done(
    files: Path, capsys: pytest.CaptureFixture[str], more: list[str], code: str
) -> None:
    assert run(files, *more) == 2
    assert f"[{code}]" in capsys.readouterr().err


def test_the_limit_of_a_fall_on_a_general_list(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert 4 / 5 - 3 / 5 > 0.2  # as floats have it
    write_predictions(files / "earlier.tsv", predictions([*LABELS[:4], "来曰"]))
    general = ["--general", str(files / "after.tsv"), "--general-before", str(files / "earlier.tsv")]
    assert run(files, *general, "--max-drop", "0.2") == 0
    assert "--max-drop" not in capsys.readouterr().out
    assert run(files, *general, "--max-drop", "0.1999") == 1
    assert "20.00% (limit: 19.99%, --max-drop)" in capsys.readouterr().out


def test_images_that_are_not_there_are_said(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(files, "--data-dir", str(files / "elsewhere")) == 0
    said = f"0 of 2 images found below {files / 'elsewhere'}"
    assert f"\n{said}\n" in capsys.readouterr().out
    assert f"<p>{said}.</p>" in (files / "out.html").read_text()
    assert run(files, "--data-dir", str(files)) == run(files) == 0
    assert "images found" not in capsys.readouterr().out


@pytest.mark.parametrize("data_dir", ["lmdb", ".", "moved"])
def test_lines_of_an_lmdb_are_shown(files: Path, capsys: pytest.CaptureFixture[str], data_dir: str) -> None:
    lmdb = pytest.importorskip("lmdb")
    with lmdb.open(str(files / "lmdb")) as environment, environment.begin(write=True) as transaction:
        transaction.put(b"num-samples", b"5")
        for i, label in enumerate(LABELS, start=1):
            transaction.put(b"label-%09d" % i, label.encode())
            transaction.put(b"image-%09d" % i, (files / f"{i - 1}.png").read_bytes())
    write_predictions(files / "after.tsv", predictions(AFTER, f"{files / 'lmdb'}#{{}}", 1))
    if data_dir == "moved":
        (files / "moved").mkdir()
        (files / "lmdb").rename(files / "moved" / "lmdb")
    assert run(files, "--data-dir", str(files / data_dir)) == 0
    assert "images found" not in capsys.readouterr().out
    page = (files / "out.html").read_text()
    assert base64.b64encode((files / "2.png").read_bytes()[:16]).decode()[:20] in page
    assert page.count("data:image/png;base64,") == 2


def test_characters_that_separate_are_quoted(files: Path) -> None:
    write_predictions(files / "after.tsv", [Prediction("0.png", '\t"a', "bc\n", 0.5)])
    assert run(files) == 0
    for name in ("pairs", "characters"):
        with (files / f"out_{name}.tsv").open(newline="", encoding="utf-8") as stream:
            rows = list(csv.reader(stream, delimiter="\t"))
        assert len({len(row) for row in rows}) == 1
        assert {"\t", '"', "a"} <= {row[0] for row in rows}
