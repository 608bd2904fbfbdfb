"""``configs/overlays/return_feats.yml``: features beside what the CTC head gives, and nothing else changes."""

import numpy as np
import paddle
import pytest
from tiny_runs import metrics, single_head

from ppocr_ext.config import Config, load, switch_features_on
from ppocr_ext.evaluation.evaluate import evaluate
from ppocr_ext.io.resources import config_path
from ppocr_ext.loop.session import train
from ppocr_ext.modeling import EVAL
from ppocr_ext.modeling.features import classifier_of, ctc_head_of
from ppocr_ext.run.run import Run

OVERLAY = config_path("overlays/return_feats.yml")
KINDS = ["single", "distill"]


@pytest.fixture
def job(tiny, tmp_path):
    """``job(kind, folder, overlay)``: config of a tiny run that is saved in ``folder``."""

    def build(kind, folder="run", overlay=True, **values):
        values = {
            "Global.save_model_dir": str(tmp_path / folder),
            "Global.report": False,
            "Global.cal_metric_during_train": True,
            "Global.print_batch_step": 1,
            **values,
        }
        config = tiny("distill" if kind == "distill" else "student", **values)
        if kind == "single":
            config = single_head(config)
        (tmp_path / f"{folder}.yml").write_text(config.to_yaml())
        return load([tmp_path / f"{folder}.yml", *([OVERLAY] if overlay else [])])

    return build


def outputs_of(model, batch):
    """What the CTC heads give of ``batch``, by sub-model."""
    outputs = model(batch[0], data=batch[1:])
    models = outputs if hasattr(model, "models") else {None: outputs}
    found = {}
    for name, output in models.items():
        output = output["head_out"] if isinstance(output, dict) and "head_out" in output else output
        found[name] = output["ctc"] if isinstance(output, dict) else output
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_features_are_the_input_of_the_last_linear_layer(job, kind):
    run = Run.build(job(kind), "train")
    batch = next(iter(run.data.train_loader))  # once: a second iterator would run beside its thread
    networks = {None: run.model} if kind != "distill" else dict(run.model.models)
    model = run.model.using(evaluate=dict.fromkeys(networks, EVAL)) if kind == "distill" else run.model
    for training in (True, False):
        model.train() if training else model.eval()
        with paddle.no_grad():
            found = outputs_of(model, batch)
        assert found.keys() == (networks.keys() if kind == "distill" else {None})
        for name, (features, scores) in found.items():
            classifier = classifier_of(ctc_head_of(networks[name]))
            dim = 12 if kind == "single" else 16
            assert features.dtype == paddle.float32
            assert features.shape == [8, 16, dim]
            expected = classifier(features)
            if not training:
                expected = paddle.nn.functional.softmax(expected, axis=-1)
            np.testing.assert_allclose(scores.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_losses_metrics_and_texts_are_as_without(job, kind, tmp_path):
    logged, judged = [], []
    for folder, overlay in (("without", False), ("with", True)):
        config = job(kind, folder, overlay, **{"Global.epoch_num": 1})
        train(config)
        lines = metrics(tmp_path / folder)
        logged.append([{k: v for k, v in line.items() if k not in ("time", "ips", "fps")} for line in lines])
        run = Run.build(config.with_values({"Global.checkpoints": str(tmp_path / folder / "latest")}), "eval")
        found = evaluate(run)
        judged.append((found.predictions, {k: v for k, v in found.metrics.items() if k != "fps"}))
    assert [line["kind"] for line in logged[0]].count("train") == 3
    assert any("acc" in line for line in logged[0])
    assert logged[0] == logged[1]
    assert judged[0] == judged[1]
    assert len(judged[0][0]) == 10


def test_without_the_key_a_config_stays_as_it_is(job):
    config = job("multi", overlay=False)
    assert switch_features_on(config) is config
    off = config.with_values({"Global.return_feats": False})
    assert switch_features_on(off) is off


@pytest.mark.parametrize("head", [None, "CTCHead", {"name": "MultiHead", "head_list": ["CTCHead", {}]}, {}])
def test_a_config_that_is_not_in_order_is_left_to_the_checks(head):
    config = Config({"Global": {"return_feats": True}, "Architecture": {"Head": head}})
    assert switch_features_on(config) == config
