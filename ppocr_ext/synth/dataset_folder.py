"""Make folders of drawn images with label files and a dictionary, as PaddleOCR reads them; imports no Paddle."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal

import cv2
from tqdm import tqdm

from ppocr_ext.data.label_file import write_label_file
from ppocr_ext.errors import DataError
from ppocr_ext.io.atomic import write_bytes, write_text
from ppocr_ext.limits import MAX_RECORD_BYTES, read_at_most, read_json_object, read_text
from ppocr_ext.synth.captcha import CaptchaSource
from ppocr_ext.synth.contact_sheet import Caption, Picture, contact_sheet
from ppocr_ext.synth.lines.line_source import LineSource

SampleSource = CaptchaSource | LineSource
SPLITS = ("train", "val")
_CHUNK = 250  # images of a task; it must never change, since the digest depends on it
_FOLDER = 1000  # images in a subfolder
_SAMPLES = 40  # images in samples.png
_MANIFEST = "dataset.json"
_MAX_SHOWN = 120  # characters of two values in a message

_worker: Callable[[Any], Any] | None = (
    None  # in a process of the pool: the function that it calls for each task
)


@dataclass(frozen=True)
class DatasetFolder:
    """Describe a folder of drawn images.

    Args:
        source: draws the images.
        train, val: number of images of each split. The splits have no image in common.
        image_format: ``"png"`` or ``"jpg"`` (quality 95).
        characters: the dictionary, in the order of the classes; None for the characters of ``source``.
    """

    source: SampleSource
    train: int
    val: int
    image_format: Literal["png", "jpg"] = "png"
    characters: Sequence[str] | None = None

    def count(self, split: str) -> int:
        """Return the number of images of a split."""
        return self.train if split == "train" else self.val

    def path(self, split: str, index: int) -> str:
        """Return the path of an image, relative to the folder."""
        return f"{split}/{index // _FOLDER:04d}/{index:06d}.{self.image_format}"


def make_folder(out: str | Path, wanted: DatasetFolder, processes: int = 1) -> int:
    """Write images, label files, ``dict.txt``, ``samples.png`` and ``dataset.json``; return the number of drawn images.

    The content does not depend on ``processes``. An incomplete folder is completed, a complete one is not changed.
    ``dataset.json`` has the parameters and the SHA-256 of all other files.

    Raises:
        DataError: there is nothing to draw, or ``out`` holds something else.
        OSError: a file cannot be written.
    """
    out = Path(out)
    if min(wanted.train, wanted.val) < 0 or wanted.train + wanted.val == 0 or processes < 1:
        raise DataError(
            f"Nothing to draw (found {wanted.train} train and {wanted.val} val images, {processes} processes). "
            "Fix: give at least one image and one process.",
            code="bad_value",
        )
    source = wanted.source
    counts = {"train": wanted.train, "val": wanted.val}
    parameters = {**source.to_json(), **counts, "seed": source.seed, "format": wanted.image_format}
    # Tuples become lists, as in the parameters that are read from the manifest.
    parameters = json.loads(json.dumps(parameters))
    if _is_complete(out, wanted, parameters):
        return 0
    _write_manifest(out, source.kind, parameters, digest=None)
    drawn, hashes = _draw_missing(out, wanted, processes)
    texts = _write_texts(out, wanted)
    digest = hashlib.sha256("\n".join([*hashes, *texts]).encode()).hexdigest()
    _write_manifest(out, source.kind, parameters, digest)
    return drawn


def _is_complete(out: Path, wanted: DatasetFolder, parameters: dict[str, Any]) -> bool:
    """Return True if the folder has these parameters and all files.

    Raises:
        DataError: the folder holds something else.
    """
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return False
    manifest = out / _MANIFEST
    try:
        kind, before, digest = itemgetter("kind", "parameters", "digest")(read_json_object(manifest))
        before = dict(before)
    except (OSError, ValueError, KeyError, TypeError) as error:
        what = "it is a file"
        if out.is_dir():
            what = (
                f"{_MANIFEST} cannot be read ({error!r})" if manifest.is_file() else f"it has no {_MANIFEST}"
            )
        raise _refused(out, f"not a folder made by this command: {what}", "not_a_dataset") from error
    if kind != wanted.source.kind:
        raise _refused(out, f"found {kind}, expected {wanted.source.kind}", "other_parameters")
    if keys := [key for key in {**parameters, **before} if parameters.get(key) != before.get(key)]:
        listed = ", ".join(_difference(key, before.get(key), parameters.get(key)) for key in keys)
        raise _refused(out, f"made with other parameters: {listed}", "other_parameters")
    images = (wanted.path(split, index) for split in SPLITS for index in range(wanted.count(split)))
    others = ("train_list.txt", "val_list.txt", "dict.txt", "samples.png")
    return digest is not None and all((out / path).is_file() for path in (*others, *images))


def _refused(out: Path, what: str, code: str) -> DataError:
    return DataError(f"{out}: {what}. Fix: give another --out, or delete it first.", code=code)


def _difference(key: str, found: object, expected: object) -> str:
    values = f"found {found!r}, expected {expected!r}"
    return f"{key} ({values if len(values) <= _MAX_SHOWN else f'a long value; see {_MANIFEST}'})"


def _write_manifest(out: Path, kind: str, parameters: dict[str, Any], digest: str | None) -> None:
    content = {"kind": kind, "parameters": parameters, "digest": digest}
    write_text(out / _MANIFEST, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def _draw_missing(out: Path, wanted: DatasetFolder, processes: int) -> tuple[int, list[str]]:
    """Draw the missing images; return their number, and the SHA-256 of the images of each task."""
    tasks = [
        (split, range(start, min(start + _CHUNK, wanted.count(split))))
        for split in SPLITS
        for start in range(0, wanted.count(split), _CHUNK)
    ]
    drawn = 0
    hashes = []
    bar = tqdm(total=wanted.train + wanted.val, desc=wanted.source.kind, unit="image", disable=None)
    with bar, map_in_processes(partial(_draw_task, out, wanted), tasks, processes) as results:
        for (_, indexes), (new, digest) in zip(tasks, results, strict=True):
            drawn += new
            hashes.append(digest)
            bar.update(len(indexes))
    return drawn, hashes


def _draw_task(out: Path, wanted: DatasetFolder, task: tuple[str, range]) -> tuple[int, str]:
    """Draw the missing images of a task; return their number, and the SHA-256 of all images of the task."""
    drawn = 0
    digest = hashlib.sha256()
    split, indexes = task
    quality = [cv2.IMWRITE_JPEG_QUALITY, 95] if wanted.image_format == "jpg" else []
    for index in indexes:
        path = out / wanted.path(split, index)
        if path.is_file():
            content = read_at_most(path, MAX_RECORD_BYTES)
        else:
            image = wanted.source.image(split, index)[1]
            content = bytes(cv2.imencode(f".{wanted.image_format}", image, quality)[1])
            write_bytes(path, content, sync=False)
            drawn += 1
        digest.update(content)
    return drawn, digest.hexdigest()


def _write_texts(out: Path, wanted: DatasetFolder) -> list[str]:
    """Write label files, dictionary and ``samples.png``; return the texts of label files and dictionary."""
    source = wanted.source
    for split in SPLITS:
        rows = ((wanted.path(split, i), source.label(split, i)) for i in range(wanted.count(split)))
        write_label_file(out / f"{split}_list.txt", rows)
    characters = source.characters if wanted.characters is None else wanted.characters
    write_text(out / "dict.txt", "".join(f"{character}\n" for character in characters))
    split = "train" if wanted.train else "val"
    pictures = []
    for index in range(min(_SAMPLES, wanted.count(split))):
        label, image = source.image(split, index)
        pictures.append(Picture(image, (Caption(label, source.font(split, index)),)))
    write_bytes(out / "samples.png", contact_sheet(pictures))
    return [read_text(out / name) for name in ("train_list.txt", "val_list.txt", "dict.txt")]


@contextmanager
def map_in_processes(
    worker: Callable[[Any], Any], tasks: Sequence[Any], processes: int
) -> Iterator[Iterable[Any]]:
    """Call ``worker`` with each of ``tasks``, in this process or in several; yield the results in order.

    Args:
        worker: a function that is pickled and sent to each process once.
        tasks: small values, which are sent one by one.
        processes: limit of the processes; at most one is started for each task.

    Raises:
        DataError: a process was killed.
    """
    if min(processes, len(tasks)) == 1:
        yield map(worker, tasks)
        return
    # Spawned, not forked, since the caller may have threads (Paddle, OpenCV), which break forked processes. Not
    # multiprocessing.Pool, since that waits forever for a process that was killed.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(processes, len(tasks)), context, _start_worker, (worker,))
    try:
        yield pool.map(_run_task, tasks)
    except BrokenProcessPool as error:
        raise DataError(
            "A drawing process was killed, perhaps for lack of memory. Fix: run the command again with fewer "
            "processes; finished images are kept.",
            code="process_killed",
        ) from error
    except BaseException:
        for process in tuple((pool._processes or {}).values()):
            process.terminate()  # shutdown() alone would wait for the running tasks
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _start_worker(worker: Callable[[Any], Any]) -> None:
    global _worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C also reaches the parent, which ends the pool
    cv2.setNumThreads(1)
    _worker = worker


def _run_task(task: Any) -> Any:
    assert _worker is not None
    return _worker(task)
