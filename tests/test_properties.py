"""Properties of label lines, configs, dictionaries and centers; hypothesis takes the same examples each time."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ppocr_ext.centers.collect import CenterAccumulator
from ppocr_ext.characters.center_table import CenterTable, read_centers
from ppocr_ext.charset import Charset
from ppocr_ext.config import load
from ppocr_ext.config.config_view import from_plain
from ppocr_ext.config.node import Node, Place, merge, plain_copy
from ppocr_ext.data.image_check import content_issue
from ppocr_ext.data.label_file import parse_line
from ppocr_ext.errors import CharsetError, DataError, PPOCRExtError
from ppocr_ext.evaluation.predictions import Prediction, read_predictions, write_predictions

some = settings(
    max_examples=40,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
ANY_TEXT = st.text(max_size=20)
CELL = st.text(
    st.characters(exclude_categories=("Cs",), exclude_characters="\t\n\r"), min_size=1, max_size=20
)
# what the file escapes, and what looks like its escapes
WRITTEN = ANY_TEXT | st.text(st.sampled_from("\\u001b5cd\x1b\u202e'=\t\n\r\""), max_size=20)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=("Cs",)), max_size=20),
)
KEYS = st.sampled_from(["Global", "a", "b", "c", "lr", "1", "未"])
MAPPINGS = st.recursive(
    st.dictionaries(KEYS, SCALARS, max_size=4),
    lambda inner: st.dictionaries(KEYS, SCALARS | inner, max_size=3),
    max_leaves=6,
)
CHARACTERS = st.lists(
    st.characters(exclude_categories=("Cs",), exclude_characters="\n\r\ufeff"),
    min_size=1,
    max_size=40,
    unique=True,
)


LINES = st.binary(max_size=60) | st.lists(ANY_TEXT, max_size=4).map(
    lambda cells: "\t".join(cells).encode("utf-8", "replace")
)
STARTS = st.sampled_from(
    [b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"BM", b"RIFF....WEBPVP8 ", b"II*\0", b"GIF89a", b""]
)
FRAMES = st.lists(
    st.tuples(st.integers(0, 4), st.tuples(*[st.floats(-1e4, 1e4, width=32)] * 3)), min_size=1, max_size=10
)
CHANGES = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=4)


# label files


@some
@given(LINES)
def test_a_line_is_read_or_has_an_issue(raw: bytes) -> None:
    for ds_width in (False, True):
        line = parse_line(2, raw, ds_width=ds_width)
        assert (line.issue is None) == bool(line.images) and all(line.images)
        if line.issue is None and not raw.startswith(b"["):
            name, label, *extra = raw.removesuffix(b"\n").removesuffix(b"\r").decode().split("\t")
            assert (line.images, line.label, line.extra) == ((name,), label, tuple(extra))


@some
@given(STARTS, st.binary(max_size=60))
def test_bytes_are_an_image_or_have_an_issue(start: bytes, rest: bytes) -> None:
    for how in ("header", "decode"):
        issue = content_issue(start + rest, "image", how)  # type: ignore[arg-type]
        assert issue is None or issue.reason in ("broken_image", "too_many_pixels")


# configs


def node(plain: Any) -> Node:
    return from_plain(plain, Place("my.yml", "my.yml:1"))


def naive_merge(base: Any, over: Any) -> Any:
    if not (isinstance(base, dict) and isinstance(over, dict)):
        return over
    both = {key: naive_merge(base[key], over[key]) for key in base.keys() & over.keys()}
    return {**base, **over, **both}


@some
@given(MAPPINGS, MAPPINGS, MAPPINGS)
def test_mappings_merge_as_plain_dicts_do(first: dict, second: dict, third: dict) -> None:
    a, b, c = map(node, (first, second, third))
    assert plain_copy(merge(a, b)) == naive_merge(first, second)
    assert plain_copy(merge(a, Node({}))) == plain_copy(merge(a, a)) == first
    assert plain_copy(merge(merge(a, b), c)) == plain_copy(merge(a, merge(b, c)))
    assert (plain_copy(a), plain_copy(b)) == (first, second)


HEADS = st.dictionaries(KEYS, MAPPINGS, min_size=1, max_size=3)


@some
@given(HEADS, HEADS)
def test_lists_of_components_merge_by_name_in_the_order_of_the_base(first: dict, second: dict) -> None:
    lists = [{"head_list": [{name: value} for name, value in heads.items()]} for heads in (first, second)]
    expected = naive_merge(first, second)
    order = [*first, *(name for name in second if name not in first)]
    merged = plain_copy(merge(*map(node, lists)))
    assert merged == {"head_list": [{name: expected[name]} for name in order]}


@some
@given(st.text(alphabet=": -[]{}&*!<>'\"\n#|ab1_,\t\x00", max_size=40), st.lists(ANY_TEXT, max_size=2))
def test_a_config_is_read_or_refused(tmp_path: Path, text: str, options: list[str]) -> None:
    (tmp_path / "my.yml").write_text(text)
    with contextlib.suppress(PPOCRExtError):
        load(tmp_path / "my.yml", options)


# dictionaries


@some
@given(CHARACTERS, st.sampled_from(["\n", "\r\n"]), st.booleans(), st.booleans())
def test_a_dictionary_gives_each_character_its_class(
    tmp_path: Path, characters: list[str], end: str, last: bool, space: bool
) -> None:
    content = end.join(characters) + end * last
    (tmp_path / "dict.txt").write_bytes(content.encode())
    if not content.strip():
        return
    charset = Charset.from_file(tmp_path / "dict.txt", space)
    assert charset.characters == (*characters, *" " * space)
    assert len(charset.ctc_symbols) == charset.ctc_classes == len(characters) + space + 1
    assert len(charset.nrtr_symbols) == charset.nrtr_classes == charset.ctc_classes + 3
    text = "".join(characters)
    assert "".join(charset.ctc_symbols[number] for number in charset.ids(text)) == text
    assert charset.unknown(text) == []


@some
@given(st.binary(max_size=60))
def test_a_dictionary_is_read_or_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "dict.txt").write_bytes(content)
    with contextlib.suppress(CharsetError):
        charset = Charset.from_file(tmp_path / "dict.txt")
        with (tmp_path / "dict.txt").open("rb") as stream:  # as PaddleOCR reads it
            assert list(charset.characters) == [line.decode().strip("\n").strip("\r\n") for line in stream]


# centers and predictions


@some
@given(FRAMES, st.integers(0, 10))
def test_centers_are_means_however_the_frames_are_divided(
    tmp_path: Path, frames: list[tuple[int, tuple[float, ...]]], cut: int
) -> None:
    ids, features = np.array([c for c, _ in frames]), np.array([f for _, f in frames], np.float32)
    added = CenterAccumulator(5, 3)
    for part in (slice(None, cut), slice(cut, None)):
        added.add(features[part], ids[part])
    expected = np.stack(
        [features[ids == c].astype(np.float64).mean(axis=0) for c in sorted(set(ids.tolist()))]
    )
    np.testing.assert_allclose(added.centers(), expected, rtol=1e-9, atol=1e-6)
    table = CenterTable(
        np.asarray(added.present, np.int64),
        tuple("abcde"[c] for c in added.present),
        added.centers().astype(np.float32),
        added.counts[added.present],
        np.maximum(added.variance(), 0),
        {"classes": 5},
    )
    table.save(tmp_path / "centers.npz")
    back = read_centers(tmp_path / "centers.npz")
    assert (back.centers == table.centers).all() and back.characters == table.characters
    table.save_pickle(tmp_path / "centers.pkl")
    assert (read_centers(tmp_path / "centers.pkl").centers == table.centers).all()


@pytest.fixture(scope="module")
def center_files(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    folder = tmp_path_factory.mktemp("centers")
    table = CenterTable(
        np.arange(2), ("blank", "a"), np.ones((2, 3), np.float32), np.ones(2, np.int64), np.ones(2), {}
    )
    table.save(folder / "a.npz")
    table.save_pickle(folder / "a.pkl")
    return [(folder / name).read_bytes() for name in ("a.npz", "a.pkl")]


@some
@given(st.sampled_from([0, 1]), CHANGES, st.floats(0, 1))
def test_a_damaged_file_of_centers_is_read_or_refused(
    tmp_path: Path, center_files: list[bytes], which: int, changes: list[tuple[float, int]], kept: float
) -> None:
    content = bytearray(center_files[which])
    for place, value in changes:
        content[int(place * len(content))] = value
    (tmp_path / "damaged").write_bytes(content[: math.ceil(kept * len(content))])
    with contextlib.suppress(DataError):
        assert np.isfinite(read_centers(tmp_path / "damaged").centers).all()


@some
@given(st.lists(st.tuples(WRITTEN, WRITTEN, WRITTEN), min_size=1, max_size=4))
@example([("\\u001b[2J", "\\u005c", "\x1b\\u005cu001b")])
def test_predictions_that_are_written_are_read(tmp_path: Path, rows: list[tuple[str, str, str]]) -> None:
    written = [Prediction(*row, 0.5) for row in rows]
    write_predictions(tmp_path / "p.tsv", written)
    assert read_predictions(tmp_path / "p.tsv") == written
