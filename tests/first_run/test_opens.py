"""`init` opens each file of the user's at most twice, whatever the format."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest
from test_init import captchas, labels, photos

__all__ = ["captchas", "photos"]
COUNT = """
import collections, json, os, sys
opens = collections.Counter()
def note(event, args):
    if event == "open" and isinstance(args[0], (str, bytes, os.PathLike)):
        opens[os.path.realpath(os.fsdecode(args[0]))] += 1
sys.addaudithook(note)
from ppocr_ext.cli.main import main
from ppocr_ext.first_run import decisions, writing
decisions.DRAWN, writing.GENERAL_LINES = 20, 6
code = main(sys.argv[1:])
print(json.dumps({"code": code, "opens": opens}), file=sys.stderr)
"""


def as_list(folder: Path) -> list[str]:
    """A list with a text that is long, since the format of a short one is known with its content."""
    rows = labels(folder / "labels.txt")
    text = "".join(f"{name}\t{text}\n" for name, text in rows.items())
    (folder / "labels.txt").write_text(text * 100, encoding="utf-8")
    return []


def as_names(folder: Path) -> list[str]:
    for name, text in labels(folder / "labels.txt").items():
        (folder / name).rename(folder / f"{text}_{name}")
    (folder / "labels.txt").unlink()
    return ["--text-from-name", "^[^_]+"]


def as_texts(folder: Path) -> list[str]:
    for name, text in labels(folder / "labels.txt").items():
        (folder / name).with_suffix(".txt").write_text(text, encoding="utf-8")
    (folder / "labels.txt").unlink()
    return []


def as_pages(folder: Path) -> list[str]:
    lines = []
    for number, (name, text) in enumerate(labels(folder / "labels.txt").items()):
        pixels = cv2.imread(str(folder / name))
        height, width = pixels.shape[:2]
        (folder / name).unlink()
        boxes = []
        for row in range(2):
            top = row * height
            points = [[0, top], [width, top], [width, top + height], [0, top + height]]
            boxes.append({"transcription": text[row:], "points": points, "difficult": False})
        cv2.imwrite(str(folder / f"{number}.png"), np.vstack([pixels, pixels]))
        lines.append(f"photos/{number}.png\t{json.dumps(boxes)}\n")
    (folder / "labels.txt").unlink()
    (folder / "0.png").write_bytes(b"broken")
    (folder / "Label.txt").write_text("".join(lines), encoding="utf-8")
    return []


def as_lmdb(folder: Path) -> list[str]:
    from ppocr_ext.cli.main import main

    words = ["--label-files", str(folder / "labels.txt"), "--data-dir", str(folder)]
    assert main(["make-lmdb", *words, "--out", str(folder / "set")]) == 0
    for file in folder.iterdir():
        if file.is_file():
            file.unlink()
    return []


@pytest.mark.parametrize("make", [as_list, as_names, as_texts, as_pages, as_lmdb])
def test_each_file_is_opened_at_most_twice(
    photos: Path, tmp_path: Path, make: Callable[[Path], list[str]]
) -> None:
    words = ["init", str(photos), "--out", str(tmp_path / "my"), *make(photos)]
    done = subprocess.run([sys.executable, "-c", COUNT, *words], capture_output=True, text=True, check=False)
    result = json.loads(done.stderr.splitlines()[-1])
    assert result["code"] == 0, done.stderr
    start = f"{os.path.realpath(photos)}/"
    opens = {file: count for file, count in result["opens"].items() if file.startswith(start)}
    most = 0 if make is as_lmdb else 2  # LMDB's own library opens its file twice, unseen
    assert make is as_lmdb or len(opens) > 30
    assert {file: count for file, count in opens.items() if count > most} == {}
