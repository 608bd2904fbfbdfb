"""The report page: what it shows of whole and of broken runs, and that nothing in it is taken for markup."""

from __future__ import annotations

import base64
import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import cv2
import numpy as np
import pytest

from ppocr_ext.cli.main import main
from ppocr_ext.errors import DataError
from ppocr_ext.metrics import SPACES_IGNORED
from ppocr_ext.report.run_page import write_report as write

EVIL = "</dd><script>alert('x')</script><img src=http://evil.example/a.png onerror=\"x\">\ud800\x00&amp;"
VOID = {"meta", "img", "br", "hr", "link", "input"}


class Page(HTMLParser):
    """Tags, attributes and text of a page; refuses tags that are not closed in their order."""

    def __init__(self, path):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.attributes, self.words = [], [], [], []
        self.feed(path.read_text(encoding="utf-8"))
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attributes]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attributes]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self):
        return re.sub(r"\s+", " ", " ".join(self.words))


def write_report(paths, out, **options):
    write(paths, out, **options)
    return out


def figure(out, title):
    """The plot of the page ``out`` with this title."""
    found = re.search(rf"<figcaption>{title}</figcaption>(<svg.*?</svg>)", out.read_text())
    return ET.fromstring(found.group(1))


def line_of(svg, kind="line"):
    path = next(p for p in svg.iter("path") if p.get("class") == kind)
    return [tuple(map(float, pair.split())) for pair in re.split("[ML]", path.get("d")) if pair]


def write_metrics(folder, lines):
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def png(height=20, width=60):
    image = np.full((height, width, 3), 200, np.uint8)
    return bytes(cv2.imencode(".png", image)[1])


def make_run(folder, *, accuracies=(0.5, 0.949999, 0.93), learning_rate=0.001, evil="", **record):
    """A run folder as training leaves it."""
    folder.mkdir(parents=True)
    lines = []
    for number, accuracy in enumerate(accuracies, start=1):
        for step in (number * 100 - 50, number * 100):
            losses = {"loss_ctc": 30 / step, f"loss_nrtr{evil}": 1.0}
            lines.append(
                {"kind": "train", "epoch": number, "step": step, "time": step / 2, "lr": learning_rate}
                | {"loss": sum(losses.values()), "losses": losses, "ips": 80.0 + number}
            )
        lines.append(
            {"kind": "eval", "epoch": number, "step": number * 100, "time": number * 50.0, "acc": accuracy}
            | {"norm_edit_dis": (1 + accuracy) / 2, "fps": 500.0}
        )
    write_metrics(folder, lines)
    whole = {
        "status": "finished",
        "reason": evil,
        "started": "2026-01-31T14:05:09+00:00",
        "ended": "2026-01-31T14:09:00+00:00",
        "parameters": {"all": 612_345, "trained": 600_000},
        "parts": [
            {"name": f"backbone{evil}", "parameters": 512_345, "trained": 0, "rates": []},
            {"name": "head", "parameters": 100_000, "trained": 90_000, "rates": [0.1, 1.0]},
        ],
        "device": "cpu",
        "seed": 7,
        "versions": {"paddle": "3.3.1", f"numpy{evil}": "2.4.6"},
        "host": {"form": "wheel", "version": "2.10.0"},
    }
    (folder / "run.json").write_text(json.dumps(whole | record))
    rejected = [{"file": f"train{evil}.txt", "line": 3, "reason": "too_long", "detail": "27 of 25"}]
    found = {"Train": {"total": 1200, "usable": 1199, "counts": {"too_long": 1}, "rejected": rejected}}
    warning = {
        "code": "loss_weight",
        "path": "Loss.weight_2",
        "where": "my.yml:3",
        "message": f"found 0{evil}",
    }
    found["warnings"] = [warning]
    (folder / "preflight.json").write_text(json.dumps(found))
    config = {
        "Global": {"epoch_num": 3, "save_model_dir": str(folder), "note": evil.replace("\ud800", "")},
        "Optimizer": {"lr": {"learning_rate": learning_rate}},
        "Eval": {
            "dataset": {"data_dir": str(folder.parent), "transforms": [{"Resize": {"shape": [3, 32, 128]}}]}
        },
    }
    (folder / "config.yml").write_text(json.dumps(config))
    picture = base64.b64encode(png()).decode()
    samples = [
        {"label": f"0715{evil}", "text": f"0175{evil}", "confidence": 0.987, "right": False, "png": picture},
        {"label": "1", "text": "1", "confidence": None, "right": True, "png": "iVBORw0KGgo=="},
        {"label": "22", "text": "22", "confidence": 0.6, "right": True, "png": 'not base64 "><script>'},
    ]
    written = {"step": 300, "judged": 200, "wrong": 14, "samples": samples}
    (folder / "samples.json").write_text(json.dumps(written))
    return folder


