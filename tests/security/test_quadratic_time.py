"""Content whose time grows with the square of its size is refused before it takes that time."""

from __future__ import annotations

import collections
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from error_codes import raises_code

from ppocr_ext.config import load
from ppocr_ext.data.image_check import ImageFolder, content_issue, read_image_file
from ppocr_ext.errors import ConfigError, DataError
from ppocr_ext.io.image_pixels import decode_image
from ppocr_ext.io.plain_pickle import PlainPickleError, load_plain_pickle
from ppocr_ext.limits import MAX_IMAGE_SCANS
from ppocr_ext.recognition.images import read_image

COLLIDING = 2**61 - 1  # whose multiples have the hash 0
SCAN = b"\xff\xda"


def of_tuples(depth: int = 18) -> Any:
    """Return a tuple whose hash takes 2**depth steps."""
    value: Any = (1, 2)
    for _ in range(depth):
        value = (value, value)
    return value


KEYS: dict[str, Callable[[], Any]] = {
    "dict": lambda: {number * COLLIDING: 0 for number in range(1, 2000)},
    "set": lambda: {number * COLLIDING for number in range(1, 2000)},
    "ordered dict": lambda: collections.OrderedDict({(number, 1): 0 for number in range(3)}),
    "tuples of tuples": lambda: {of_tuples(): 0},
    "frozenset": lambda: frozenset([2**70]),
}


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_a_pickle_that_may_collide_are_refused(tmp_path: Path, kind: str, protocol: int) -> None:
    (tmp_path / "file").write_bytes(pickle.dumps(KEYS[kind](), protocol))
    with pytest.raises(PlainPickleError, match="key|calls"):
        load_plain_pickle(tmp_path / "file")


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_honest_keys_are_read(tmp_path: Path, protocol: int) -> None:
    content = [
        {f"conv2d_{number}.w_0_moment1_0": number for number in range(5000)},
        {number: [number] for number in range(20_000)},
        {np.int64(5): 1, -(2**63): 2, 2**64 - 1: 3, None: 4, True: 5, 0.5: 6},
        collections.OrderedDict({"a": 1}),
        {1, "a"},
    ]
    (tmp_path / "file").write_bytes(pickle.dumps(content, protocol))
    assert load_plain_pickle(tmp_path / "file") == content


@pytest.mark.parametrize(
    "value",
    [
        str(10**19),
        "9" * 4000,
        "0x" + "f" * 90,
        "0x" + "f" * 100_000,
        "1" + ":59" * 60,
        "1" + ":59" * 60 + ".5",
        "1_" * 60,
    ],
)
def test_a_number_of_yaml_has_a_limit(tmp_path: Path, value: str) -> None:
    (tmp_path / "my.yml").write_text(f"Global:\n  seed: {value}\n")
    with raises_code(ConfigError, "bad_value", "my.yml:2"):
        load(tmp_path / "my.yml")
    (tmp_path / "my.yml").write_text(f"Global:\n  ? {value}\n  : 1\n")
    with raises_code(ConfigError, "bad_value", "my.yml:2"):
        load(tmp_path / "my.yml")


def test_honest_numbers_of_yaml_are_read(tmp_path: Path) -> None:
    text = "a: 1:59:59\nb: 9223372036854775807\nc: -0x7f\nd: 1e-400\ne: '99999999999999999999999'\n5: 1\n"
    (tmp_path / "my.yml").write_text(text)
    found = load(tmp_path / "my.yml").thaw()
    assert found == {"a": 7199, "b": 2**63 - 1, "c": -127, "d": 0.0, "e": "9" * 23, 5: 1}


def jpeg(*options: int) -> bytes:
    pixels = cv2.resize(np.random.default_rng(0).integers(0, 256, (8, 12, 3), np.uint8), (96, 64))
    return bytes(cv2.imencode(".jpg", pixels, options)[1])


def with_scans(count: int, between: bytes = b"") -> bytes:
    """Return a progressive JPEG whose last scan is repeated until it has ``count``; ``between`` is before the first."""
    content = jpeg(cv2.IMWRITE_JPEG_PROGRESSIVE, 1)
    first, last = content.index(SCAN), content.rindex(SCAN)
    scan, scans = content[last:-2], content.count(SCAN)
    return content[:first] + between + content[first:-2] + scan * (count - scans) + content[-2:]


COMMENT = b"\xff\xfe\x00\x02"


@pytest.mark.parametrize("between", [b"", COMMENT * 2000, COMMENT * 12_000])
def test_a_jpeg_of_many_scans_is_not_decoded(tmp_path: Path, between: bytes) -> None:
    content, file = with_scans(MAX_IMAGE_SCANS + 1, between), tmp_path / "a.jpg"
    file.write_bytes(content)
    with pytest.raises(ValueError, match="scans"):
        decode_image(content)
    with raises_code(DataError, "broken_image", file, "scans"):
        read_image(file)
    for how in ("header", "decode"):
        for issue in (
            content_issue(read_image_file(file), "image", how),
            content_issue(content, "image", how),
        ):  # type: ignore[arg-type]
            assert issue and issue.reason == "broken_image" and "scans" in issue.detail
    assert not ImageFolder(tmp_path, False).is_whole("a.jpg")


@pytest.mark.parametrize("size", [0, 40_000])
def test_a_jpeg_of_a_camera_is_decoded(tmp_path: Path, size: int) -> None:
    """Also one that is longer than what is read at once of each image."""
    for content in (jpeg(), with_scans(10), with_scans(MAX_IMAGE_SCANS)):
        first = content.index(SCAN)
        content = content[:first] + COMMENT * (size // 4) + content[first:]
        (tmp_path / "a.jpg").write_bytes(content)
        assert decode_image(content).shape == (64, 96, 3)
        assert content_issue(read_image_file(tmp_path / "a.jpg"), "image", "header") is None
        assert content_issue(content, "image", "header") is None
