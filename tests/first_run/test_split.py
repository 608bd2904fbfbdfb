"""Samples that belong together stay in one part, and the same seed gives the same parts."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from ppocr_ext.errors import DataError
from ppocr_ext.first_run.split import OWN_SPLIT, Split, split_samples
from ppocr_ext.sources.samples import Sample


def split(samples: list[Sample], seed: int = 1, **options: Any) -> Split:
    return split_samples(samples, seed, **options)


def parts_of(samples: list[Sample], found: Split) -> list[list[Sample]]:
    """Return the samples that train and those that evaluate."""
    return [
        [sample for sample, each in zip(samples, found.codes, strict=True) if each == code] for code in (0, 1)
    ]


def characters(samples: list[Sample]) -> set[str]:
    return set("".join(sample.text for sample in samples))


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
        ([Sample("one.png", "t", f"{n}", "", "one") for n in range(400)], "line"),
        ([Sample(f"{n // 30}.png", "t", f"{n}", "", f"{n // 30}") for n in range(90)], "line"),  # 3 pages
    ],
)
def test_samples_are_split_by_what_they_were_cut_from(samples: list[Sample], by: str) -> None:
    found = split(samples)
    assert found.by == by
    assert found.counts()["val"]
    if by in ("image", "line"):
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


@pytest.mark.parametrize(("count", "val"), [(10, 2), (300, 30), (1_000, 200), (1_300, 200), (5_000, 500)])
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
    assert split(samples, redo=True).counts() == {"train": 80, "val": 10, "test": 10}
    redone = split(samples, redo=True)
    assert (redone.codes[90:] == 2).all()  # the user's test part evaluates a model: it never trains
    assert split(samples, redo=True, test=True).counts() == {"train": 80, "val": 10, "test": 10}
    assert split(samples, test=True).counts() == found.counts()
    tested = split(samples[:90], test=True)  # val stays, and a part of train tests
    assert tested.counts() == {"train": 60, "val": 20, "test": 10} and (tested.codes[70:] == 1).all()


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


@pytest.mark.parametrize("name", ["{text}_{n:04d}.png", "{text}/{n:04d}.png", "crops/{text}-{n}.jpg"])
@pytest.mark.parametrize("texts", ["0123456789", ["stop", "post", "pots", "tops", "spot", *"abcdefgh"]])
def test_a_class_is_never_in_val_alone(name: str, texts: list[str]) -> None:
    samples = [Sample(name.format(text=text, n=n), text, "") for text in texts for n in range(100)]
    for seed in range(5):
        train, val = parts_of(samples, split(samples, seed))
        assert {each.text for each in val} <= {each.text for each in train}
        assert len(val) >= 0.05 * len(samples)


def test_characters_of_val_also_train_if_that_is_possible() -> None:
    samples = [Sample(f"{n}.png", f"ab{chr(0x4E00 + n // 2)}", "") for n in range(300)]
    samples += [Sample(f"once{n}.png", f"ab{chr(0x5E00 + n)}", "") for n in range(100)]
    for seed in range(5):
        train, val = parts_of(samples, split(samples, seed))
        assert characters(val) <= characters(train) and len(val) == 40
    samples = [Sample(f"{n}.png", chr(0x4E00 + n), "") for n in range(50)]  # no split can do it
    assert split(samples).counts()["val"] == 10


def test_pages_stay_whole_although_some_characters_occur_on_one_page() -> None:
    samples = [
        Sample(f"{page}-{n}.png", "text" if n else chr(0x4E00 + page), "", "", f"page{page}")
        for page in range(30)
        for n in range(20)
    ]
    found = split(samples)
    assert found.by == "page"
    pages = [{each.group for each in part} for part in parts_of(samples, found)]
    assert not pages[0] & pages[1]


@pytest.mark.parametrize("seed", range(20))
def test_val_is_about_a_tenth_however_large_the_groups_are(seed: int) -> None:
    sizes = np.random.default_rng(seed).permutation([60, 55, 50, *[5] * 8, 20])
    samples = [
        Sample(f"{p}.png", "t", "", "", f"page{p}") for p, size in enumerate(sizes) for _ in range(size)
    ]
    found = split(samples, seed)
    assert found.by == "page" and 0.05 <= found.counts()["val"] / len(samples) <= 0.2


@pytest.mark.parametrize("seed", range(20))
def test_samples_without_a_page_are_no_group(seed: int) -> None:
    samples = [Sample(f"{n}.png", "t", "", "", f"page{n % 20}" if n < 100 else "") for n in range(400)]
    found = split(samples, seed)
    assert found.by == "page" and 20 <= found.counts()["val"] <= 80


@pytest.mark.parametrize("seed", range(10))
def test_a_copy_brings_its_whole_page(seed: int) -> None:
    samples = [Sample(f"{page}_{n}.png", "t", "", "", f"page{page}") for page in range(40) for n in range(10)]
    copies = {"7_3.png": "2_1.png", "9_0.png": "7_3.png", "20_2.png": "9_9.png"}
    codes = dict(
        zip((each.image for each in samples), split(samples, seed, copies=copies).codes, strict=True)
    )
    pages: dict[str, set[int]] = {}
    for image, code in codes.items():
        pages.setdefault(image.partition("_")[0], set()).add(int(code))
    assert all(len(each) == 1 for each in pages.values())
    assert len({codes[image] for image in ("2_0.png", "7_0.png", "9_1.png", "20_0.png")}) == 1


def test_pages_that_all_have_the_same_words_stay_whole() -> None:
    samples = [Sample(f"{page}_{n}.png", "t", "", "", f"page{page}") for page in range(40) for n in range(10)]
    found = split(samples, copies={f"{page}_0.png": "0_0.png" for page in range(1, 40)})
    assert (found.by, found.counts()["val"]) == ("page", 40)
    pages = [{each.group for each in part} for part in parts_of(samples, found)]
    assert not pages[0] & pages[1] and found.apart == (4 if found.codes[0] == 0 else 36)


@pytest.mark.parametrize("seed", range(5))
def test_classes_whose_images_are_alike_are_in_both_parts(seed: int) -> None:
    samples = [Sample(f"{text}{n}.png", text, "") for text in "0123456789" for n in range(40)]
    copies = {f"{text}{n}.png": f"{text}{n - 1}.png" for text in "0123456789" for n in range(1, 39)}
    train, val = parts_of(samples, split(samples, seed, copies=copies))
    assert len(val) == 40 and characters(val) <= characters(train)
    assert min(Counter(each.text for each in train).values()) >= 20


def test_an_own_split_says_what_train_lacks() -> None:
    texts = {"train": ["abc"] * 10, "val": ["ab", "ad", "bc", "e"]}
    samples = [Sample("x.png", text, "", part) for part, each in texts.items() for text in each]
    assert split(samples).lacking == {"d", "e"}


def test_one_line_that_evaluates_is_no_split() -> None:
    samples = [Sample(f"{n}.png", "t", "", "train" if n else "val") for n in range(100)]
    found = split(samples)
    assert found.by != OWN_SPLIT and found.counts()["val"] == 10 and found.codes[0] == 1


@pytest.mark.parametrize(("count", "of_val"), [(10, 2), (12, 3), (20, 5), (40, 10), (100, 10), (110, 11)])
def test_a_few_samples_evaluate_of_which_each_counts_little(count: int, of_val: int) -> None:
    samples = named(*(f"{n}.png" for n in range(count)))
    assert split(samples).counts() == {"train": count - of_val, "val": of_val, "test": 0}
