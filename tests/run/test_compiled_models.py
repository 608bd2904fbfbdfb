"""Compiled networks in a run: a teacher, an evaluation and centers compute what the networks compute."""

import logging
from dataclasses import replace
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import numpy as np
import paddle
import pytest
from saved_runs import save_run
from tiny_runs import tiny_config

from ppocr_ext.centers.collect import CollectOptions, collect, config_of_model
from ppocr_ext.checkpoint.checkpoints import TrainState
from ppocr_ext.evaluation.evaluate import evaluate, select_model
from ppocr_ext.inference import compiled as compiled_networks
from ppocr_ext.inference import runners
from ppocr_ext.inference.compiled import CompiledNetwork
from ppocr_ext.inference.runners import has_bfloat16
from ppocr_ext.modeling import BaseModel
from ppocr_ext.recognition.recognizer import Recognizer
from ppocr_ext.run import compiled_models
from ppocr_ext.run.compiled_models import compile_frozen, engine_names, model_to_evaluate
from ppocr_ext.run.run import Run

MANY = 10**9  # samples, of which any network is compiled
AUTO_ENGINE = "openvino" if find_spec("openvino") and find_spec("paddle2onnx") else "paddle"


@pytest.fixture(scope="module")
def saved(captchas, tmp_path_factory):
    """A distillation whose checkpoint has both sub-models."""
    folder = tmp_path_factory.mktemp("saved")
    config = tiny_config(captchas, folder, **{"Global.dry_step": False})
    save_run(config, folder / "run")
    return config.with_values({"Global.checkpoints": str(folder / "run" / "best_accuracy")})


@pytest.fixture
def compiled(monkeypatch):
    """Names of the networks that were compiled; few samples are enough."""
    names: list[str] = []

    def spy(network: Any, request: Any, *, name: str, **options: Any) -> Any:
        made = original(network, request, name=name, **options)
        names.append(f"{name}: {made.engine}")
        return made

    original = compiled_models.CompiledNetwork
    monkeypatch.setattr(compiled_models, "CompiledNetwork", spy)
    monkeypatch.setattr(compiled_models, "LEAST_WORK", 1)
    return names


@pytest.mark.parametrize(
    ("name", "asked", "engine", "values"),
    [
        ("Student", "auto", AUTO_ENGINE, {}),
        ("Student", "onnxruntime", "onnxruntime", {}),
        ("Teacher", "paddle", "paddle", {}),
        ("Student", "paddle", "paddle", {"Global.return_feats": True}),
    ],
)
def test_an_evaluation_reads_the_same_compiled(saved, compiled, name, asked, engine, values):
    config = select_model(saved, name).with_values({"Global.eval_engine": asked, **values})
    pytest.importorskip(engine if engine == "paddle" else "paddle2onnx")
    plain = evaluate(Run.build(config.with_values({"Global.eval_engine": "network"}), "eval"))
    assert compiled == []
    found = evaluate(Run.build(config, "eval"))
    assert compiled == [f"{name}: {engine}"]
    texts = [[(each.image, each.text) for each in one.predictions] for one in (plain, found)]
    assert texts[0] == texts[1] and any(text for _, text in texts[0])
    confidences = [[each.confidence for each in one.predictions] for one in (plain, found)]
    np.testing.assert_allclose(*confidences, atol=1e-4)


def test_little_work_is_not_compiled_but_fused(saved, compiled, monkeypatch):
    evaluate(Run.build(saved, "eval"), "gtc")
    assert compiled == []
    run = Run.build(saved, "eval")
    student = run.model.models["Student"]
    engine = CompiledNetwork(student, student.eval_request)
    work = 10 * engine.multiply_adds((3, 32, 64))
    assert engine.multiply_adds((3, 32, 128)) == pytest.approx(2 * work / 10, rel=0.01)
    monkeypatch.setattr(compiled_models, "LEAST_WORK", work + 1)
    monkeypatch.setattr(
        compiled_models, "read_preprocessing", lambda *_: SimpleNamespace(sizes=((3, 32, 64),))
    )
    assert isinstance(model_to_evaluate(run.context, run.model, 10).callers["Student"], BaseModel)
    assert isinstance(model_to_evaluate(run.context, run.model, 11).callers["Student"], CompiledNetwork)


