"""What a step measures, and when the optimizer applies its gradient."""

import math

import numpy as np
import paddle
import pytest

from ppocr_ext.loop.step_values import WARM_UP, Limits, StepMeter
from ppocr_ext.losses import CTCLoss


class Reader(paddle.nn.Layer):
    """A convolution with BatchNorm whose columns are classified: images [B, 3, 4, T] to logits [B, T, 5]."""

    def __init__(self):
        super().__init__()
        self.conv = paddle.nn.Conv2D(3, 6, 3, padding=1)
        self.norm = paddle.nn.BatchNorm2D(6)
        self.fc = paddle.nn.Linear(6, 5)

    def forward(self, images):
        return self.fc(self.norm(self.conv(images)).mean(axis=2).transpose([0, 2, 1]))


@pytest.fixture
def reader():
    paddle.seed(0)
    return Reader()


def batch_of(image):
    label = np.array([[1, 2, 2], [3, 1, 0]])
    return [paddle.to_tensor(image), paddle.to_tensor(label), paddle.to_tensor(np.array([3, 2]))]


def image(seed=0):
    return np.random.default_rng(seed).standard_normal((2, 3, 4, 8)).astype("float32")


def measure(reader, image, step=1, limits=Limits(100.0, 10000.0), loss=None, meter=None):  # noqa: B008
    loss = loss or CTCLoss()
    meter = meter or StepMeter(reader, loss, limits)
    batch = batch_of(image)
    meter.begin()
    logits = reader(batch[0])
    losses = loss(logits, batch)
    factor = meter.forward(logits, batch, losses, step)
    reader.clear_gradients()
    (losses["loss"] * factor).backward()
    return float(factor), meter.read(), logits


def test_the_values_of_a_good_step_are_those_of_numpy(reader):
    factor, reading, logits = measure(reader, image())
    assert factor == 1.0 and reading.is_good
    read = logits.numpy()
    assert reading.values["output max"] == pytest.approx(read.max())
    assert reading.values["output min"] == pytest.approx(read.min())
    assert reading.values["image max"] == pytest.approx(image().max())
    gradients = np.concatenate([p.grad.numpy().ravel() for p in reader.parameters() if p.grad is not None])
    assert reading.grad_norm == pytest.approx(np.linalg.norm(gradients), rel=1e-5)
    assert reading.to_log()["blank_share"] == pytest.approx((read.argmax(-1) == 0).mean())


def test_a_good_step_is_the_same_bit_for_bit_as_one_that_nobody_measures(reader):
    measure(reader, image())
    measured = [p.grad.numpy() for p in reader.parameters() if p.grad is not None]
    paddle.seed(0)
    plain = Reader()
    CTCLoss()(plain(paddle.to_tensor(image())), batch_of(image()))["loss"].backward()
    for ours, theirs in zip(
        measured, [p.grad.numpy() for p in plain.parameters() if p.grad is not None], strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 101.0, -101.0])
def test_a_bad_image_makes_every_gradient_nan(reader, value):
    wrong = image()
    wrong[1, 2, 3, 4] = value
    factor, reading, _ = measure(reader, wrong)
    assert math.isnan(factor) and not reading.is_good
    assert any(name.startswith("image") for name in reading.bad)
    assert np.isnan(reader.fc.weight.grad.numpy()).all()
    if math.isfinite(value):
        assert measure(reader, wrong, limits=Limits())[1].is_good  # without a limit


class Part(CTCLoss):
    """A loss with a part that is NaN, which the total does not hold."""

    def forward(self, predicts, batch):
        return {"other": paddle.to_tensor(math.nan), **super().forward(predicts, batch)}


def test_a_part_that_the_total_does_not_hold_and_a_gradient_alone_can_be_bad(reader):
    factor, reading, _ = measure(reader, image(), loss=Part())
    assert math.isnan(factor) and reading.bad == ["loss other"]
    reader.fc.weight.register_hook(lambda gradient: gradient * math.inf)
    factor, reading, _ = measure(reader, image())
    assert factor == 1.0 and not reading.bad and not reading.is_good


def test_a_variance_is_absurd_only_after_the_warm_up(reader):
    reader.train()
    limits = Limits(math.inf, 10000.0)
    meter = StepMeter(reader, CTCLoss(), limits)
    for step in range(1, 4):
        assert measure(reader, image(step), step, meter=meter)[1].is_good
    before = [layer._variance.numpy().mean() for _, layer in meter.batch_norms]
    paddle.assign(paddle.full_like(reader.norm._variance, float(before[0])), reader.norm._variance)
    meter.variances = None
    with paddle.no_grad():
        batch_variance = (
            reader.conv(paddle.to_tensor(image(9) * 200)).var(axis=[0, 2, 3], unbiased=False).mean()
        )
    reading = measure(reader, image(9) * 200, WARM_UP, meter=meter)[1]
    assert reading.values["batch variance"] == pytest.approx(float(batch_variance) / before[0], rel=0.02)
    assert reading.is_good  # still warming up
    meter.variances = paddle.full([1], float(before[0]))
    reader.norm._variance.set_value(np.full([6], before[0], "float32"))
    reading = measure(reader, image(9) * 200, WARM_UP + 1, meter=meter)[1]
    assert reading.bad == ["batch variance"]
    assert meter.worst_batch_norm() == "norm"


def test_the_scale_of_mixed_precision_is_taken_out(reader):
    meter = StepMeter(reader, CTCLoss(), Limits())
    plain = measure(reader, image(), meter=meter)[1].grad_norm
    for parameter in reader.parameters():
        if parameter.grad is not None:
            parameter.grad.set_value(parameter.grad * 1024.0)
    assert meter.read(paddle.full([1], 1024.0)).grad_norm == pytest.approx(plain, rel=1e-5)
