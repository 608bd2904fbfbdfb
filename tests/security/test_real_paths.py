"""Images are those of data_dir: neither `..` nor a symbolic link leads out of it."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from ppocr_ext.charset import Charset
from ppocr_ext.data.preflight import check_label_files
from ppocr_ext.data.sample_rules import SampleRules


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """`data/a.png`, `data/sub/b.png`, `secret.png`, and links between them."""
    data = tmp_path / "data"
    (data / "sub").mkdir(parents=True)
    for file in (data / "a.png", data / "sub" / "b.png", tmp_path / "secret.png"):
        cv2.imwrite(str(file), np.full((8, 24, 3), 200, np.uint8))
    (data / "out.png").symlink_to("../secret.png")
    (data / "in.png").symlink_to("sub/b.png")
    (data / "outside").symlink_to("..")
    (data / "inside").symlink_to("sub")
    (data / "loop").symlink_to("loop")
    return data


IMAGES = {
    "a.png": None,
    "sub/b.png": None,
    "in.png": None,
    "inside/b.png": None,
    "sub/../a.png": None,
    "./a.png": None,
    "out.png": "outside_data_dir",
    "outside/secret.png": "outside_data_dir",
    "outside/data/a.png": None,
    "outside/data/out.png": "outside_data_dir",
    "../secret.png": "outside_data_dir",
    "inside/../../secret.png": "outside_data_dir",
    "inside/../a.png": None,
    "/etc/hostname": "outside_data_dir",
    "loop": "broken_image",
    "gone.png": "missing_image",
    "x" * 5000: "broken_image",
    "a\0b": "broken_image",
}


def reasons(data: Path, names: list[str], allowed: bool) -> dict[str, str]:
    (data / "list.txt").write_text("".join(f"{name}\t1\n" for name in names))
    rules = SampleRules(Charset(("1",)), 5, allow_outside_data_dir=allowed)
    report = check_label_files(data / "list.txt", data, rules)
    return {names[sample.line - 1]: sample.reason for sample in report.unusable_samples}


def test_each_path_is_followed_to_its_file(data: Path) -> None:
    expected = {name: reason for name, reason in IMAGES.items() if reason}
    assert reasons(data, list(IMAGES), allowed=False) == expected
    for name, reason in IMAGES.items():  # an independent reference
        if reason in (None, "outside_data_dir"):
            assert (data / name).resolve().is_relative_to(data.resolve()) == (reason is None)


def test_links_out_are_read_if_allowed(data: Path) -> None:
    links = [
        name for name, reason in IMAGES.items() if reason == "outside_data_dir" and name != "/etc/hostname"
    ]
    assert reasons(data, links, allowed=True) == {}


def test_a_data_dir_that_is_a_link_itself_is_followed(data: Path) -> None:
    link = data.parent / "link"
    link.symlink_to(data)
    assert reasons(link, ["a.png", "inside/b.png", "out.png"], allowed=False) == {
        "out.png": "outside_data_dir"
    }
