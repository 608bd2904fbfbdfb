"""CTCLoss: misfits are found before the kernel, NaN is never hidden, and a device without a kernel uses the CPU's."""

import logging
import math
from collections.abc import Callable
from typing import Any

import naive_losses as naive
import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from loss_inputs import CLASSES, draw, tensor

from ppocr_ext.data import sample_rules
from ppocr_ext.losses import build_loss
from ppocr_ext.losses.label_losses import frames_needed

LABELS = np.array([[1, 2, 3], [2, 2, 2], [4, 4, 0], [5, 0, 0]])
LENGTHS = np.array([3, 3, 2, 1])  # need 3, 5, 3 and 1 frames
REFUSED = (
    "(PreconditionNotMet) warp-ctc [version 2] Error in get_workspace_size: execution failed\n  [Hint: Expected "
    "CTC_STATUS_SUCCESS == status, but received CTC_STATUS_SUCCESS:0 != status:3.] "
    "(at ../paddle/phi/kernels/impl/warpctc_kernel_impl.h:199)\n  [operator < warpctc > error]"
)


def build(name: str, options: dict[str, Any]) -> Any:
    return build_loss({"name": name, **options})


def value_and_gradient(values: np.ndarray, **options: Any) -> tuple[float, np.ndarray]:
    logits = tensor(values, trained=True)
    loss = build("CTCLoss", options)(logits, [logits, tensor(LABELS), tensor(LENGTHS)])["loss"]
    loss.backward()
    return float(loss), logits.grad.numpy()


def test_frames_needed_as_the_check_of_samples_counts_them():
    generator = np.random.default_rng(3)
    for _ in range(20):
        lengths = generator.integers(0, 8, 16)
        labels = generator.integers(
            1, 4, [16, 7]
        )  # no padding: what is behind the length is another character
        expected = [
            sample_rules.frames_needed(row[:length].tolist())
            for row, length in zip(labels, lengths, strict=True)
        ]
        found = frames_needed(tensor(labels), tensor(lengths))
        assert found.numpy().tolist() == expected


def test_a_misfit_adds_nothing_and_the_others_are_as_they_were():
    values = draw("misfits", [4, 3, CLASSES])
    loss, gradient = value_and_gradient(values)
    expected = [
        -math.log(naive.ctc_probability(values[row], LABELS[row, : LENGTHS[row]])) for row in (0, 2, 3)
    ]
    assert loss == pytest.approx(sum(expected) / 4, rel=1e-5)
    assert not gradient[1].any()
    # the rest is Paddle's to the bit
    logits = tensor(values, trained=True)
    frames = paddle.full([4], 3, dtype="int64")
    labels = tensor(LABELS.astype("int32"))
    losses = F.ctc_loss(logits.transpose([1, 0, 2]), labels, frames, tensor(LENGTHS), reduction="none")
    losses.mean().backward()
    rest = [0, 2, 3]
    assert np.array_equal(gradient[rest], logits.grad.numpy()[rest])


def test_without_zero_infinity_a_misfit_is_infinite():
    values = draw("infinite", [4, 3, CLASSES])
    loss, gradient = value_and_gradient(values, zero_infinity=False)
    assert loss == math.inf
    assert np.isfinite(gradient).all() and not gradient[1].any()
    of_sub_model = {"model_name_list": ["Student"], "zero_infinity": False}
    batch = [tensor(values), tensor(LABELS), tensor(LENGTHS)]
    parts = build("DistillationCTCLoss", of_sub_model)({"Student": tensor(values)}, batch)
    assert float(parts["loss_ctc_Student_0"]) == math.inf


@pytest.mark.parametrize("row", [0, 1])  # row 1 is a misfit
def test_nan_is_never_zeroed(row):
    values = draw("nan", [4, 3, CLASSES])
    values[row] = np.nan
    assert math.isnan(value_and_gradient(values)[0])


def failing(monkeypatch: pytest.MonkeyPatch, message: str) -> list[str]:
    """Let Paddle's kernel fail at the first call, as on a GPU that it was not built for; return what it was asked."""
    real: Callable[..., Any] = F.ctc_loss
    calls: list[str] = []

    def kernel(*args: Any, **kwargs: Any) -> Any:
        calls.append("failed" if not calls else "computed")
        if len(calls) == 1:
            raise RuntimeError(message)
        return real(*args, **kwargs)

    monkeypatch.setattr(F, "ctc_loss", kernel)
    return calls


def test_a_device_without_a_kernel_gets_the_gradient_of_the_cpu(monkeypatch, caplog):
    values = [draw(name, [4, 9, CLASSES]) for name in ("first", "second")]

    def both() -> list[tuple[float, np.ndarray]]:
        loss, found = build("CTCLoss", {"use_focal_loss": True}), []
        for each in values:
            logits = tensor(each, trained=True)
            total = loss(logits, [logits, tensor(LABELS), tensor(LENGTHS)])["loss"]
            total.backward()
            found.append((float(total), logits.grad.numpy()))
        return found

    expected = both()
    calls = failing(monkeypatch, REFUSED)
    found = both()
    assert calls == ["failed", "computed", "computed"]  # the kernel of the device is not tried again
    for (loss, gradient), (of_kernel, gradient_of_kernel) in zip(found, expected, strict=True):
        assert loss == of_kernel
        assert np.array_equal(gradient, gradient_of_kernel)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "get_workspace_size: execution failed" in caplog.text


@pytest.mark.parametrize("message", ["out of memory", REFUSED.replace("execution failed", "invalid value")])
def test_other_errors_of_the_kernel_are_passed_on(monkeypatch, message):
    failing(monkeypatch, message)
    with pytest.raises(RuntimeError) as caught:
        value_and_gradient(draw("other", [4, 9, CLASSES]))
    assert str(caught.value) == message


def test_misfits_are_counted_in_the_log(caplog):
    loss, logits = build("CTCLoss", {}), tensor(draw("counted", [4, 3, CLASSES]))
    for _ in range(12):
        loss(logits, [logits, tensor(LABELS), tensor(LENGTHS)])
    counts = [(record.args[0], record.args[1]) for record in caplog.records if record.args]
    assert counts == [(1, 4), (10, 40)]
    assert "5 frames" in caplog.text
