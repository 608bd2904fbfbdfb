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


def test_files_in_another_order_are_compared(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = ["--before", str(files / "before.tsv")]
    assert run(files, *both) == 0
    whole = (files / "out" / "confusions.json").read_text()
    write_predictions(
        files / "before.tsv", [*predictions(BEFORE)[::-1], Prediction("gone.png", "1", "1", 0.9)]
    )
    assert run(files, *both) == 0
    assert (files / "out" / "confusions.json").read_text() == whole
    assert f"left out: 1 only in {files / 'before.tsv'}; 5 samples are in both" in capsys.readouterr().out


def test_before_and_after(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = run(files, "--before", str(files / "before.tsv"), "--data-dir", str(files))
    said = capsys.readouterr().out
    assert code == 0, said
    found = json.loads((files / "out" / "confusions.json").read_text())
    assert found["after"]["accuracy"]["value"] == pytest.approx(3 / 5)
    assert found["before"]["accuracy"]["value"] == pytest.approx(2 / 5)
    lines = found["lines"]
    assert (lines["only_before_correct"], lines["only_after_correct"], lines["p_value"]) == (1, 2, 1.0)
    assert lines["verdict"] == "" and lines["gain"] == pytest.approx(0.2) and lines["pages"] == 0
    pairs = (files / "out/pairs.tsv").read_text().splitlines()
    assert pairs == [
        "character\tread_as\tcount\tbefore",
        "土\t士\t1\t1",
        "日\t曰\t1\t0",
        "0\tO\t0\t1",
        "未\t末\t0\t1",
    ]
    assert (found["look_alikes"]["only_before_correct"], found["look_alikes"]["only_after_correct"]) == (1, 2)
    assert "\n2 newly right, 1 newly wrong of 5 lines: " in said
    assert " look-alikes: no difference shown, p = 1 (McNemar's exact test)\n" in said
    assert (files / "out/lines.tsv").read_text().splitlines() == [
        "change\timage\tlabel\tbefore\tprediction",
        "newly wrong\t4.png\t来日\t来日\t来曰",
        "newly right\t0.png\t未来\t末来\t未来",
        "newly right\t3.png\tO0\tOO\tO0",
    ]
    page = (files / "out" / "confusions.html").read_text()
    assert page.count("data:image/png;base64,") == 5  # of 3 changed lines and of 2 pairs
    assert page.index("2 newly right, 1 newly wrong of 5 lines") < page.index("Newly wrong lines: 1<")
    assert "土 → 士</span>, once" in page and "CJK UNIFIED IDEOGRAPH-571F (U+571F) → " in page
    assert "<dt>before</dt><dd>来日</dd>" in page  # 日 was read, before 曰 was
    characters = (files / "out/characters.tsv").read_text().splitlines()
    assert characters[1].startswith("土\t1\t0\t0\t\t0.0000")


def test_what_is_deleted_and_inserted_is_ranked_apart(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = [("1.5 kg", "15kg"), ("2.5", "25"), ("7", "7-"), ("8", "3")]
    write_predictions(files / "after.tsv", [Prediction("", *each, 0.9) for each in texts])
    write_predictions(files / "before.tsv", [Prediction("", label, f".{label}", 0.9) for label, _ in texts])
    assert run(files, "--before", str(files / "before.tsv")) == 0
    tables = {
        name: (files / "out" / f"{name}.tsv").read_text().splitlines()[1:] for name in ("pairs", "deletions")
    }
    assert tables == {"pairs": ["8\t3\t1\t0"], "deletions": [".\t\t2\t0", " \t\t1\t0"]}
    assert (files / "out/insertions.tsv").read_text().splitlines()[1:] == ["\t-\t1\t0", "\t.\t0\t4"]
    found = json.loads((files / "out" / "confusions.json").read_text())
    assert found["after"]["deletions"] == [[".", "", 2], [" ", "", 1]]
    assert "space → nothing: 1 (was 0)" in capsys.readouterr().out
    assert ". → nothing</span></td>" in (files / "out" / "confusions.html").read_text()


def many(files: Path, name: str, wrong: range, image: str = "{}.png") -> str:
    rows = [Prediction(image.format(n), "1", "7" if n in wrong else "1", 0.9) for n in range(200)]
    write_predictions(files / name, rows)
    return str(files / name)


def test_one_sentence_says_what_can_be_told(files: Path) -> None:
    def words(name: str = "lines") -> str:
        return str(json.loads((files / "out" / "confusions.json").read_text())[name]["in_words"])

    before = many(files, "before.tsv", range(12))
    many(files, "after.tsv", range(0))
    assert run(files, "--before", before) == 0
    assert words() == "12 newly right, 0 newly wrong of 200 lines: better, p = 0.00049 (McNemar's exact test)"
    assert '<p class="note finished">12 newly right' in (files / "out" / "confusions.html").read_text()
    many(files, "after.tsv", range(2, 14))
    assert run(files, "--before", before) == 0
    assert "; the loss may be up to 2.1 points; to exclude 0.5 points" in words()
    assert words().endswith("takes about 5,131 lines")
    both = ("--general", str(files / "after.tsv"), "--general-before", before)
    assert run(files, *both, "--max-drop", "0.02") == 0
    assert "to exclude 2 points" in words("general_lines")
    for pages, expected in ((40, "(by 40 pages, "), (1, "the loss may be up to 46 points")):
        for name, wrong in (("before.tsv", range(12)), ("after.tsv", range(2, 14))):
            rows = [Prediction(f"p{n % pages}_crop_{n}.png", "1", "17"[n in wrong], 0.9) for n in range(200)]
            write_predictions(files / name, rows)
        assert run(files, "--before", before) == 0
        assert expected in words()


def test_images_that_chose_the_checkpoint_are_refused(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (files / "run").mkdir()
    (files / "val").mkdir()
    dataset = f"{{name: SimpleDataSet, data_dir: {files / 'val'}, label_file_list: [{files / 'val.txt'}]}}"
    (files / "run" / "config.yml").write_text(f"Eval: {{dataset: {dataset}}}\n", encoding="utf-8")
    chosen = ("--run", str(files / "run"))
    assert run(files, *chosen) == 0 and "val.txt, which cannot be read" in capsys.readouterr().out
    (files / "val.txt").write_text("2.png\tother\nmine.png\t土地\n", encoding="utf-8")
    (files / "val" / "2.png").write_bytes(b"another image of that name")
    assert run(files, *chosen, "--data-dir", str(files)) == 0
    assert "val.txt (2 images, none of them tested)" in (files / "out" / "confusions.html").read_text()
    (files / "val" / "mine.png").write_bytes((files / "4.png").read_bytes())
    assert run(files, *chosen, "--data-dir", str(files)) == 2
    said = capsys.readouterr().err
    assert "[images_in_both]" in said and "1 of 5 images" in said and "4.png" in said
    (files / "val.txt").write_text("2.png\t土地\n", encoding="utf-8")
    assert run(files, *chosen, "--data-dir", str(files)) == 0  # the contents differ
    assert run(files, *chosen) == 2  # the same name and label
    assert run(files, "--run", str(files / "val")) == 2
    general = f"{{dataset: {{label_file_list: [{files / 'general.txt'}]}}}}"
    config = f"Eval: {{dataset: {dataset}, general: {general}}}\n"
    (files / "run" / "config.yml").write_text(config, encoding="utf-8")
    (files / "val.txt").write_text("2.png\tother\n", encoding="utf-8")
    (files / "general.txt").write_text("2.png\tother\n", encoding="utf-8")
    assert run(files, *chosen) == 0
    assert "; and, as Eval.general, " in (files / "out" / "confusions.html").read_text()
    (files / "general.txt").write_text("mine.png\tany\n", encoding="utf-8")
    capsys.readouterr()
    assert run(files, *chosen, "--data-dir", str(files)) == 2
    assert "general.txt: 4.png" in capsys.readouterr().err


def test_groups_of_look_alikes_are_tabled(files: Path) -> None:
    (files / "groups.txt").write_text("未末来\nO0o\n土士\n日目\n己已\n", encoding="utf-8")
    run(files, "--groups", str(files / "groups.txt"), "--before", str(files / "before.tsv"))
    assert (files / "out/groups.tsv").read_text().splitlines() == [
        "group\tcount\tconfused\tshare\tbefore",
        "土士\t1\t1\t1.0000\t1",
        "未末来\t4\t0\t0.0000\t1",
        "O0o\t2\t0\t0.0000\t1",
        "日目\t2\t0\t0.0000\t0",
    ]
    assert json.loads((files / "out" / "confusions.json").read_text())["before"]["by_group"]["未末来"] == {
        "confused": 1,
        "of": 4,
    }
    page = (files / "out" / "confusions.html").read_text()
    assert '<span class="glyphs">未 末 来</span></td><td>0</td><td>1</td><td>4</td>' in page
    assert "日 目" not in page  # never confused
    run(files, "--groups", str(files / "groups.txt"))
    assert (files / "out/groups.tsv").read_text().splitlines()[1] == "土士\t1\t1\t1.0000"
    page = (files / "out" / "confusions.html").read_text()
    assert "土 士" in page and "未 末 来" not in page


def test_look_alike_error_of_groups_of_one_s_own(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (files / "groups.txt").write_text("土士\n日目\n", encoding="utf-8")
    (files / "dict.txt").write_text("日\n目\n", encoding="utf-8")
    run(files, "--groups", str(files / "groups.txt"))
    found = json.loads((files / "out" / "confusions.json").read_text())["after"]["look_alike_error"]
    assert (found["value"], found["of"]) == (pytest.approx(1 / 3), 3)  # 土 as 士; 日 as 曰 is of no group
    run(files, "--groups", str(files / "groups.txt"), "--dict", str(files / "dict.txt"))
    found = json.loads((files / "out" / "confusions.json").read_text())["after"]["look_alike_error"]
    assert (found["value"], found["of"]) == (0.0, 2)
    (files / "groups.txt").write_text("xy\n", encoding="utf-8")  # a share of nothing
    run(files, "--groups", str(files / "groups.txt"))
    assert (
        json.loads((files / "out" / "confusions.json").read_text())["after"]["look_alike_error"]["value"]
        is None
    )
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
    assert f"<p>{said}.</p>" in (files / "out" / "confusions.html").read_text()
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
    page = (files / "out" / "confusions.html").read_text()
    assert base64.b64encode((files / "2.png").read_bytes()[:16]).decode()[:20] in page
    assert page.count("data:image/png;base64,") == 2


def test_characters_that_separate_are_quoted(files: Path) -> None:
    write_predictions(files / "after.tsv", [Prediction("0.png", '\t"a', "bc\n", 0.5)])
    assert run(files) == 0
    for name in ("pairs", "characters"):
        with (files / "out" / f"{name}.tsv").open(newline="", encoding="utf-8") as stream:
            rows = list(csv.reader(stream, delimiter="\t"))
        assert len({len(row) for row in rows}) == 1
        assert {"\t", '"', "a"} <= {row[0] for row in rows}