def test_one_run(tmp_path):
    page = Page(write_report([make_run(tmp_path / "run")], tmp_path / "out" / "page.html"))
    text = page.text
    for shown in (
        "95.0% best accuracy, at step 200",  # the metric's 0.949999 is 190 of 200
        "93.0% last accuracy",
        "82.0 images/s in training",  # the median of 81, 81, 82, 82, 83, 83
        "2 min 30 s of training",
        "0.60 M parameters trained",
        "300, epoch 3 of 3",
        "2026-01-31 14:05 to 14:09 UTC",
        "2.10.0 wheel",
        "186 of 200 correct (93.0%)",
        "1,199 1 too_long",
        "train.txt:3: too_long: 27 of 25",
        "loss_weight my.yml:3: Loss.weight_2: found 0",
        "backbone 512,345 0 –",
        "head 100,000 90,000 × 0.1, × 1",
        "learning_rate",
    ):
        assert shown in text, shown
    assert page.tags.count("img") == 1  # those of the other samples are none


@pytest.mark.parametrize(("metric", "said"), [
    ({"name": "RecMetric"}, True),
    ({"name": "DistillationMetric", "key": "Student"}, True),
    ({"name": "RecMetric", "ignore_space": False}, False),
    ({"name": "MyMetric"}, False),
])  # fmt: skip
def test_the_page_says_that_spaces_are_ignored(tmp_path, metric, said):
    run = make_run(tmp_path / "run")
    config = json.loads((run / "config.yml").read_text())
    (run / "config.yml").write_text(json.dumps({**config, "Metric": metric}))
    with (run / "metrics.jsonl").open("a") as stream:
        line = {"kind": "eval", "epoch": 9, "step": 900, "time": 900, "acc": 0.9, "acc_with_space": 0.8125}
        stream.write(json.dumps(line) + "\n")
    (run / "p.tsv").write_text("image\tlabel\tprediction\tconfidence\na.png\ta b\tab\t0.5\n")
    page = Page(write_report([run], tmp_path / "page.html"))
    assert (SPACES_IGNORED in page.words) == said
    assert {"81.2%", "acc_with_space"} <= set(page.words)
    assert "0 of 1 correct (0.0%), spaces count" in page.text


def test_the_page_needs_nothing_outside_of_itself(tmp_path):
    out = write_report([make_run(tmp_path / "a"), make_run(tmp_path / "b")], tmp_path / "page.html")
    page = Page(out)
    assert not {"script", "link", "iframe", "object", "a", "base"} & set(page.tags)
    assert all(
        value.startswith("data:image/png;base64,") for _, name, value in page.attributes if name == "src"
    )
    assert not [name for _, name, _ in page.attributes if name.startswith("on") or name in ("href", "action")]
    assert not re.search(r"url\(|@import|https?:", out.read_text())


def test_nothing_from_a_file_is_taken_for_markup(tmp_path):
    runs = [make_run(tmp_path / "<b onclick=x>", evil=EVIL), make_run(tmp_path / "plain")]
    predictions = f'image\tlabel\tprediction\tconfidence\n"><script>\t{EVIL[:-8]}\t<u>\tnan\n'
    (runs[0] / "predictions.tsv").write_text(predictions.replace("\ud800", ""))
    plain = Page(write_report([runs[1], make_run(tmp_path / "other")], tmp_path / "plain.html"))
    page = Page(write_report(runs, tmp_path / "page.html", title=f"<i>{EVIL}"))
    assert set(page.tags) == set(plain.tags)
    assert {name for _, name, _ in page.attributes} == {name for _, name, _ in plain.attributes}
    assert page.tags.count("script") == 0 and "<b onclick=x>" in page.text
    assert "alert('x')" in page.text  # shown, not run


