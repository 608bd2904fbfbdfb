"""Folders of drawn images with label files and a dictionary, as PaddleOCR reads them; no Paddle."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import cv2
import numpy as np
from tqdm import tqdm

from ppocr_ext.data.label_file import write_label_file
from ppocr_ext.errors import DataError
from ppocr_ext.io.atomic import atomic_writer, write_text
from ppocr_ext.synth.contact_sheet import Picture, contact_sheet
from ppocr_ext.synth.worker_pool import mapped

ImageFormat = Literal["png", "jpg"]
SPLITS = ("train", "val")
_CHUNK = 250  # images of a task; the digest is built on it, so it never changes
_FOLDER = 1000  # images in a folder
_SAMPLES = 40
_MANIFEST = "dataset.json"
_SHOWN = 120  # characters of a parameter's value in a message


class Source(Protocol):
    """Images by split and index. It is sent to the processes that draw, so it must be possible to pickle it."""

    def label(self, split: str, index: int) -> str:
        """The text of an image, without drawing it."""
        ...

    def image(self, split: str, index: int) -> tuple[str, np.ndarray]:
        """Text and image (uint8 [height, width, 3], blue-green-red)."""
        ...

    def font(self, split: str, index: int) -> tuple[str, int]:
        """A font file, and the number of the font in it, that has the characters of an image."""
        ...


@dataclass(frozen=True)
class DatasetFolder:
    """What a folder holds.

    Args:
        kind: what is drawn, for ``dataset.json``.
        parameters: all that determines an image and its label, as plain values.
        characters: the dictionary, a class each, in this order.
        train, val: images of each split. A split is a stream of its own: none of its images is in the other.
        seed: of the images.
        image_format: ``"png"`` or ``"jpg"`` (quality 95).
    """

    kind: str
    parameters: dict[str, Any] = field(repr=False)
    characters: Sequence[str] = field(repr=False)
    train: int
    val: int
    seed: int
    image_format: ImageFormat = "png"

    def to_json(self) -> dict[str, Any]:
        """All that determines the images and labels, as plain values."""
        counts = {"train": self.train, "val": self.val, "seed": self.seed, "format": self.image_format}
        return {**self.parameters, **counts}

    def count(self, split: str) -> int:
        """Images of a split."""
        return self.train if split == "train" else self.val

    def path(self, split: str, index: int) -> str:
        """Image path, relative to the folder."""
        return f"{split}/{index // _FOLDER:04d}/{index:06d}.{self.image_format}"

    def paths(self) -> Iterator[str]:
        """Paths of all images."""
        return (self.path(split, index) for split in SPLITS for index in range(self.count(split)))


@dataclass(frozen=True)
class Made:
    """What :func:`make_folder` did: images drawn now, images found, seconds, digest of all files."""

    drawn: int
    found: int
    seconds: float
    digest: str


class _Task(NamedTuple):
    split: str
    start: int
    stop: int


def check_counts(train: int, val: int, processes: int) -> None:
    """Refuse numbers of images and processes with which nothing can be made.

    Raises:
        DataError: there is no image to draw, or nobody to draw it.
    """
    if min(train, val) < 0 or train + val == 0 or processes < 1:
        raise DataError(
            f"{train} train and {val} val images with {processes} processes cannot be made. Give at "
            "least one image and one process."
        )


def make_folder(out: str | Path, wanted: DatasetFolder, source: Source, processes: int = 1) -> Made:
    """Write images, ``train_list.txt``, ``val_list.txt``, ``dict.txt``, ``samples.png`` and ``dataset.json``.

    The content does not depend on ``processes``. A folder that was left incomplete is completed, a
    complete one is left as it is. ``dataset.json`` has the parameters and the SHA-256 of everything.

    Raises:
        DataError: there is nothing to draw, or ``out`` holds something else.
        OSError: a file cannot be written.
    """
    started = time.perf_counter()
    out = Path(out)
    check_counts(wanted.train, wanted.val, processes)
    total = wanted.train + wanted.val
    digest = _completed(out, wanted)
    if digest is not None:
        return Made(0, total, time.perf_counter() - started, digest)
    _write_manifest(out, wanted, digest=None)
    drawn, hashes = _draw_missing(out, wanted, source, processes)
    texts = _write_lists(out, wanted, source)
    _write_samples(out, wanted, source)
    digest = hashlib.sha256("\n".join([*hashes, *texts]).encode()).hexdigest()
    _write_manifest(out, wanted, digest)
    return Made(drawn, total - drawn, time.perf_counter() - started, digest)


def _completed(out: Path, wanted: DatasetFolder) -> str | None:
    """The digest of a complete folder of these parameters; None where there is something to make.

    Raises:
        DataError: the folder holds something else.
    """
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return None
    remedy = "Give another --out, or delete that folder first."
    if not out.is_dir():
        raise DataError(f"{out} is a file. {remedy}")
    manifest = out / _MANIFEST
    if not manifest.is_file():
        raise DataError(
            f"{out} is not empty and has no {_MANIFEST}: it was not made by this command. {remedy}"
        )
    try:
        known = json.loads(manifest.read_text(encoding="utf-8"))
        kind, parameters, digest = known["kind"], known["parameters"], known["digest"]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise DataError(f"{manifest} cannot be read: {error!r}. {remedy}") from error
    if kind != wanted.kind:
        raise DataError(f"{out} holds {kind}, not {wanted.kind}. {remedy}")
    asked = wanted.to_json()
    differing = [key for key in {**asked, **parameters} if asked.get(key) != parameters.get(key)]
    if differing:
        listed = ", ".join(_difference(key, parameters.get(key), asked.get(key)) for key in differing)
        raise DataError(f"{out} was made with other parameters: {listed}. {remedy}")
    others = ("train_list.txt", "val_list.txt", "dict.txt", "samples.png")
    complete = digest is not None and all((out / path).is_file() for path in (*others, *wanted.paths()))
    return str(digest) if complete else None


def _difference(key: str, made: object, asked: object) -> str:
    shown = [text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…" for text in (repr(made), repr(asked))]
    if shown[0] == shown[1]:  # long values that differ further on
        return f"{key} (a long value; see {_MANIFEST})"
    return f"{key} {shown[0]} (asked: {shown[1]})"


def _write_manifest(out: Path, wanted: DatasetFolder, digest: str | None) -> None:
    content = {"kind": wanted.kind, "parameters": wanted.to_json(), "digest": digest}
    write_text(out / _MANIFEST, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def _draw_missing(out: Path, wanted: DatasetFolder, source: Source, processes: int) -> tuple[int, list[str]]:
    """Draw what is not there: how many images, and the SHA-256 of each task's images in order."""
    tasks = [
        _Task(split, start, min(start + _CHUNK, wanted.count(split)))
        for split in SPLITS
        for start in range(0, wanted.count(split), _CHUNK)
    ]
    drawn, hashes = 0, []
    bar = tqdm(total=wanted.train + wanted.val, desc=wanted.kind, unit="image", disable=None)
    with bar, mapped(_Worker(out, wanted, source), tasks, processes) as results:
        for task, (new, digest) in zip(tasks, results, strict=True):
            drawn += new
            hashes.append(digest)
            bar.update(task.stop - task.start)
    return drawn, hashes


