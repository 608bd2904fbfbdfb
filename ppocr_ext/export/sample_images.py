"""Images to compare engines on: some of ``Eval``, and drawn ones of mixed width; imports no Paddle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import cv2
import numpy as np

from ppocr_ext.charset import Charset
from ppocr_ext.config import Config
from ppocr_ext.data.label_file import read_label_file
from ppocr_ext.data.lmdb.reader import open_sets
from ppocr_ext.errors import PPOCRExtError
from ppocr_ext.recognition.images import ImageSource, read_image
from ppocr_ext.recognition.resize import WidthPolicy

_LETTERS = (1, 4, 9, 16)  # of the drawn images: narrow to wide


def eval_images(config: Config, count: int) -> list[np.ndarray]:
    """Return the first images of ``Eval`` that can be read, uint8 [H, W, 3]; fewer or none if there are fewer."""
    images = []
    for source in islice(_sources(config), 10 * count):
        try:
            images.append(read_image(source))
        except PPOCRExtError:
            continue  # `eval` and `config --check` report it; here another image does as well
        if len(images) == count:
            break
    return images


def _sources(config: Config) -> Iterator[ImageSource]:
    """Yield the images that the config's own kinds of data name; a dataset of a plugin yields none."""
    dataset = config.at("Eval.dataset", default=None) or {}
    folder, files = dataset.get("data_dir"), dataset.get("label_file_list") or ()
    try:
        if files and folder:
            for file in [files] if isinstance(files, str) else files:
                lines = read_label_file(file, dataset.get("delimiter", "\t"))
                yield from (Path(folder, line.images[0]) for line in lines if line.issue is None)
        elif folder and str(dataset.get("name")).startswith("LMDB"):
            for lmdb in open_sets(folder):
                found = (lmdb.image(number) for number in range(1, lmdb.count + 1))
                yield from (image for image in found if image is not None)
    except PPOCRExtError:
        return  # the data need not be on this machine


def drawn_images(charset: Charset, height: int) -> list[np.ndarray]:
    """Return coloured images with letters of the dictionary, from narrow to wide; the same ones each time.

    Args:
        charset: the dictionary; without a Latin letter or digit in it, digits are drawn.
        height: of the network's input. The images have other heights, so that they are resized.
    """
    drawable = [c for c in charset.characters if len(c) == 1 and c.isascii() and c.isalnum()] or list(
        "0123456789"
    )
    generator = np.random.default_rng(0)
    images = []
    for number, letters in enumerate(_LETTERS):
        text = "".join(generator.choice(drawable, letters))
        images.append(_draw(text, height + 7 * number + 5, generator))
    return images


def _draw(text: str, height: int, generator: np.random.Generator) -> np.ndarray:
    """Return ``text`` in one colour on a background that changes from left to right."""
    font, scale = cv2.FONT_HERSHEY_SIMPLEX, height / 40
    (width, _), _ = cv2.getTextSize(text, font, scale, 2)
    left, right, ink = generator.integers([[150], [90], [0]], [[256], [256], [80]], (3, 3))
    share = np.linspace(0, 1, width + height // 2)[:, None]
    row = left * (1 - share) + right * share
    image = np.repeat(row[None], height, axis=0).astype(np.uint8)
    cv2.putText(image, text, (height // 4, int(height * 0.72)), font, scale, ink.tolist(), 2, cv2.LINE_AA)
    return image


def batches_of(images: Sequence[np.ndarray], policy: WidthPolicy) -> list[np.ndarray]:
    """Return the images prepared for a network: each alone, and all of one width as one batch.

    Args:
        images: uint8 [H, W, 3].
        policy: of the network.

    Returns:
        float32 [B, 3, H, W] each.
    """
    prepared = [policy.prepare(image) for image in images]
    by_width: dict[int, list[np.ndarray]] = {}
    for one in prepared:
        by_width.setdefault(one.shape[2], []).append(one)
    return [one[None] for one in prepared] + [np.stack(same) for same in by_width.values() if len(same) > 1]
