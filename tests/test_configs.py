"""Every shipped config builds, and those of a preset belong together."""

from fractions import Fraction

import paddle
import pytest

from ppocr_ext.charset import Charset
from ppocr_ext.checkpoint.weights import count_parameters
from ppocr_ext.config import load, named_items, with_class_counts
from ppocr_ext.data.mixing import mixed_lists
from ppocr_ext.io.resources import config_root
from ppocr_ext.losses import build_loss
from ppocr_ext.metrics import build_metric
from ppocr_ext.modeling import build_model
from ppocr_ext.optim import build_optimizer

ROOT = config_root()
NAMES = sorted(
    str(path.relative_to(ROOT))
    for path in ROOT.rglob("*.yml")
    if path.stem in ("teacher", "student", "distill", "vit_nrtr")
)
PRESETS = sorted({name.rsplit("/", 1)[0] for name in NAMES if name.endswith("teacher.yml")})
DIGITS = Charset(characters=tuple("0123456789"), use_space=False, path=None)


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_config_builds(name):
    config = with_class_counts(load([ROOT / name]), DIGITS)
    with paddle.LazyGuard():  # without initial values, which take most of the time
        model = build_model(config.at("Architecture").thaw())
    loss = build_loss(config.at("Loss").thaw())
    assert loss.required_outputs()
    assert build_metric(config.at("Metric").thaw()).main_indicator == "acc"
    assert model.state_dict()


FULL_SIZE = (
    "svtrv2/teacher",
    "pp-ocr/distill_v5_server_to_mobile",
    "pp-ocr/v2_mobile",
)


@pytest.mark.parametrize("base", ["pp-ocr/v6_small", "pp-ocr/v4_mobile"])
def test_an_overlay_keeps_what_the_weights_read(base):
    config = load([ROOT / f"{base}.yml", ROOT / "overlays/keep_general.yml"])
    (taught,) = mixed_lists(config)
    assert (taught.ratio, taught.labelled) == (Fraction(3, 7), True)
    judged, mixed = config.at("Eval.general.dataset"), config.at("Train.mix.0.dataset")
    assert judged["label_file_list"] != mixed["label_file_list"]


@pytest.mark.parametrize("name", FULL_SIZE)
def test_a_full_size_config_clips_the_gradient_and_takes_the_stable_optimizer(name):
    config = load([ROOT / f"{name}.yml"])
    assert config.at("Optimizer.clip_norm_global") == 5.0
    stable = load([ROOT / f"{name}.yml", ROOT / "overlays/stable_ctc.yml"])
    layer = paddle.nn.Linear(2, 2)
    optimizer, schedule = build_optimizer(stable.at("Optimizer").thaw(), 20, 500, layer)
    assert isinstance(optimizer, paddle.optimizer.AdamW) and optimizer._grad_clip.clip_norm == 1.0
    rates = []
    for _ in range(10_000):
        rates.append(schedule.get_lr())
        schedule.step()
    assert rates[0] == 0.0 and max(rates) == rates[1000] == pytest.approx(3e-4)
    assert rates == sorted(rates[:1001]) + sorted(rates[1001:], reverse=True)
    # a step without a gradient shows the decay of weights
    optimizer.set_lr_scheduler(paddle.optimizer.lr.StepDecay(0.5, 1))
    before = layer.weight.numpy()
    (layer(paddle.zeros([1, 2])).sum() * 0.0).backward()
    optimizer.step()
    assert layer.weight.numpy() == pytest.approx(before * (1 - 0.5 * 0.01), rel=1e-5)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_distillation_is_of_the_presets_own_teacher_and_student(preset):
    distill = load([ROOT / preset / "distill.yml"])
    for name in ("Teacher", "Student"):
        alone = load([ROOT / preset / f"{name.lower()}.yml"])
        for part in ("Backbone", "Head"):
            assert distill.at(f"Architecture.Models.{name}.{part}") == alone.at(f"Architecture.{part}")


def parameters(preset, name):
    config = with_class_counts(load([ROOT / preset / f"{name}.yml"]), DIGITS)
    with paddle.LazyGuard():
        return count_parameters(build_model(config.at("Architecture").thaw()))


@pytest.mark.parametrize("preset", [p for p in PRESETS if p != "svtrv2"])
def test_a_student_has_at_most_half_the_parameters_of_its_teacher(preset):
    assert parameters(preset, "student") <= parameters(preset, "teacher") / 2


def test_the_corrected_losses_take_the_place_of_paddleocrs():
    config = load([ROOT / "svtrv2/distill.yml", ROOT / "overlays/corrected_losses.yml"])
    before = [
        name for name, _ in named_items(load([ROOT / "svtrv2/distill.yml"]), "Loss", "loss_config_list")
    ]
    names = [name for name, _ in named_items(config, "Loss", "loss_config_list")]
    replaced = {"DistillationDKDLoss", "DistillCTCLogits"}
    kept = [name for name in before if name not in replaced]
    assert len(kept) == len(before) - 2
    assert names == [*kept, "MaskedDKDLoss", "CTCFrameKDLoss"]
    assert build_loss(config.at("Loss").thaw()).required_outputs()
