"""Folders of labelled images in each format, drawn small."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import cv2
import lmdb
import numpy as np

Texts = dict[str, str]  # image → text
TEXTS: Texts = {"a.jpg": "京A·12345", "b c.PNG": 'say "hi", Tom', "中文/图 1.png": " lead and trail "}
POLYGON = "10,10,50,10,50,30,10,30"
BOX = ((10.0, 10.0), (50.0, 10.0), (50.0, 30.0), (10.0, 30.0))


def draw(file: Path, channels: int = 3, dtype: type = np.uint8, size: tuple[int, int] = (48, 96)) -> None:
    """Write an image of the ending of ``file``."""
    file.parent.mkdir(parents=True, exist_ok=True)
    shape = size if channels == 1 else (*size, channels)
    pixels = np.random.default_rng(len(str(file))).integers(0, np.iinfo(dtype).max, shape).astype(dtype)
    encoded = cv2.imencode(file.suffix.lower(), pixels)[1]  # imwrite refuses Chinese names on some systems
    file.write_bytes(encoded.tobytes())


def images(root: Path, names: Iterable[str]) -> None:
    for name in names:
        draw(root / name)


def write(root: Path, name: str, text: str, encoding: str = "utf-8") -> None:
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode(encoding))


def write_json(root: Path, name: str, content: Any) -> None:
    write(root, name, json.dumps(content, ensure_ascii=False))


def rows(texts: Texts, form: Callable[[str, str], str], end: str = "\n") -> str:
    return "".join(form(image, text) + end for image, text in texts.items())


def tabs(texts: Texts, end: str = "\n") -> str:
    return rows(texts, lambda image, text: f"{image}\t{text}", end)


def quoted(texts: Texts, comma: str = ",") -> str:
    cells = {each.replace('"', '""'): text.replace('"', '""') for each, text in texts.items()}
    return rows(cells, lambda image, text: f'"{image}"{comma}"{text}"')


def page_line(image: str, *boxes: tuple[str, bool]) -> str:
    points = [list(map(int, corner)) for corner in BOX]
    content = [{"transcription": text, "points": points, "difficult": hard} for text, hard in boxes]
    return f"{image}\t{json.dumps(content, ensure_ascii=False)}\n"


def write_lmdb(folder: Path, texts: list[str]) -> None:
    folder.mkdir(parents=True)
    with (
        lmdb.open(str(folder), map_size=1 << 20) as environment,
        environment.begin(write=True) as transaction,
    ):
        for number, text in enumerate(texts, start=1):
            encoded = cv2.imencode(".jpg", np.zeros((8, 24, 3), np.uint8))[1].tobytes()
            transaction.put(b"image-%09d" % number, encoded)
            transaction.put(b"label-%09d" % number, text.encode())
        transaction.put(b"num-samples", str(len(texts)).encode())