def test_a_run_that_was_killed(tmp_path):
    folder = make_run(tmp_path / "run", status="running")
    for name in ("run.json", "preflight.json", "config.yml", "samples.json"):
        (folder / name).unlink()
    with (folder / "metrics.jsonl").open("a") as stream:
        stream.write('{"kind": "tra')
    page = Page(write_report([folder], tmp_path / "page.html"))
    assert ("span", "class", "badge unknown") in page.attributes
    assert page.attributes.count(("p", "class", "note")) == 3  # run.json, preflight.json, config.yml
    assert "95.0% best accuracy, at step 200" in page.text


BROKEN = [
    "",
    "[]",
    "{",
    '{"samples": 3}',
    '{"parameters": [], "versions": 3, "parts": [3, {"rates": 3}]}',
    "\x00",
]


@pytest.mark.parametrize("broken", BROKEN)
def test_broken_records_cost_only_what_they_would_have_said(tmp_path, broken):
    folder = make_run(tmp_path / "run")
    for name in ("run.json", "preflight.json", "config.yml", "samples.json", "general.json"):
        (folder / name).write_text(broken)
    assert "95.0%" in Page(write_report([folder], tmp_path / "page.html")).words


@pytest.mark.parametrize(
    "broken", [b"\xff\xfe\x00", b'{"kind": "train", "step": 1, "loss": 1' + b"0" * 400 + b"}\n"]
)
def test_broken_metrics_and_tables_are_no_error_of_the_program(tmp_path, broken):
    folder = make_run(tmp_path / "run")
    (folder / "metrics.jsonl").write_bytes(broken)
    (folder / "preflight.json").write_text('{"Train": {"total": 3, "rejected": 5}}')
    (folder / "x.tsv").write_text("image\tlabel\tprediction\tconfidence\na\t" + "b" * 200_000 + "\tc\t1\n")
    page = Page(write_report([folder], tmp_path / "page.html"))
    assert "last evaluation, step 300" in page.text and page.tags.count("details") == 2  # samples, config.yml


def test_a_run_that_has_only_begun_or_went_wrong_at_once(tmp_path):
    for reason, words in (("signal 2", "by Ctrl-C (SIGINT)"), ("signal 15", "by SIGTERM")):
        make_run(tmp_path / reason[-1], status="stopped", reason=reason)
        text = Page(write_report([tmp_path / reason[-1]], tmp_path / "report.html")).text
        assert words in text and reason not in text
    folder = make_run(tmp_path / "run", status="failed", reason="OSError: no space")
    (folder / "metrics.jsonl").write_text("")
    page = Page(write_report([folder], tmp_path / "page.html"))
    assert {("span", "class", "badge failed"), ("p", "class", "note failed")} <= set(page.attributes)
    assert "no evaluation yet" in page.text and "OSError: no space" in page.text
    (folder / "metrics.jsonl").write_text(
        '{"kind": "train", "step": 1, "loss": null, "losses": {"a": null}}\n'
    )
    Page(write_report([folder], tmp_path / "page.html"))


def test_several_runs_show_the_keys_that_differ_and_no_others(tmp_path):
    runs = [make_run(tmp_path / "a"), make_run(tmp_path / "b", learning_rate=0.005, accuracies=[0.97])]
    out = write_report(runs, tmp_path / "page.html")
    table = re.findall(r'<table class="left wrap">.*?</table>', out.read_text(), re.DOTALL)[-1]
    cells = re.findall(r"<td>(.*?)</td>", table)
    assert cells == ["Optimizer.lr.learning_rate", "0.001", "0.005"]
    text = Page(out).text
    assert "a finished 95.0% 200 93.0%" in text and "b finished 97.0% 100 97.0%" in text


def test_the_last_of_equals_is_the_best_as_in_best_accuracy(tmp_path):
    out = write_report([make_run(tmp_path / "run", accuracies=(0.8, 0.9, 0.9))], tmp_path / "page.html")
    marked = re.findall(r'<tr class="top"><td>(\d+)</td>', out.read_text())
    assert marked == ["300"]


