"""Folders of CAPTCHAs with label files and a dictionary, as PaddleOCR reads them; no Paddle."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import cv2
import numpy as np
from tqdm import tqdm

from ppocr_ext.data.atomic import atomic_writer, write_text
from ppocr_ext.data.captcha import CaptchaOptions, CaptchaSource
from ppocr_ext.data.contact_sheet import contact_sheet
from ppocr_ext.data.labels import write_label_file
from ppocr_ext.errors import DataError

ImageFormat = Literal["png", "jpg"]
SPLITS = ("train", "val")
_CHUNK = 250  # images of a task; the digest is built on it, so it never changes
_FOLDER = 1000  # images in a folder
_SAMPLES = 40
_MANIFEST = "dataset.json"


@dataclass(frozen=True)
class CaptchaFolder:
    """What a folder of CAPTCHAs holds.

    Args:
        options: what to draw.
        train, val: images of each split. A split is a stream of its own: none of its images is in the other.
        seed: of the images.
        image_format: ``"png"`` or ``"jpg"`` (quality 95).
    """

    options: CaptchaOptions
    train: int
    val: int
    seed: int
    image_format: ImageFormat = "png"

    def to_json(self) -> dict[str, Any]:
        """All that determines the images and labels, as plain values."""
        return {
            **self.options.to_json(),
            "train": self.train,
            "val": self.val,
            "seed": self.seed,
            "format": self.image_format,
        }

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
    """What :func:`make_captcha_folder` did: images drawn now, images found, seconds, digest of all files."""

    drawn: int
    found: int
    seconds: float
    digest: str


class _Task(NamedTuple):
    split: str
    start: int
    stop: int


def make_captcha_folder(out: str | Path, wanted: CaptchaFolder, processes: int = 1) -> Made:
    """Write images, ``train_list.txt``, ``val_list.txt``, ``dict.txt``, ``samples.png`` and ``dataset.json``.

    The content does not depend on ``processes``. A folder that was left incomplete is completed, a
    complete one is left as it is. ``dataset.json`` has the parameters and the SHA-256 of everything.

    Raises:
        DataError: the parameters cannot be drawn, or ``out`` holds something else.
        OSError: a file cannot be written.
    """
    started = time.perf_counter()
    out = Path(out)
    if min(wanted.train, wanted.val) < 0 or wanted.train + wanted.val == 0 or processes < 1:
        raise DataError(
            f"{wanted.train} train and {wanted.val} val images with {processes} processes cannot be made. Give at "
            "least one image and one process."
        )
    source = CaptchaSource(wanted.options, wanted.seed)
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


def _completed(out: Path, wanted: CaptchaFolder) -> str | None:
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
        parameters, digest = known["parameters"], known["digest"]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise DataError(f"{manifest} cannot be read: {error!r}. {remedy}") from error
    asked = wanted.to_json()
    differing = [key for key in {**asked, **parameters} if asked.get(key) != parameters.get(key)]
    if differing:
        listed = ", ".join(f"{key} {parameters.get(key)!r} (asked: {asked.get(key)!r})" for key in differing)
        raise DataError(f"{out} was made with other parameters: {listed}. {remedy}")
    others = ("train_list.txt", "val_list.txt", "dict.txt", "samples.png")
    complete = digest is not None and all((out / path).is_file() for path in (*others, *wanted.paths()))
    return str(digest) if complete else None


def _write_manifest(out: Path, wanted: CaptchaFolder, digest: str | None) -> None:
    content = {"kind": "captcha", "parameters": wanted.to_json(), "digest": digest}
    write_text(out / _MANIFEST, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def _draw_missing(
    out: Path, wanted: CaptchaFolder, source: CaptchaSource, processes: int
) -> tuple[int, list[str]]:
    """Draw what is not there: how many images, and the SHA-256 of each task's images in order."""
    tasks = [
        _Task(split, start, min(start + _CHUNK, wanted.count(split)))
        for split in SPLITS
        for start in range(0, wanted.count(split), _CHUNK)
    ]
    drawn, hashes = 0, []
    bar = tqdm(total=wanted.train + wanted.val, desc="CAPTCHAs", unit="image", disable=None)
    with bar, _mapped(_Worker(out, wanted, source), tasks, min(processes, len(tasks))) as results:
        for task, (new, digest) in zip(tasks, results, strict=True):
            drawn += new
            hashes.append(digest)
            bar.update(task.stop - task.start)
    return drawn, hashes


class _Worker:
    """Does a task: draws its images where they are missing."""

    def __init__(self, out: Path, wanted: CaptchaFolder, source: CaptchaSource) -> None:
        self.out, self.wanted, self.source = out, wanted, source

    def __call__(self, task: _Task) -> tuple[int, str]:
        drawn, digest = 0, hashlib.sha256()
        for index in range(task.start, task.stop):
            path = self.out / self.wanted.path(task.split, index)
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
        quality = [cv2.IMWRITE_JPEG_QUALITY, 95] if self.wanted.image_format == "jpg" else []
        done, content = cv2.imencode(f".{self.wanted.image_format}", image, quality)
        if not done:
            raise DataError(f"OpenCV cannot write {self.wanted.image_format} images. Choose png.")
        return content.tobytes()


_worker: _Worker | None = None  # in a process of the pool: what its tasks are done with


def _start_worker(worker: _Worker) -> None:
    global _worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which ends the pool
    cv2.setNumThreads(1)
    _worker = worker


def _do(task: _Task) -> tuple[int, str]:
    assert _worker is not None, "the pool was started without _start_worker"
    return _worker(task)


@contextmanager
def _mapped(worker: _Worker, tasks: list[_Task], processes: int) -> Iterator[Iterable[tuple[int, str]]]:
    """Results of the tasks in their order, from this process or from a pool."""
    if processes == 1:
        yield map(worker, tasks)
        return
    # spawned, not forked: the caller may have threads (Paddle, OpenCV), which a fork does not survive
    with multiprocessing.get_context("spawn").Pool(processes, _start_worker, (worker,)) as pool:
        yield pool.imap(_do, tasks)


def _write_lists(out: Path, wanted: CaptchaFolder, source: CaptchaSource) -> list[str]:
    """Write the label files and the dictionary; the text of each."""
    files = []
    for split in SPLITS:
        rows = ((wanted.path(split, i), source.label(split, i)) for i in range(wanted.count(split)))
        write_label_file(out / f"{split}_list.txt", rows)
        files.append(out / f"{split}_list.txt")
    write_text(out / "dict.txt", "".join(f"{character}\n" for character in wanted.options.characters))
    return [file.read_text(encoding="utf-8") for file in (*files, out / "dict.txt")]


def _write_samples(out: Path, wanted: CaptchaFolder, source: CaptchaSource) -> None:
    split = "train" if wanted.train else "val"
    pictures = [source.image(split, index) for index in range(min(_SAMPLES, wanted.count(split)))]
    with atomic_writer(out / "samples.png") as stream:
        stream.write(contact_sheet(pictures, font=wanted.options.fonts[0] if wanted.options.fonts else None))


def default_processes() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0))