def test_a_recogniser_is_compiled_for_many_images_only(saved, captchas):
    images = sorted(captchas.rglob("*.png"))[:6]
    few, many = (Recognizer.from_config(saved, model="Student", images=count) for count in (6, MANY))
    assert (few.engine, many.engine) == ("network", AUTO_ENGINE)
    named = Recognizer.from_config(saved, model="Student", engine="network", images=MANY)
    assert named.engine == "network"
    texts = [[each.text for each in one.read(images)] for one in (few, many, named)]
    assert texts[0] == texts[1] == texts[2] and any(texts[0])


def test_centers_are_the_same_compiled(saved, compiled):
    single, _ = config_of_model(saved.with_values({"Global.eval_engine": "paddle"}), "Student", "train")
    options = CollectOptions(all_lines=True)
    plain = collect(Run.build(single.with_values({"Global.eval_engine": "network"}), "eval"), options)
    assert compiled == []
    found = collect(Run.build(single, "eval"), options)
    assert compiled == ["the model: paddle"]
    np.testing.assert_array_equal(found.counts, plain.counts)
    np.testing.assert_allclose(found.sums, plain.sums, atol=1e-3)


@pytest.fixture(scope="module")
def run(saved):
    start = {"Global.pretrained_model": saved.at("Global.checkpoints"), "Global.checkpoints": None}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled_models, "LEAST_WORK", 1)
        return Run.build(saved.with_values(start), "train")


def checkpoint_with(engine):
    state = TrainState(engines={"Teacher": engine})
    return SimpleNamespace(prefix="latest", train_state=lambda: state)


def test_a_compiled_teacher_teaches_the_same(run):
    batch = next(iter(run.data.train_loader))
    teacher = run.network.models["Teacher"]
    run.model.train()
    found = run.model(batch[0], batch[1:])["Teacher"]["head_out"]
    expected = teacher(batch[0], batch[1:], run.network.train_requests["Teacher"])["head_out"]
    assert engine_names(run.engines) == {"Teacher": AUTO_ENGINE} and not teacher.training
    assert engine_names({"Teacher": SimpleNamespace(engine="network", label="network")}) is None
    for part in expected:
        np.testing.assert_allclose(found[part].numpy(), expected[part].numpy(), atol=1e-4)
    assert paddle.is_grad_enabled() and not run.network.models["Student"].head.parameters()[0].stop_gradient


@pytest.mark.parametrize(
    "values", [{"teacher_engine": "network"}, {"to_static": True}, {"detect_anomaly": True}]
)
def test_a_teacher_is_compiled_unless_something_needs_its_layers(run, values, caplog):
    config = run.context.config.with_values({f"Global.{key}": value for key, value in values.items()})
    resumed = checkpoint_with(AUTO_ENGINE)
    caplog.set_level(logging.WARNING, "ppocr_ext")
    assert compile_frozen(replace(run.context, config=config, checkpoint=resumed), run.network, MANY) == {}
    assert "latest" in caplog.text and "teacher_engine" in caplog.text
    caplog.clear()
    assert compile_frozen(replace(run.context, checkpoint=resumed), run.network, MANY).keys() == {"Teacher"}
    assert caplog.text == ""


