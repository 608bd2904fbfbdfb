"""Weights between two networks, and how far they may go."""

import numpy as np
import paddle
import pytest

from ppocr_ext.evaluation.blend import (
    BlendPoint,
    best_blend,
    blended,
    search_blend,
    tolerance,
)


def test_weights_lie_between_and_are_exact_at_both_ends():
    rng = np.random.default_rng(0)
    before, after = ({"a": paddle.to_tensor(rng.normal(size=[5, 3]), "float32")} for _ in range(2))
    for share in (0.0, 0.3, 1.0):
        found = blended(before, after, share)["a"].numpy()
        expected = (1 - share) * before["a"].numpy() + share * after["a"].numpy()
        np.testing.assert_allclose(found, expected, atol=0 if share in (0.0, 1.0) else 1e-6)


@pytest.mark.parametrize("limit", [0.0, 0.02, 0.4, 0.93, 1.0])
def test_the_search_finds_how_far_the_weights_may_go(limit):
    read = []

    def point(share):
        read.append(share)
        return BlendPoint(share, share**0.5, 0.9 if share <= limit else 0.1)

    points = search_blend(point, 0.9, 1000, 0.0)
    assert [each.share for each in points] == sorted(read) == sorted(set(read))
    assert (0.0 in read) == (limit < 1 / 8)  # the weights before are read only if nothing else is left
    best = best_blend(points, 0.9, 1000, 0.0)
    assert best.general == 0.9 and limit - 1 / 8 < best.share <= limit


@pytest.mark.parametrize("enough", [0.3, 0.6, 0.8, 1.0])
@pytest.mark.parametrize("little", [0.0, 0.009])
def test_the_way_back_ends_where_new_lines_would_be_lost(enough, little):
    """Weights that read as many new lines have forgotten less, also what no list has; half of the way stays."""

    def point(share):
        return BlendPoint(share, 0.9 if share == 1 else 0.9 - little if share >= enough else 0.8, 0.9)

    best = best_blend(search_blend(point, 0.9, 1000, 0.5), 0.9, 1000, 0.5)
    assert max(enough, 0.5) <= best.share <= max(enough, 0.5) + 1 / 16


def test_of_equal_points_the_one_that_forgets_less_is_the_best():
    points = [BlendPoint(0.0, 0.2, 0.9), BlendPoint(0.5, 0.8, 0.89), BlendPoint(1.0, 0.8, 0.87)]
    assert best_blend(points, 0.85, 10, 0.2).share == 0.5
    assert best_blend(points, 0.88, 10, 0.2).share == 0.5
    assert best_blend(points, 0.95, 10, 0.2).share == 0.0  # nothing is allowed but the weights before


@pytest.mark.parametrize(("before", "share"), [(0.2, 0.6), (0.79, 1.0), (0.8, 0.0)])
def test_the_way_back_never_reads_less_than_the_weights_before(before, share):
    """Within a standard error of ten lines are many accuracies."""
    points = [BlendPoint(0.0, before, 0.9), BlendPoint(0.6, 0.78, 0.9), BlendPoint(1.0, 0.8, 0.9)]
    assert best_blend(points, 0.85, 10, before).share == share


@pytest.mark.parametrize(("lines", "share"), [(2, 0.75), (10, 0.75), (33, 0.75), (34, 0.56)])
def test_one_line_of_few_is_not_given_up(lines, share):
    points = [BlendPoint(0.56, 1 - 1 / lines, 0.9), BlendPoint(0.75, 1.0, 0.9), BlendPoint(1.0, 1.0, 0.9)]
    assert best_blend(points, 0.85, lines, 0.2).share == share


@pytest.mark.parametrize("lines", [10, 70, 1000])
def test_the_tolerance_is_the_standard_error_of_a_share_and_at_least_one_line(lines):
    drawn = np.random.default_rng(0).binomial(lines, 0.7, 100_000) / lines
    assert abs(tolerance(0.7, lines) - drawn.std()) < 0.1 / lines
    assert 1.0 - tolerance(1.0, lines) < 1 - 1 / lines < 1.0 - 0.9 * tolerance(1.0, lines)
