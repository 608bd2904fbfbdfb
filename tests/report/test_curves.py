"""metrics.jsonl is read as it was written, and curves of any number of runs are drawn."""

from __future__ import annotations

import json
import math
import re
import xml.etree.ElementTree as ET

import pytest
from error_codes import raises_code

from ppocr_ext.errors import DataError
from ppocr_ext.report.curves import color_mark, curves_file, figures, plots_of
from ppocr_ext.report.run_folder import RunFolder, read_metrics, read_runs, short_loss_name
from ppocr_ext.report.run_page import write_curves

SVG = "{http://www.w3.org/2000/svg}"


def train_line(step, loss=1.0, **more):
    line = {
        "kind": "train",
        "epoch": 1,
        "step": step,
        "time": step / 2,
        "lr": 1e-3,
        "loss": loss,
        "ips": 80.0,
    }
    return line | more


def eval_line(step, acc):
    return {"kind": "eval", "epoch": 1, "step": step, "acc": acc, "norm_edit_dis": acc}


def write(path, *lines, tail=""):
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + tail)
    return path


def test_series_have_steps_and_values(tmp_path):
    file = write(
        tmp_path / "metrics.jsonl",
        train_line(10, 4.0, losses={"loss_ctc": 3.0, "loss_nrtr": 1.0}),
        eval_line(15, 0.5),
        train_line(20, None, losses={"loss_ctc": None}),
    )
    for path in (file, tmp_path):
        metrics = read_metrics(path)
        (first, last) = metrics.series("train", "loss")
        assert first == (10, 4.0) and last[0] == 20 and math.isnan(last[1])
        assert metrics.loss_parts() == ["ctc", "nrtr"]
        assert metrics.loss_series("nrtr")[0] == (10, 1.0)
        assert metrics.series("eval", "acc") == [(15, 0.5)]
        assert not metrics.series("eval", "never")


def test_a_value_of_some_lines_is_one_curve(tmp_path):
    lines = [train_line(step, **({"text_length": 4.0 + step} if step % 2 else {})) for step in range(1, 8)]
    run = RunFolder(tmp_path, "a", read_metrics(write(tmp_path / "m.jsonl", *lines)))
    assert run.metrics.series("train", "text_length") == [(1, 5.0), (3, 7.0), (5, 9.0), (7, 11.0)]
    (title,) = re.findall(
        r"<figcaption>length of [^<]*</figcaption>.*?</svg>",
        figures(plots_of([run]), ["a"]),
    )
    assert title.count('class="line"') == 1 and "L" in re.findall(r'class="line" d="([^"]*)"', title)[0]


def test_runs_differ_by_their_dashes_and_24_of_them_by_dash_and_colour():
    marks = [color_mark(index) for index in range(24)]
    assert len(set(marks)) == 24
    dashes = [re.findall("stroke-dasharray=[^/]*", mark) for mark in marks]
    assert all(dashes[n] not in dashes[n + 1 : n + 4] for n in range(0, 24, 12))


@pytest.mark.parametrize("line", ["{}\n", "nonsense\n", '{"kind": "other", "step": 1}\n', "[]\n"])
def test_another_file_is_refused_with_its_line(tmp_path, line):
    file = tmp_path / "m.jsonl"
    file.write_text(line + json.dumps(train_line(10)) + "\n")
    with raises_code(DataError, "bad_content", f"{file}:1"):
        read_metrics(file)


def test_lines_written_again_after_a_resume_stand_in_for_the_first(tmp_path):
    lines = [train_line(10), train_line(20, 9.0), eval_line(20, 0.1), train_line(20, 2.0), eval_line(20, 0.3)]
    metrics = read_metrics(write(tmp_path / "m.jsonl", *lines))
    assert metrics.series("train", "loss") == [(10, 1.0), (20, 2.0)]
    assert metrics.series("eval", "acc") == [(20, 0.3)]


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("CTCLoss", "ctc"),
        ("loss_ctc_Student_0", "ctc"),
        ("loss_ctc_Teacher_1", "ctc_Teacher"),
        ("dkd_0", "dkd"),
        ("loss", "loss"),
    ],
)
def test_the_same_loss_has_the_same_name_alone_and_in_a_distillation(name, short):
    assert short_loss_name(name) == short


def points(path):
    return [tuple(map(float, pair.split())) for pair in re.split("[ML]", path.get("d")) if pair]


@pytest.mark.parametrize("runs", [1, 3, 8])
def test_curves_of_several_runs_in_a_file(tmp_path, runs):
    read = []
    for number in range(runs):
        losses = [{"loss_ctc": 5.0 / step, "loss_nrtr": 1.0} for step in range(1, 61)]
        lines = [
            train_line(i * 10, sum(parts.values()), losses=parts) for i, parts in enumerate(losses, start=1)
        ]
        lines[5]["loss"] = None
        file = write(
            tmp_path / f"{number}" / "metrics.jsonl", *lines, eval_line(300, 0.5), eval_line(600, 0.9)
        )
        read.append(RunFolder(file.parent, f"<run> {number}", read_metrics(file)))
    svg = ET.fromstring(curves_file(read, title="a & b"))
    texts = [text.text for text in svg.iter(f"{SVG}text")]
    assert texts[0] == "a & b" and {"loss", "ctc", "nrtr", "learning rate", "images/s"} <= set(texts)
    assert texts[-1] == f"<run> {runs - 1} (best 90.0% at step 600)"
    assert len(list(svg.iter(f"{SVG}svg"))) == 1 + 7  # the file, and a plot for each number
    # an SVG file stands alone: its style is inside, and no variable of the page is left in it
    (style,) = svg.iter(f"{SVG}style")
    assert "var(" not in style.text
    accuracies = [points(p) for p in svg.iter(f"{SVG}path") if p.get("class") == "line" and "L" in p.get("d")]
    assert len(accuracies[0]) == 2 and accuracies[0][0][0] < accuracies[0][1][0]


def test_nothing_or_one_evaluation_to_draw(tmp_path):
    file = write(tmp_path / "m.jsonl", eval_line(0, 0.2))
    assert ET.fromstring(curves_file([RunFolder(tmp_path, "x", read_metrics(file))])).tag == f"{SVG}svg"
    folder = write(tmp_path / "run" / "metrics.jsonl").parent
    assert curves_file([]) == ""
    assert write_curves(read_runs([folder]), tmp_path / "c.svg") is False
    assert not (tmp_path / "c.svg").exists()