@pytest.mark.parametrize("asked", ["auto", "paddle"])
@pytest.mark.parametrize("key", ["teacher_engine", "eval_engine"])
def test_a_named_engine_that_does_not_compute_says_why(run, asked, key, caplog):
    for device, values, reason in (("cpu", {"Global.to_static": True}, "to_static"), ("gpu:0", {}, "gpu:0")):
        caplog.clear()
        config = run.context.config.with_values({f"Global.{key}": asked, **values})
        context = replace(run.context, config=config, device=device)
        assert compile_frozen(context, run.network, MANY) == {}
        assert model_to_evaluate(context, run.model, MANY) is run.model
        said = [each for each in caplog.messages if key in each and asked in each and reason in each]
        assert len(said) == len(caplog.messages) == (asked != "auto")


def test_a_run_keeps_the_type_of_its_teacher_and_says_if_nothing_has_it(run, monkeypatch, caplog):
    config = run.context.config.with_values({"Global.teacher_dtype": "bfloat16"})
    named = config.with_values({"Global.teacher_engine": "paddle"})
    context = replace(run.context, config=named, checkpoint=checkpoint_with("paddle"))
    found = engine_names(compile_frozen(context, run.network, 24))
    expected = {"Teacher": "paddle bfloat16" if has_bfloat16() else "paddle float32"}
    assert found == expected and "teacher_dtype" in caplog.text
    caplog.clear()
    assert engine_names(compile_frozen(replace(run.context, config=config), run.network, 0)) is None
    assert "teacher_dtype" in caplog.text


@pytest.mark.parametrize(
    ("dtype", "asked", "recorded", "expected"),
    [
        ("float32", "auto", "onnxruntime", "onnxruntime"),
        ("float32", "auto", "paddle", "paddle"),
        ("float32", "auto", "auto", "openvino"),  # of an older version, where nothing was computed
        ("float32", "auto", "not installed", "openvino"),
        ("float32", "paddle", "onnxruntime", "paddle"),
        ("bfloat16", "auto", "onnxruntime float32", "onnxruntime float32"),
        ("bfloat16", "auto", "openvino bfloat16", "openvino bfloat16"),
        ("bfloat16", "auto", "auto bfloat16", "openvino bfloat16"),
        ("bfloat16", "auto", "paddle", "paddle bfloat16"),  # float32 was asked for then
        ("bfloat16", "auto", "onnxruntime", "openvino bfloat16"),
        ("bfloat16", "paddle", "paddle", "paddle bfloat16"),
    ],
)
def test_a_resumed_run_takes_engine_and_type_of_its_checkpoint_unless_an_engine_is_named(
    dtype, asked, recorded, expected, run, monkeypatch, caplog
):
    monkeypatch.setattr(runners, "find_spec", lambda name: name)
    monkeypatch.setattr(compiled_networks, "has_bfloat16", lambda: True)
    config = run.context.config.with_values({"Global.teacher_dtype": dtype, "Global.teacher_engine": asked})
    context = replace(run.context, config=config, checkpoint=checkpoint_with(recorded))
    found = compile_frozen(context, run.network, MANY, prepare=False)
    assert engine_names(found) == {"Teacher": expected}
    assert ("latest" in caplog.text) == (recorded != expected and not recorded.startswith("auto"))


def test_a_teacher_is_compiled_only_if_it_computes_much(run, monkeypatch):
    prepared: list[Any] = []
    monkeypatch.setattr(CompiledNetwork, "prepare", lambda self, shape: prepared.append(shape))
    found = compile_frozen(run.context, run.network, 10)
    assert not isinstance(found["Teacher"], CompiledNetwork) and prepared == []
    resumed = checkpoint_with("paddle")  # as decided when the run began
    found = compile_frozen(replace(run.context, checkpoint=resumed), run.network, 10, prepare=False)
    assert engine_names(found) == {"Teacher": "paddle"}
    # with a teacher cache it may compute none
    found = compile_frozen(run.context, run.network, MANY, prepare=False)
    assert engine_names(found) == {"Teacher": AUTO_ENGINE}
    assert prepared == []
    compile_frozen(run.context, run.network, MANY)
    assert prepared != []
