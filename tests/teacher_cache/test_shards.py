"""What is kept of logits, and shards that come back as they were written."""

from dataclasses import replace

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
    TopClasses,
    dense_logits,
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


def test_a_cache_that_another_host_has_begun_is_not_overwritten(tmp_path):
    FACTS.write(tmp_path)
    replace(FACTS, shards=3).write(tmp_path)  # the data have grown
    with raises_code(DataError, "other_cache", "Teacher"):
        replace(FACTS, model="Other").write(tmp_path)
    assert read_facts(tmp_path) == replace(FACTS, shards=3)


def test_a_shard_without_entries(tmp_path):
    write_shard(tmp_path / "a", {}, {})
    assert len(Shard(tmp_path / "a", FORMS).table) == 0


@pytest.mark.parametrize("content", [None, "", "[]", "{}", '{"format": 99}'])
def test_a_folder_without_a_cache_is_refused(tmp_path, content):
    if content is not None:
        (tmp_path / "cache.json").write_text(content)
    with raises_code(DataError, "no_teacher_cache", tmp_path):
        Store(tmp_path)


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