class _Worker:
    """Does a task: draws its images where they are missing."""

    def __init__(self, out: Path, wanted: DatasetFolder, source: Source) -> None:
        self.out, self.source, self.image_format = out, source, wanted.image_format
        self._wanted = wanted

    def __call__(self, task: _Task) -> tuple[int, str]:
        """Images drawn, and the SHA-256 of the task's images in order."""
        drawn, digest = 0, hashlib.sha256()
        for index in range(task.start, task.stop):
            path = self.out / self._wanted.path(task.split, index)
            if path.is_file():
                content = path.read_bytes()
            else:
                content = self._encoded(self.source.image(task.split, index)[1])
                with atomic_writer(path, sync=False) as stream:
                    stream.write(content)
                drawn += 1
            digest.update(content)
        return drawn, digest.hexdigest()

    def _encoded(self, image: np.ndarray) -> bytes:
        quality = [cv2.IMWRITE_JPEG_QUALITY, 95] if self.image_format == "jpg" else []
        done, content = cv2.imencode(f".{self.image_format}", image, quality)
        if not done:
            raise DataError(f"OpenCV cannot write {self.image_format} images. Choose png.")
        return content.tobytes()


def _write_lists(out: Path, wanted: DatasetFolder, source: Source) -> list[str]:
    """Write the label files and the dictionary; the text of each."""
    files = []
    for split in SPLITS:
        rows = ((wanted.path(split, i), source.label(split, i)) for i in range(wanted.count(split)))
        write_label_file(out / f"{split}_list.txt", rows)
        files.append(out / f"{split}_list.txt")
    write_text(out / "dict.txt", "".join(f"{character}\n" for character in wanted.characters))
    return [file.read_text(encoding="utf-8") for file in (*files, out / "dict.txt")]


def _write_samples(out: Path, wanted: DatasetFolder, source: Source) -> None:
    split = "train" if wanted.train else "val"
    pictures = [
        Picture(*source.image(split, index), source.font(split, index))
        for index in range(min(_SAMPLES, wanted.count(split)))
    ]
    with atomic_writer(out / "samples.png") as stream:
        stream.write(contact_sheet(pictures))


def default_processes() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