def test_curves_lie_where_their_ticks_say(tmp_path):
    out = write_report([make_run(tmp_path / "run", accuracies=(0.5, 1.0))], tmp_path / "page.html")
    svg = figure(out, "accuracy, held out")
    ticks = {t.text: t for t in svg.iter("text")}
    (x1, y1), (x2, y2) = line_of(svg)
    assert (y1, y2) == pytest.approx((float(ticks["50%"].get("y")), float(ticks["100%"].get("y"))), abs=0.11)
    assert (x1, x2) == pytest.approx((float(ticks["100"].get("x")), float(ticks["200"].get("x"))), abs=0.11)
    assert [c.find("title").text for c in svg.iter("circle")] == [
        "run, step 100: 50.0%",
        "run, step 200: 100.0%",
    ]


def add_general(folder, points, best):
    """Let a run have read a general list: at the first two evaluations, and for weights on the way back.

    The second evaluation is the greatest, but loses too much.
    """
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for line, value in zip([line for line in lines if line["kind"] == "eval"], (0.9, 0.6), strict=False):
        line |= {"general_acc": value, "is_best": value > 0.8}
    write_metrics(folder, lines)
    keys = ("share", "accuracy", "general")
    content = {
        "before": 0.9,
        "max_drop": 0.1,
        "points": [dict(zip(keys, point, strict=True)) for point in points],
        "report": {"lines": 1500, "before": 0.9, "after": 0.85, "most_lost": 0.0625},
    }
    (folder / "general.json").write_text(json.dumps(content))
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(record | {"best": best}))
    return folder


@pytest.mark.parametrize(
    ("best", "marked", "words"),
    [
        ({"acc": 0.97, "share": 0.5}, ["50.0%"], "97.0% best accuracy, of weights at 50.0% of the way"),
        ({"acc": 0.5}, ["100"], "50.0% best accuracy, at step 100"),
        ({"acc": 0.1, "share": 0.0}, [], "10.0% best accuracy, of the start weights"),
    ],
)
def test_what_is_still_read_is_drawn_with_its_limit_and_the_chosen_weights(tmp_path, best, marked, words):
    points = [(0.5, 0.97, 0.8125), (0.75, 0.98, 0.7), (1.0, 0.93, 0.5)]
    run = add_general(make_run(tmp_path / "run"), points, best)
    out = write_report([run], tmp_path / "page.html")
    over_steps = figure(out, "accuracy, held out; dotted: general list")
    dots = [c.find("title").text for c in over_steps.iter("circle")]
    assert dots[-2:] == ["run, general list, step 100: 90.0%", "run, general list, step 200: 60.0%"]

    way = figure(out, "weights between those before and the last ones")
    ticks = {t.text: float(t.get("y")) for t in way.iter("text")}
    limit = float(
        re.findall(r"[\d.]+", next(p for p in way.iter("path") if p.get("class") == "limit").get("d"))[1]
    )
    assert limit == pytest.approx(ticks["75%"] + (ticks["100%"] - ticks["75%"]) / 5, abs=0.11)
    assert re.findall(r'<tr class="top"><td>([\d.]+%?)</td>', out.read_text()) == marked
    assert words in Page(out).text and "evaluation of the training" not in Page(out).text
    circles = [*over_steps.iter("circle"), *way.iter("circle")]
    large = [c.find("title").text for c in circles if c.get("class") == "best"]
    places = ["percent of the way 50: "] * 2 if "%" in str(marked) else [f"step {each}: " for each in marked]
    assert all(map(str.__contains__, large, places)) and len(large) == len(places)

    assert re.search(r"1,500 lines .* 90.0% .* 85.0% .* 6.2% are lost", Page(out).text)

    plain = make_run(tmp_path / "plain")
    both = Page(write_report([run, plain], tmp_path / "both.html")).text
    assert "What is still read run" in both and "dotted" not in Page(write_report([plain], out)).text


@pytest.mark.parametrize("points", [3, [], [3], [{"share": "1", "accuracy": None}], [{"share": 1e999}]])
def test_points_that_cannot_be_read_are_left_out(tmp_path, points):
    run = make_run(tmp_path / "run")
    without = Page(write_report([run], tmp_path / "page.html")).tags
    (run / "general.json").write_text(json.dumps({"before": 0.9, "max_drop": 0.1, "points": points}))
    assert Page(write_report([run], tmp_path / "page.html")).tags == without


