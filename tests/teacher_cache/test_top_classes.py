"""What is kept of logits, and what comes back, against plain numpy on float64."""

from __future__ import annotations

import numpy as np
import pytest

from ppocr_ext.teacher_cache.store import TopClasses, dense_logits, top_classes


@pytest.fixture
def logits():
    drawn = np.random.default_rng(4).normal(0, 3, (20, 50)).astype(np.float32)
    drawn[np.arange(20), np.arange(20)] += 12
    return drawn


def back_to_logits(kept: TopClasses, count: int) -> np.ndarray:
    return dense_logits([kept], count)[0].numpy()


def log_softmax(logits: np.ndarray) -> np.ndarray:
    exact = logits.astype(np.float64)
    return exact - np.log(np.exp(exact).sum(axis=1, keepdims=True))


def test_all_classes_come_back(logits):
    kept = top_classes(logits, 50)
    assert kept.classes is None and not kept.mass(50).any()
    # float16 has 11 bits
    assert np.allclose(
        back_to_logits(kept, 50), logits, rtol=0, atol=np.abs(log_softmax(logits)).max() * 2**-11
    )


def test_probable_classes_come_back_and_the_others_share_their_mean(logits):
    kept, exact = top_classes(logits, 5), log_softmax(logits)
    for row in range(20):
        best = set(np.argsort(exact[row])[-5:].tolist())
        assert set(kept.classes[row].tolist()) == best
        rest = [c for c in range(50) if c not in best]
        back = log_softmax(back_to_logits(kept, 50))[row]
        assert np.allclose(back[list(best)], exact[row][list(best)], atol=0.01)
        assert np.allclose(np.exp(back[rest]), np.exp(exact[row][rest]).mean(), rtol=0.02)
        assert np.isclose(kept.mass(50)[row], np.exp(exact[row][rest]).sum(), rtol=0.01)
        # the logits themselves, not only their differences
        peak = int(exact[row].argmax())
        assert abs(back_to_logits(kept, 50)[row, peak] - logits[row, peak]) < 0.01


def test_a_class_is_kept_though_it_is_improbable(logits):
    logits[:, 7] = -30.0
    kept = top_classes(logits, 3, always=7)
    assert (kept.classes == 7).any(axis=1).all()
    assert (kept.classes == logits.argmax(axis=1)[:, None]).any(axis=1).all()


def test_a_certain_row_has_no_infinity():
    logits = np.full((2, 300), -200.0, np.float32)
    logits[:, 0] = 200.0
    for k in (2, 300):
        back = back_to_logits(top_classes(logits, k), 300)
        assert np.isfinite(back).all() and (back.argmax(axis=1) == 0).all()


@pytest.mark.parametrize("k", [5, 50])
def test_samples_of_a_batch_stay_apart_and_are_cut_to_their_first_rows(logits, k):
    several = [top_classes(logits + shift, k) for shift in (0.0, 3.0)]
    batch = dense_logits(several, 50, rows=7).numpy()
    assert batch.shape == (2, 7, 50) and batch.dtype == np.float32
    for found, kept in zip(batch, several, strict=True):
        assert np.array_equal(found, back_to_logits(kept, 50)[:7])
