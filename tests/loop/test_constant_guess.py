"""The best constant guess: exact on tiny cases against a search over everything, and against a known plateau."""

import itertools
import math

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest

from ppocr_ext.loop.monitors.constant_guess import ctc_guess, ctc_losses, decoder_guess


def counted(labels, classes):
    return np.bincount(np.concatenate(labels), minlength=classes)


def by_all_paths(label, frames, probabilities):
    """The CTC loss of a label as the sum over all paths, with the same ``probabilities`` [C] in each frame."""
    total = 0.0
    for path in itertools.product(range(len(probabilities)), repeat=frames):
        text = [c for c, _ in itertools.groupby(path) if c != 0]
        total += math.prod(probabilities[c] for c in path) if text == list(label) else 0.0
    return -math.log(total)


CASES = [
    ([[1], [2]], [2, 2]),
    ([[1, 2], [2, 1], [1, 2]], [3, 4, 3]),
    ([[1, 1], [2], [1, 2]], [3, 4, 2]),
    ([[1, 2, 3], [3]], [3, 5]),
]


@pytest.mark.parametrize(("labels", "frames"), CASES)
def test_the_loss_of_each_label_is_that_of_all_its_paths(labels, frames):
    labels, shares = [np.array(label) for label in labels], np.array([0.0, 0.5, 0.3, 0.2])
    for blank in (0.1, 0.6):
        probabilities = [blank, *((1 - blank) * shares[1:])]
        with np.errstate(divide="ignore"):
            found = ctc_losses(labels, np.array(frames), np.log(shares), blank)
        wanted = [by_all_paths(*each, probabilities) for each in zip(labels, frames, strict=True)]
        assert found == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize(("labels", "frames"), CASES)
def test_no_blank_gives_less_than_the_guess(labels, frames):
    labels, frames = [np.array(label) for label in labels], np.array(frames)
    counts = counted(labels, 4)
    with np.errstate(divide="ignore"):
        shares = np.log(counts / counts.sum())
    searched = min(ctc_losses(labels, frames, shares, b).mean() for b in np.linspace(0.001, 0.999, 4000))
    assert ctc_guess(labels, frames, counts) == pytest.approx(searched, abs=2e-3)


def test_of_equally_frequent_characters_no_distribution_at_all_gives_less():
    labels, frames = [np.array([1]), np.array([2]), np.array([1, 2]), np.array([2, 1])], np.full(4, 4)
    grid = np.linspace(0.02, 0.96, 48)
    every = [(b, p) for b in grid for p in grid if b + p < 0.99]

    def mean(blank, first):
        shares = np.log(np.array([1.0, first, 1 - blank - first]) / (1 - blank))
        return ctc_losses(labels, frames, shares, blank).mean()

    best = min(mean(*each) for each in every)
    assert best - 2e-3 < ctc_guess(labels, frames, counted(labels, 3)) < best + 1e-3


def random_lines(count, least, most, classes, seed=0):
    draw = np.random.default_rng(seed)
    return [draw.integers(1, classes, draw.integers(least, most + 1)) for _ in range(count)]


def test_it_is_the_plateau_that_trainings_on_random_lines_have():
    """2 to 20 of 62 characters, 32 frames: runs stayed at 47.5 to 48.1 until they began to read."""
    labels = random_lines(150, 2, 20, 63)
    guess = ctc_guess(labels, np.full(150, 32), counted(labels, 63))
    assert 0.95 * guess < 48.0 * np.mean([len(label) for label in labels]) / 11 < 1.05 * guess


def test_it_agrees_with_the_loss_of_paddle_and_long_labels_do_not_underflow():
    labels = random_lines(3, 40, 100, 6000)
    counts, frames, blank = counted(labels, 6000) + 1, 230, 0.6
    counts[0] = 0
    with np.errstate(divide="ignore"):
        shares = np.log(counts / counts.sum())
    logits = np.concatenate([[np.log(blank)], shares[1:] + np.log(1 - blank)])
    longest = max(map(len, labels))
    padded = np.stack([np.pad(label, (0, longest - len(label))) for label in labels])
    wanted = F.ctc_loss(
        paddle.to_tensor(np.broadcast_to(logits, (frames, 3, 6000)).astype("float32")),
        paddle.to_tensor(padded.astype("int32")),
        paddle.full([3], frames, "int64"),
        paddle.to_tensor([len(label) for label in labels]),
        reduction="none",
    )
    found = ctc_losses(labels, np.full(3, frames), shares, blank)
    assert found == pytest.approx(wanted.numpy(), rel=1e-4)


def test_the_guess_of_a_decoder_is_the_entropy_of_the_next_character():
    same = [np.array([1, 2]), np.array([2, 1])]  # two equal characters, then the certain end
    assert decoder_guess(same, counted(same, 3)) == pytest.approx(2 * math.log(2) / 3)
    other = [np.array([1]), np.array([1, 1])]  # half of the labels end after one place
    assert decoder_guess(other, counted(other, 3)) == pytest.approx(2 * math.log(2) / 5)
    lines = random_lines(300, 2, 20, 63)
    assert 0.9 * math.log(63) < decoder_guess(lines, counted(lines, 63)) < math.log(63)
