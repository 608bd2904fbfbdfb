"""Samples that belong together stay in one part, and the same seed gives the same parts."""

from __future__ import annotations

import numpy as np
import pytest

from ppocr_ext.errors import DataError
from ppocr_ext.first_run.split import OWN_SPLIT, Split, split_samples
from ppocr_ext.sources.samples import Sample


def split(samples: list[Sample], seed: int = 1, **options: bool) -> Split:
    return split_samples(samples, seed, **options)


def named(*names: str, **fields: str) -> list[Sample]:
    return [
        Sample(name, "text", f"list.txt:{number}", **fields) for number, name in enumerate(names, start=1)
    ]


@pytest.mark.parametrize(
    ("samples", "by"),
    [
        ([Sample(f"{n}.png", "t", "", "", f"page{n // 20}") for n in range(400)], "page"),
        (named(*(f"scan{n // 20}_crop_{n % 20}.png" for n in range(400))), "name"),
        (named(*(f"doc_{n // 20:04d}-{n % 20}.png" for n in range(400))), "name"),
        (named(*(f"day{n // 20}/{n:06d}.png" for n in range(400))), "folder"),
        (named(*(f"images/{n:06d}.png" for n in range(400))), "image"),
        (named(*(f"images/115_Lube_{n}.jpg" for n in range(400))), "image"),  # one group is too large
        ([Sample("one.png", "t", f"{n}", "", "one") for n in range(400)], "image"),
    ],
)
def test_samples_are_split_by_what_they_were_cut_from(samples: list[Sample], by: str) -> None:
    found = split(samples)
    assert found.by == by
    if by == "image":
        return
    keys = {
        "page": lambda s: s.group,
        "name": lambda s: s.image.rpartition("_crop_")[0] or s.image.rpartition("-")[0],
        "folder": lambda s: s.image.rpartition("/")[0],
    }[by]
    parts: dict[str, set[int]] = {}
    for sample, code in zip(samples, found.codes, strict=True):
        parts.setdefault(keys(sample), set()).add(int(code))
    assert all(len(codes) == 1 for codes in parts.values())
    assert 40 <= found.counts()["val"] <= 60


@pytest.mark.parametrize(("count", "val"), [(10, 1), (300, 30), (1_000, 200), (1_300, 200), (5_000, 500)])
def test_a_tenth_evaluates_and_200_of_1000(count: int, val: int) -> None:
    assert split(named(*(f"{n}.png" for n in range(count)))).counts()["val"] == val


def test_the_same_seed_gives_the_same_parts() -> None:
    samples = named(*(f"{n}.png" for n in range(500)))
    assert np.array_equal(split(samples).codes, split(samples).codes)
    assert not np.array_equal(split(samples).codes, split(samples, seed=2).codes)


def test_the_users_split_stays_unless_it_is_redone() -> None:
    parts = ["train"] * 70 + ["val"] * 20 + ["test"] * 10
    samples = [Sample(f"{n}.png", "t", "", part) for n, part in enumerate(parts)]
    found = split(samples)
    assert (found.by, found.counts()) == (OWN_SPLIT, {"train": 70, "val": 20, "test": 10})
    assert split(samples, redo=True).counts() == {"train": 90, "val": 10, "test": 0}


@pytest.mark.parametrize("given", [["train"], ["test"], ["val"], ["train", "test"]])
def test_a_split_without_train_or_val_is_completed(given: list[str]) -> None:
    samples = [Sample(f"{n}.png", "t", "", given[n % len(given)]) for n in range(100)]
    counts = split(samples).counts()
    assert counts["train"] > 0 and counts["val"] > 0
    assert counts["test"] == (50 if given == ["train", "test"] else 0)


def test_a_test_part_is_taken_if_asked() -> None:
    samples = named(*(f"{n}.png" for n in range(300)))
    assert split(samples, test=True).counts() == {"train": 243, "val": 30, "test": 27}


def test_the_same_image_stays_in_one_part() -> None:
    samples = named(*(f"{n // 2}.png" for n in range(200)))
    codes = split(samples).codes.reshape(-1, 2)
    assert (codes[:, 0] == codes[:, 1]).all()


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(DataError) as raised:
        split(named(*(f"{n}.png" for n in range(9))))
    assert raised.value.code == "too_few_samples"
