"""The best constant guess: exact on tiny cases against a search over everything, and against a known plateau."""

import itertools
import math

import numpy as np
import paddle
import pytest

from ppocr_ext.loop.hooks.collapse_watch import (
    HeadLosses,
    constant_losses,
    ctc_guess,
    decoder_guess,
    head_losses,
)


def lines(labels, frames=8, classes=4, ends=()):
    """Text lines with these characters, between the ``ends`` (``<s>``, ``</s>``) of a decoder's label."""
    whole = [[*ends[:1], *label, *ends[1:]] for label in labels]
    label = np.array([each + [0] * (max(map(len, whole)) + 1 - len(each)) for each in whole])
    counts = np.bincount(np.concatenate([np.asarray(each, "int64") for each in labels]), minlength=classes)
    lengths = np.array([len(each) for each in labels])
    return HeadLosses(np.zeros(len(labels)), label, lengths, np.broadcast_to(frames, len(labels)), counts)


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
    ([[1, 2, 1, 1], [3]], [5, 5]),
]


@pytest.mark.parametrize(("labels", "frames"), CASES)
@pytest.mark.parametrize("blank", [0.1, 0.6])
def test_the_loss_of_each_label_is_that_of_all_its_paths(labels, frames, blank):
    probabilities = np.array([blank, *((1 - blank) * np.array([0.5, 0.3, 0.2]))])
    wanted = [by_all_paths(*each, probabilities) for each in zip(labels, frames, strict=True)]
    assert constant_losses(lines(labels, frames), probabilities) == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize(("labels", "frames"), CASES)
def test_no_blank_gives_less_than_the_guess(labels, frames):
    found = lines(labels, frames)
    shares = found.counts / found.counts.sum()

    def mean(blank):
        return constant_losses(found, np.array([blank, *((1 - blank) * shares[1:])])).mean()

    assert ctc_guess(found) == pytest.approx(min(map(mean, np.linspace(0.001, 0.999, 500))), abs=3e-3)


def random_labels(count, least, most, classes):
    draw = np.random.default_rng(0)
    return [list(draw.integers(1, classes, draw.integers(least, most + 1))) for _ in range(count)]


def test_it_is_the_plateau_that_trainings_on_random_lines_have():
    """2 to 20 of 62 characters, 32 frames: runs stayed at 47.5 to 48.1 (4.36 a character) until they read."""
    found = lines(random_labels(120, 2, 20, 63), 32, 63)
    assert 0.95 * ctc_guess(found) < 4.36 * found.lengths.mean() < ctc_guess(found)


def test_long_labels_do_not_underflow():
    found = lines(random_labels(4, 60, 90, 6000), 230, 6000)
    assert 60 * math.log(100) < ctc_guess(found) < 90 * math.log(6000)


def test_the_guess_of_a_decoder_is_the_entropy_of_the_next_character():
    marks = (2, 3)
    same = lines([[4, 5], [5, 4]], classes=6, ends=marks)  # two equal characters, then the certain end
    assert decoder_guess(same) == pytest.approx(2 * math.log(2) / 3)
    other = lines([[4], [4, 4]], classes=6, ends=marks)  # half of the labels end after one place
    assert decoder_guess(other) == pytest.approx(2 * math.log(2) / 5)


def test_the_losses_are_those_of_the_head_without_what_it_cannot_learn():
    label = paddle.to_tensor([[1, 2, 0], [1, 1, 2], [3, 0, 0]])  # the second needs four frames
    lengths = paddle.to_tensor([2, 3, 1])
    found = head_losses(paddle.zeros([3, 3, 4]), label, lengths, is_ctc=True)
    wanted = [by_all_paths(each, 3, [0.25] * 4) for each in ([1, 2], [3])]
    assert found.losses == pytest.approx(wanted) and list(found.counts) == [0, 3, 2, 1]
    assert list(found.lengths) == [2, 1] and list(found.frames) == [3, 3]
    assert head_losses(paddle.zeros([1, 1, 4]), label[:1], lengths[:1], is_ctc=True) is None
    target = paddle.to_tensor([[2, 4, 5, 3, 0], [2, 5, 3, 0, 0]])
    found = head_losses(paddle.zeros([2, 3, 6]), target, paddle.to_tensor([2, 1]), is_ctc=False)
    assert found.losses == pytest.approx([math.log(6)] * 5) and list(found.counts) == [0, 0, 0, 0, 1, 2]
    assert head_losses(paddle.zeros([2, 5, 6]), target, paddle.to_tensor([2, 1]), is_ctc=False) is None
