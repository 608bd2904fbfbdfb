"""How sure shares and changes are: against enumeration, published tables, a search for the limits, and draws."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

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
    """Of single items and of whole pages, one of which wins an item and loses one; the larger share counts."""
    single = [1, -1, *(math.copysign(1, step) for step in steps for _ in range(abs(step)))]
    expected = []
    for each in (single, steps):
        sums = [abs(np.dot(signs, each)) for signs in itertools.product((1, -1), repeat=len(each))]
        expected.append(np.mean([total >= abs(sum(each)) for total in sums]))
    lost, won = single.count(-1), single.count(1)
    assert Changes(lost, won, 100).p_value == pytest.approx(expected[0])
    by_page = Changes(lost, won, 100, tuple((step, 10) for step in steps))
    assert by_page.p_value == pytest.approx(max(expected))


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
    for limit, side in zip(limits, (1, -1), strict=True):
        assert side * score(won, lost, n, limit) == pytest.approx(1.959964, abs=2e-3)


@pytest.mark.parametrize("changes", [Changes(0, 0, 200), Changes(0, 3, 60)])
def test_none_lost_still_leaves_a_loss_possible(changes: Changes) -> None:
    assert (1 - changes.most_lost) ** changes.total == pytest.approx(0.05)
    assert Changes(0, 0, 200).items_to_exclude(0.005) == 598  # 0.995 ** 598 < 0.05 < 0.995 ** 597


def test_verdicts_and_losses_at_the_ends() -> None:
    with pytest.raises(ValueError, match="argument"):
        Changes.of([True], [True, False])
    better, worse, all_lost = Changes(0, 12, 200), Changes(12, 0, 200), Changes(9, 0, 9)
    assert (better.verdict, worse.verdict, all_lost.verdict) == ("better", "worse", "worse")
    assert better.most_lost == 0.0 and all_lost.most_lost == 1.0
    assert worse.most_lost == pytest.approx(-worse.interval(0.05)[0])
    assert Changes(1, 0, 1).verdict == Changes(0, 5, 5).verdict == ""
    assert Changes(0, 100_000, 100_000).p_value < 1e-300


@pytest.mark.parametrize(("share", "loss"), [(0.02, 0.005), (0.1, 0.02), (0.3, 0.03)])
def test_so_many_items_exclude_the_loss_in_four_of_five_draws(share: float, loss: float) -> None:
    n = Changes(round(share * 500), round(share * 500), 1000).items_to_exclude(loss)
    draws = np.random.default_rng(0).multinomial(n, [share / 2, share / 2, 1 - share], size=500).tolist()
    excluded = [Changes(lost, won, n).interval(0.05)[0] >= -loss for lost, won, _ in draws]
    assert np.mean(excluded) == pytest.approx(0.8, abs=0.06)


def losing(pages: int, lines: int, lost: Sequence[int]) -> Changes:
    """Return the changes of pages of ``lines`` lines, of which the first ones lose ``lost`` lines."""
    steps = [-n for n in lost] + [0] * (pages - len(lost))
    return Changes(sum(lost), 0, pages * lines, tuple((step, lines) for step in steps))


def test_lines_of_a_page_count_for_fewer() -> None:
    """The design effect of 50 pages of 30 lines is 6.8; a page for each line says nothing."""
    before, after = [True] * 13 + [False] * 187, [False] * 5 + [True] * 8 + [False] * 187
    assert Changes.of(before, after, [str(n) for n in range(200)]) == Changes.of(before, after)
    pages, lines = losing(50, 30, [20, 14]), Changes(5, 0, 1500 / 6.8)  # type: ignore[arg-type]
    assert pages.interval() == pytest.approx(lines.interval())
    assert pages.most_lost == pytest.approx(lines.most_lost)
    assert pages.items_to_exclude(0.01) == pytest.approx(6.8 * lines.items_to_exclude(0.01), rel=0.01)
    assert losing(50, 30, []).items_to_exclude(0.01) == math.ceil(6.8 * math.log(0.05) / math.log(0.99))
    assert (1 - losing(50, 30, []).most_lost) ** (1500 / 6.8) == pytest.approx(0.05)


@pytest.mark.parametrize(("pages", "lines"), [(50, 30), (1, 40), (300, 2)])
@pytest.mark.parametrize("won", [0, 4, 15])
def test_who_loses_more_may_have_lost_more(pages: int, lines: int, won: int) -> None:
    """Lines are lost one by one, and never fewer may be lost than if all lines were independent."""
    rng = np.random.default_rng(0)
    page = rng.permutation(np.repeat(np.arange(pages), lines))
    before = np.arange(len(page)) >= won
    limits, singles = [], []
    for lost in [*range(20), len(page) // 2, len(page) - won]:
        after = np.arange(len(page)) < len(page) - lost
        limits.append(Changes.of(before.tolist(), after.tolist(), page.astype(str).tolist()).most_lost)
        singles.append(Changes.of(before.tolist(), after.tolist()).most_lost)
    assert limits == sorted(limits) and singles == sorted(singles)
    assert all(limit >= single for limit, single in zip(limits, singles, strict=True))


@pytest.mark.parametrize("correlation", [0.0, 0.1, 0.2])
@pytest.mark.parametrize("sizes", [[30] * 50, [10] * 20, [4] * 200, [150], [200, *[5] * 60]], ids=len)
def test_limits_cover_losses_that_correlate_within_a_page(sizes: list[int], correlation: float) -> None:
    """Shares lost and won of a page are of a Dirichlet distribution, whose parameters add up to 1 / correlation - 1."""
    rng = np.random.default_rng(0)
    for lost, won in [(0.003, 0.0), (0.01, 0.0), (0.03, 0.0), (0.1, 0.0), (0.03, 0.02), (0.1, 0.09)]:
        shares = np.array([lost, won, 1 - lost - won])
        covered = 0
        for _ in range(200):
            each = rng.dirichlet((1 / correlation - 1) * shares, len(sizes)) if correlation else shares
            lines = rng.multinomial(sizes, each)
            pages = tuple((int(up - down), size) for (down, up, _), size in zip(lines, sizes, strict=True))
            down, up, _ = lines.sum(0).tolist()
            covered += Changes(down, up, sum(sizes), pages).most_lost >= lost - won
        assert covered / 200 >= 0.92, (lost, won)  # 95 %, less two standard deviations of 200 draws