def test_a_long_run_stays_a_small_page(tmp_path):
    folder = make_run(tmp_path / "run")
    lines = (
        {"kind": "train", "step": s, "loss": 1 + 1 / s, "losses": {}, "ips": s % 7} for s in range(1, 20_001)
    )
    write_metrics(folder, lines)
    out = write_report([folder], tmp_path / "page.html")
    assert out.stat().st_size < 100_000
    heights = [y for _, y in line_of(figure(out, "images/s"), "faint")]
    assert max(heights) - min(heights) > 100  # the spread of the values is kept


def test_many_evaluations_and_long_details_stay_a_small_page(tmp_path):
    folder = make_run(tmp_path / "run")
    lines = ({"kind": "eval", "step": s, "acc": 0.9 if s == 7 else 0.5} for s in range(1, 5001))
    write_metrics(folder, lines)
    rejected = [{"file": "a.txt", "line": 1, "reason": "bad_format", "detail": "x" * 100_000}] * 40
    (folder / "preflight.json").write_text(json.dumps({"Train": {"total": 40, "rejected": rejected}}))
    out = write_report([folder], tmp_path / "page.html")
    assert out.stat().st_size < 250_000
    page = Page(out)
    assert "the last 500 of 5,000, and the best" in page.text
    assert [value for _, name, value in page.attributes if (name, value) == ("class", "top")] == ["top"]
    assert ("circle", "class", "best") in page.attributes


def test_an_image_that_is_no_file_is_left_out(tmp_path):
    folder = make_run(tmp_path / "run")
    (folder / "p.tsv").write_text("image\tlabel\tprediction\tconfidence\n/dev/zero\t1\t2\t0.5\n")
    page = Page(write_report([folder], tmp_path / "page.html"))
    assert "/dev/zero" in page.words and page.tags.count("img") == 1  # the one of samples.json


def test_predictions_in_the_run_folder_are_shown_with_their_images(tmp_path):
    folder = make_run(tmp_path / "run")
    (folder / "samples.json").unlink()
    (tmp_path / "a.png").write_bytes(png(200, 2000))
    rows = [
        "image\tlabel\tprediction\tconfidence",
        "a.png\t12\t12\t0.90",
        "gone.png\t34\t39\t0.50",
        "b\t5\t\t0.0",
    ]
    (folder / "predictions.tsv").write_text("\n".join(rows) + "\n")
    (folder / "other.tsv").write_text("a table of another kind\n")
    page = Page(write_report([folder], tmp_path / "page.html"))
    assert "predictions.tsv: 1 of 3 correct (33.3%)" in page.text
    labels = [page.words[i + 1] for i, word in enumerate(page.words) if word == "label"]
    assert labels == ["3", "5", "12"]  # of 34 the 4 is marked, and stands apart
    assert ("div", "class", "samples long") in page.attributes  # a line of 2000 by 200 needs room
    (picture,) = [value for _, name, value in page.attributes if name == "src"]
    shrunk = cv2.imdecode(
        np.frombuffer(base64.b64decode(picture.partition(",")[2]), np.uint8), cv2.IMREAD_COLOR
    )
    assert shrunk.shape == (48, 480, 3)


def test_the_command(tmp_path, capsys):
    make_run(tmp_path / "runs" / "late", started="2026-02-01T00:00:00+00:00")
    make_run(tmp_path / "runs" / "early", started="2026-01-01T00:00:00+00:00")
    assert main(["report", str(tmp_path / "runs"), "--title", "both"]) == 0
    text = Page(tmp_path / "runs" / "report.html").text
    assert text.index("early") < text.index("late") and "both" in text
    assert ET.parse(tmp_path / "runs" / "report_curves.svg").getroot().tag.endswith("svg")
    out = tmp_path / "new" / "x.html"
    assert main(["report", str(tmp_path / "runs" / "late"), "-o", str(out), "--no-curves"]) == 0
    assert [file.name for file in out.parent.iterdir()] == ["x.html"]
    assert capsys.readouterr().out.splitlines()[-1] == f"report: {out}"


def test_a_folder_without_runs_is_refused(tmp_path):
    with pytest.raises(DataError) as error:
        write_report([tmp_path], tmp_path / "page.html")
    assert (error.value.code, str(tmp_path) in str(error.value)) == ("no_run", True)
    assert main(["report", str(tmp_path / "nowhere")]) == 2
