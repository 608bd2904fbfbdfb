"""Center loss at the size of real batches: exact, and without a copy of the logits."""

import numpy as np
import paddle
import pytest
from benchmarks.memory import PeakGrowth
from center_files import centers_file

from ppocr_ext.charset import Charset
from ppocr_ext.losses import CenterLoss, LossContext
from ppocr_ext.losses.center_loss import forced_alignment
from ppocr_ext.losses.functional import best_classes

LINES, FRAMES, CLASSES, DIM = 64, 40, 4000, 128
LOGITS = LINES * FRAMES * CLASSES * 4  # bytes


@pytest.fixture(scope="module")
def batch():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(LINES, FRAMES, DIM)).astype("float32")
    logits = rng.standard_normal((LINES, FRAMES, CLASSES), dtype="float32")
    labels = rng.integers(1, CLASSES, (LINES, 12))
    return features, paddle.to_tensor(logits), paddle.to_tensor(labels), paddle.full([LINES], 12, "int64")


def loss_of(centers, tmp_path, **options):
    charset = Charset(tuple(chr(0x4E00 + i) for i in range(len(centers) - 1)))
    file = centers_file(tmp_path / "c.npz", centers, characters=charset.ctc_symbols)
    return CenterLoss(
        center_file_path=file, context=LossContext(charset, {None: centers.shape[1]}), **options
    )


def test_the_value_is_exact_where_a_float32_sum_would_not_be(tmp_path):
    rng = np.random.default_rng(1)
    features = rng.normal(size=(192, 40, 256)).astype("float32")
    logits = rng.normal(size=(192, 40, 20)).astype("float32")
    centers = rng.normal(size=(20, 256)).astype("float32")
    offset = features.astype("float64") - centers[logits.argmax(-1)]
    expected = (offset**2).sum(-1).mean()
    loss = loss_of(centers, tmp_path)((paddle.to_tensor(features), paddle.to_tensor(logits)), [])["loss"]
    assert float(loss) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("frames", ["argmax", "aligned"])
def test_a_step_takes_far_less_than_a_copy_of_the_logits(frames, batch, tmp_path):
    features, logits, ids, lengths = batch
    loss = loss_of(
        np.random.default_rng(2).normal(size=(CLASSES, DIM)).astype("float32"), tmp_path, frames=frames
    )
    leaf = paddle.to_tensor(features, stop_gradient=False)
    given = [paddle.zeros([LINES, 1, 1, 1]), ids, lengths]
    loss((leaf[:1], logits[:1]), [part[:1] for part in given])["loss"].backward()  # what is set up once
    growth = PeakGrowth()
    if not growth.exact:
        pytest.skip("this system does not let the peak be set back")
    loss((leaf, logits), given)["loss"].backward()
    assert growth.bytes < LOGITS / 2


def test_best_classes_are_numpy_s_of_any_view_of_the_logits():
    values = np.random.default_rng(3).integers(-3, 4, (4, 6, 9)).astype("float32")  # many are equal
    whole = paddle.to_tensor(values, stop_gradient=False) * 1.0
    for view, expected in (
        (whole, values),
        (whole.transpose([1, 0, 2]), values.transpose(1, 0, 2)),
        (whole[:, ::2], values[:, ::2]),
        (whole[..., 2:7], values[..., 2:7]),
        (whole.astype("float64"), values),
    ):
        best = best_classes(view)
        assert best.dtype == paddle.int64
        assert best.stop_gradient
        np.testing.assert_array_equal(best.numpy(), expected.argmax(-1))


def test_best_classes_outlive_the_logits():
    logits = paddle.nn.functional.one_hot(paddle.arange(50) % 7, 7)
    best = best_classes(logits)
    del logits
    paddle.full([50, 7], 3.0)  # takes the memory that was freed
    np.testing.assert_array_equal(best.numpy(), np.arange(50) % 7)


def test_alignment_reads_half_precision_scores_too():
    scores = np.random.default_rng(4).normal(size=(2, 8, 5)).astype("float16")
    labels, lengths = paddle.to_tensor([[1, 2], [3, 3]]), paddle.to_tensor([2, 2])
    whole = forced_alignment(paddle.to_tensor(scores.astype("float32")), labels, lengths)
    np.testing.assert_array_equal(
        forced_alignment(paddle.to_tensor(scores), labels, lengths).numpy(), whole.numpy()
    )
