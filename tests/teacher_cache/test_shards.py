"""Shards come back as they were written; what is damaged is noticed before it is used."""

from __future__ import annotations

import numpy as np
import pytest
from error_codes import raises_code

from ppocr_ext.data.sample_seeds import Views
from ppocr_ext.errors import DataError
from ppocr_ext.teacher_cache.store import (
    BranchForm,
    CacheFacts,
    Shard,
    Store,
    input_key,
    read_facts,
    shard_file,
    top_classes,
    write_shard,
)

FORMS = {"ctc": BranchForm(40, 6), "gtc": BranchForm(43, 43)}
FACTS = CacheFacts("Teacher", "a", "b", "c", Views(1, 2), FORMS, 2, 32, "float32")


def entry(seed: int):
    draw = np.random.default_rng(seed)
    shapes = {"ctc": (8, 40), "gtc": (5 + seed, 43)}
    return {
        name: top_classes(draw.normal(0, 3, shape).astype(np.float32), FORMS[name].kept)
        for name, shape in shapes.items()
    }


def key(number: int) -> bytes:
    return input_key(np.full((3, 4, 4), number, np.float32), [])


@pytest.fixture
def cache(tmp_path):
    FACTS.write(tmp_path)
    for number in range(2):
        entries = {key(each): entry(each) for each in range(3 * number, 3 * number + 3)}
        write_shard(shard_file(tmp_path, 0, number, "ab"), entries, {"ctc": (0.5, 24), "gtc": (0.0, 20)})
    return tmp_path


def flip(file, place: int) -> None:
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)


def test_entries_come_back(cache):
    store = Store(cache)
    assert store.facts == FACTS == read_facts(cache) and store.entries == 6
    assert store.find(key(9)) is None
    assert store.dropped("ctc") == pytest.approx(1 / 48)
    for number in range(6):
        found = store.find(key(number))
        assert found is not None
        for name, kept in entry(number).items():
            for part, values in vars(kept).items():
                assert np.array_equal(getattr(found[name], part), values)


def test_a_key_tells_pixels_shapes_and_labels_apart():
    image, label = np.zeros((3, 4, 8), np.float32), np.arange(5)
    other = image.copy()
    other[2, 3, 7] = 1e-7
    inputs = [
        (image, []),
        (other, []),
        (image.reshape(3, 8, 4), []),
        (image, [label]),
        (image, [label[::-1]]),
    ]
    assert len({input_key(*each) for each in inputs}) == 5
    assert input_key(image[:, :, ::2], []) == input_key(np.zeros((3, 4, 4), np.float32), [])


def test_a_damaged_entry_counts_as_missing(cache):
    flip(shard_file(cache, 0, 1, "ab"), -1)
    store = Store(cache)
    assert store.find(key(5)) is None and store.find(key(4)) is not None


@pytest.mark.parametrize("damage", ["table", "header", "cut off", "short", "empty"])
def test_a_damaged_shard_is_left_out(cache, damage, caplog):
    file = shard_file(cache, 0, 0, "ab")
    if damage in ("table", "header"):
        flip(file, 60 if damage == "table" else 9)
    else:
        file.write_bytes(file.read_bytes()[: {"cut off": -1, "short": 70, "empty": 0}[damage]])
    with raises_code(DataError, "damaged_file", file):
        Shard(file, FORMS)
    store = Store(cache)
    assert store.entries == 3 and store.find(key(4)) is not None and store.find(key(0)) is None
    assert str(file) in caplog.text


def test_a_shard_without_entries(tmp_path):
    write_shard(tmp_path / "a", {}, {})
    assert len(Shard(tmp_path / "a", FORMS).table) == 0


@pytest.mark.parametrize("content", [None, "", "[]", "{}", '{"format": 99}'])
def test_a_folder_without_a_cache_is_refused(tmp_path, content):
    if content is not None:
        (tmp_path / "cache.json").write_text(content)
    with raises_code(DataError, "no_teacher_cache", tmp_path):
        Store(tmp_path)
