"""How sure shares and changes are: against enumeration, published tables, a search for the limits, and draws."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from ppocr_ext.evaluation.uncertainty import Changes, Rate


def test_wilson_interval_of_a_textbook_example() -> None:
    low, high = Rate(15, 148).interval  # Newcombe 1998, table I: 0.0624 to 0.1605
    assert low == pytest.approx(0.0624, abs=5e-5)
    assert high == pytest.approx(0.1605, abs=5e-5)
    assert Rate(0, 0).interval == (0.0, 1.0)
    assert Rate(0, 20).interval[0] == 0.0


@pytest.mark.parametrize(
    "steps", [[], [1], [-1, 1], [1] * 7 + [-1], [2, 1, -1, 0, 3], [-4, 1, 1, 1], [2, -2, 0]]
)
def test_p_is_the_share_of_signs_that_give_as_much(steps: list[int]) -> None:
    signs = list(itertools.product((1, -1), repeat=len(steps)))
    sums = [abs(sum(s * abs(step) for s, step in zip(each, steps, strict=True))) for each in signs]
    expected = sum(total >= abs(sum(steps)) for total in sums) / len(signs)
    by_page = Changes(0, 0, 100, tuple((step, 10) for step in steps))
    assert (by_page.p_value if steps else 1.0) == pytest.approx(expected)
    if set(steps) <= {1, -1}:
        assert Changes(steps.count(-1), steps.count(1), 100).p_value == pytest.approx(expected)


# Fagerland, Lydersen and Laake: Statistical analysis of contingency tables (2017), chapter 8
@pytest.mark.parametrize(
    ("lost", "won", "n", "p", "low", "high"),
    [(16, 6, 161, 0.052479, -0.1240, -0.0054), (7, 1, 21, 0.0703, -0.517, -0.026)],
)
def test_published_examples(lost: int, won: int, n: int, p: float, low: float, high: float) -> None:
    changes = Changes(lost, won, n)
    assert changes.p_value == pytest.approx(p, abs=5e-5)
    assert changes.interval() == pytest.approx((low, high), abs=5e-4)


def score(won: int, lost: int, n: int, gain: float) -> float:
    """Return the score statistic, with the likeliest shares of that gain found by search over the share lost."""
    least, most = max(0.0, -gain), (1 - gain) / 2
    lost_share = np.linspace(least, most, 400_001)[1:-1]
    log = won * np.log(lost_share + gain) + (n - won - lost) * np.log(1 - 2 * lost_share - gain)
    best = lost_share[np.argmax(log + (lost * np.log(lost_share) if lost else 0))]
    return (won - lost - n * gain) / math.sqrt(n * (2 * best + gain - gain**2))


@pytest.mark.parametrize(
    ("won", "lost", "n"), [(6, 16, 161), (3, 1, 40), (5, 5, 30), (12, 0, 200), (1, 2, 9)]
)
def test_the_score_test_rejects_just_what_lies_outside_the_limits(won: int, lost: int, n: int) -> None:
    limits = Changes(lost, won, n).interval()
    assert limits is not None
    for limit, side in zip(limits, (1, -1), strict=True):
        assert side * score(won, lost, n, limit) == pytest.approx(1.959964, abs=2e-3)


@pytest.mark.parametrize("changes", [Changes(0, 0, 200), Changes(0, 3, 60)])
def test_none_lost_still_leaves_a_loss_possible(changes: Changes) -> None:
    assert (1 - changes.most_lost) ** changes.total == pytest.approx(0.05)  # type: ignore[operator]
    assert Changes(0, 0, 200).items_to_exclude(0.005) == 598  # 0.995 ** 598 < 0.05 < 0.995 ** 597


def test_verdicts_and_losses_at_the_ends() -> None:
    with pytest.raises(ValueError, match="argument"):
        Changes.of([True], [True, False])
    better, worse, all_lost = Changes(0, 12, 200), Changes(12, 0, 200), Changes(9, 0, 9)
    assert (better.verdict, worse.verdict, all_lost.verdict) == ("better", "worse", "worse")
    assert better.most_lost == 0.0 and all_lost.most_lost == 1.0
    assert worse.most_lost == pytest.approx(-worse.interval(0.05)[0])  # type: ignore[index]
    assert Changes(1, 0, 1).verdict == Changes(0, 5, 5).verdict == ""
    assert Changes(0, 100_000, 100_000).p_value < 1e-300


@pytest.mark.parametrize(("share", "loss"), [(0.02, 0.005), (0.1, 0.02), (0.3, 0.03)])
def test_so_many_items_exclude_the_loss_in_four_of_five_draws(share: float, loss: float) -> None:
    n = Changes(round(share * 500), round(share * 500), 1000).items_to_exclude(loss)
    draws = np.random.default_rng(0).multinomial(n, [share / 2, share / 2, 1 - share], size=500).tolist()
    excluded = [Changes(lost, won, n).interval(0.05)[0] >= -loss for lost, won, _ in draws]  # type: ignore[index]
    assert np.mean(excluded) == pytest.approx(0.8, abs=0.06)


def test_pages_whose_lines_change_together_count_once() -> None:
    steps = [1] * 8 + [-1] * 5 + [0] * 187
    before, after = [step < 0 for step in steps], [step > 0 for step in steps]
    names = [str(n) for n in range(200)]
    single, alone = Changes.of(before, after), Changes.of(before, after, names)
    assert alone == single  # a page for each line says nothing
    pages = Changes.of(before * 3, after * 3, names * 3)
    assert pages.p_value == pytest.approx(single.p_value)
    assert pages.interval() == pytest.approx(single.interval(), abs=0.01)
    assert pages.interval() == pages.interval()  # the seed is fixed
    assert pages.items_to_exclude(0.01) == pytest.approx(3 * single.items_to_exclude(0.01), rel=0.01)
    none = Changes.of([True] * 60, [True] * 60, [str(n % 20) for n in range(60)])
    assert (1 - none.most_lost) ** 20 == pytest.approx(0.05)  # type: ignore[operator]
    few = Changes.of([True] * 60, [True] * 59 + [False], [str(n % 3) for n in range(60)])
    assert few.interval() is few.most_lost is None
