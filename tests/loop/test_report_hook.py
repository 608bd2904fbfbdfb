"""What a run leaves of its last evaluation, and the page at its end."""

import base64
import json
import types

import cv2
import numpy as np
import pytest

from ppocr_ext.evaluation.evaluate import evaluate
from ppocr_ext.loop.events import EvalDone, Hook, Position
from ppocr_ext.loop.hooks.report_hook import ReportHook
from ppocr_ext.loop.session import train
from ppocr_ext.metrics import DistillationMetric, RecMetric
from ppocr_ext.report import run_page
from ppocr_ext.report.page_samples import KEPT, KEPT_WRONG
from ppocr_ext.run.run import Run

POSITION = Position(0, 5, 5, 1, 5)


def decoded(png):
    return cv2.imdecode(np.frombuffer(base64.b64decode(png), np.uint8), cv2.IMREAD_UNCHANGED)


def test_a_run_ends_with_samples_and_a_page(tiny, tmp_path, captchas):
    folder = tmp_path / "run"
    train(tiny("distill", **{"Global.report": True}))
    written = json.loads((folder / "samples.json").read_text())
    run = Run.build(tiny("distill", **{"Global.checkpoints": str(folder / "latest")}), "eval")
    read = {p.label: p for p in evaluate(run).predictions}
    assert (written["step"], written["judged"], len(written["samples"])) == (6, 10, 10)
    for sample in written["samples"]:
        same = read.pop(sample["label"])
        assert (sample["text"], sample["right"]) == (same.text, same.text == same.label)
        assert sample["confidence"] == pytest.approx(same.confidence, abs=1e-3)
        file = cv2.resize(cv2.imread(str(captchas / same.image)), (128, 32))
        assert np.abs(decoded(sample["png"]).astype(int) - file).max() <= 1
    text = (folder / "report.html").read_text()
    assert "finished" in text and text.count("data:image/png;base64,") == 10


def test_a_page_is_written_of_a_run_that_fails_unless_it_is_not_wanted(tiny, tmp_path):
    class Fail(Hook):
        def on_step(self, step):
            raise OSError("the cable is out")

    for wanted in (True, False):
        folder = tmp_path / f"run_{wanted}"
        values = {"Global.save_model_dir": str(folder), "Global.report": wanted}
        with pytest.raises(OSError, match="cable"):
            train(tiny("student", **values), hooks=[Fail()])
        assert (folder / "report.html").is_file() == wanted
    assert "the cable is out" in (tmp_path / "run_True" / "report.html").read_text()


def test_a_page_that_cannot_be_written_does_not_fail_the_run(tiny, tmp_path, monkeypatch):
    def fail(*args):
        raise ZeroDivisionError("a mistake in the page")

    monkeypatch.setattr(run_page, "page", fail)
    assert train(tiny("student", **{"Global.report": True, "Global.epoch_num": 1})).status == "finished"
    log = (tmp_path / "run" / "train.log").read_text()
    assert "no report: ZeroDivisionError: a mistake in the page" in log


def started(metric, folder):
    run = types.SimpleNamespace(metric=metric, context=types.SimpleNamespace(folder=folder), network=None)
    hook = ReportHook()
    hook.on_start(run, types.SimpleNamespace(loss=None, amp=None))
    return hook, hook.wrap_metric(metric)


def evaluated(metric, tmp_path, *batches):
    hook, metric = started(metric, tmp_path)
    for lines, images in batches:
        metric(lines, [images])
    numbers = metric.get_metric()
    hook.on_eval(EvalDone(POSITION, numbers, True, numbers))
    return numbers, json.loads((tmp_path / "samples.json").read_text())


def test_the_surest_mistakes_come_first_then_the_least_sure_of_what_is_right(tmp_path):
    generator = np.random.default_rng(0)
    confidences = generator.permutation(1000) / 1000
    texts = [(f"{i}" if i % 2 else "x", c) for i, c in enumerate(confidences)]
    labels = [(f"{i}", 1.0) for i in range(1000)]
    images = np.full((1000, 3, 4, 8), 0.5, np.float32)
    halves = [((texts[a:b], labels[a:b]), images[a:b]) for a, b in ((0, 640), (640, 1000))]
    numbers, written = evaluated(RecMetric(), tmp_path, *halves)
    assert numbers["acc"] == pytest.approx(0.5, abs=1e-4)
    assert (written["judged"], written["wrong"]) == (1000, 500)
    wrong = sorted(confidences[0::2], reverse=True)[:KEPT_WRONG]
    right = sorted(confidences[1::2])[: KEPT - KEPT_WRONG]
    assert [s["confidence"] for s in written["samples"]] == pytest.approx([*wrong, *right])
    assert [s["right"] for s in written["samples"]] == [False] * KEPT_WRONG + [True] * (KEPT - KEPT_WRONG)


def test_lines_of_training_batches_are_not_among_them(tmp_path):
    hook, metric = started(RecMetric(), tmp_path)
    for label in ("train", "eval"):  # cal_metric_during_train asks the same metric
        metric(([("a", 0.5)], [(label, 1.0)]), [np.zeros((1, 3, 4, 8), np.float32)])
        metric.get_metric()
    hook.on_eval(EvalDone(POSITION, {}, True, {}))
    (sample,) = json.loads((tmp_path / "samples.json").read_text())["samples"]
    assert sample["label"] == "eval"


def test_right_is_what_the_metric_calls_right(tmp_path):
    images = np.zeros((2, 1, 4, 8), np.float32)
    lines = {"Student": ([("a b", 0.9), ("", float("nan"))], [("ab", 1.0), ("c", 1.0)]), "Teacher": None}
    lines["Teacher"] = lines["Student"]
    _, written = evaluated(DistillationMetric(key="Student", ignore_space=True), tmp_path, (lines, images))
    assert [(s["text"], s["right"], s["confidence"]) for s in written["samples"]] == [
        ("", False, 0.0),
        ("a b", True, 0.9),
    ]


def test_images_are_undone_and_their_padding_cut_off(tmp_path):
    pixels = np.arange(3 * 4 * 8, dtype=np.uint8).reshape(4, 8, 3)
    normal = (pixels.transpose(2, 0, 1) / 127.5 - 1).astype(np.float32)
    padded = np.concatenate([normal, np.zeros((3, 4, 5), np.float32)], axis=2)
    other = normal * 2.2 - 0.3  # another normalisation: stretched over all of 0 to 255
    for image in (padded, other):
        _, written = evaluated(RecMetric(), tmp_path, (([("a", 0.5)], [("a", 1.0)]), image[None]))
        shown = decoded(written["samples"][0]["png"])
        assert shown.shape == (4, 8, 3)
        if image is padded:
            np.testing.assert_array_equal(shown, pixels)
        else:
            assert (shown.min(), shown.max()) == (0, 255)


def test_a_decoder_that_gives_other_things_leaves_no_samples_and_is_evaluated_as_before(tmp_path):
    seen = []

    class Metric:
        def __call__(self, decoded, batch):
            seen.append(decoded)

        def get_metric(self):
            return {"acc": 1.0}

    numbers, written = evaluated(
        Metric(), tmp_path, ({"structure": 1}, np.zeros((1, 3, 4, 8))), ("text", np.zeros(3))
    )
    assert (numbers, written["samples"], seen) == ({"acc": 1.0}, [], [{"structure": 1}, "text"])
