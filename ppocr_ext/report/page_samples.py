"""Select samples of an evaluation for a page, and read their images."""

from __future__ import annotations

import base64
import contextlib
import heapq
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import cv2
import numpy as np

from ppocr_ext.data.lmdb_sets import LmdbSet, open_sets
from ppocr_ext.errors import DataError, MissingPackageError
from ppocr_ext.evaluation.predictions import Prediction, read_predictions
from ppocr_ext.io.image_pixels import decode_image
from ppocr_ext.limits import read_at_most, read_json_object
from ppocr_ext.report.page_template import finite_number

SAMPLES_FILE = "samples.json"
KEPT = 24  # limit of samples kept from an evaluation
KEPT_WRONG = 18  # limit of errors among them
_LONG = 5  # width / height of the image of a long text line
_LONG_TEXT = 40  # characters
_PNG = re.compile(r"iVBORw0KGgo[A-Za-z0-9+/]{32,}={0,2}")  # a PNG in base64
_MAX_BYTES = 20 << 20  # limit for an image file
_WIDTH = 480  # limits for an image on the page, pixels
_HEIGHT = 96
_IN_LMDB = re.compile(r"(?P<folder>.+)#(?P<sample>[1-9][0-9]{0,8})", re.ASCII)  # as `eval` names its samples

T = TypeVar("T")


class SampleSelection(Generic[T]):
    """Select the most confident errors, where a label may be wrong, and the least confident correct samples.

    Attributes:
        count: samples seen.
        wrong: errors among them.
    """

    def __init__(self) -> None:
        self.count = self.wrong = 0
        self._order = itertools.count()
        self._errors: list[tuple[float, int, T]] = []  # heaps; the entry that is dropped first is on top
        self._correct: list[tuple[float, int, T]] = []

    def add(self, correct: bool, confidence: float, make: Callable[[], T]) -> None:
        """Count a sample; call ``make`` only if the sample is selected for now."""
        self.count += 1
        self.wrong += not correct
        heap = self._correct if correct else self._errors
        worth = -confidence if correct else confidence
        if len(heap) < (KEPT if correct else KEPT_WRONG):
            heapq.heappush(heap, (worth, -next(self._order), make()))
        elif worth > heap[0][0]:
            heapq.heapreplace(heap, (worth, -next(self._order), make()))

    def selected(self) -> list[T]:
        """Return at most :data:`KEPT` samples, errors first, and of equal samples those that were added first."""
        ordered = [
            entry
            for heap in (self._errors, self._correct)
            for entry in sorted(heap, key=lambda entry: entry[:2], reverse=True)
        ]
        return [sample for _, _, sample in ordered[:KEPT]]


@dataclass(frozen=True)
class SampleCard:
    """A sample as a page shows it.

    Attributes:
        label: the true text; None if it is unknown.
        text: the predicted text.
        confidence: 0 to 1; None if unknown.
        correct: True if the metric counts it as correct.
        png: the image in base64; empty without an image.
        image: path of the image, or ``folder#12`` for an LMDB; empty if unknown.
        before: an earlier prediction, or another model's; None if there is none.
        other: what ``before`` is.
        nrtr: what the NRTR branch reads; None if unknown.
    """

    label: str | None
    text: str
    confidence: float | None
    correct: bool
    png: str = ""
    image: str = ""
    before: str | None = None
    nrtr: str | None = None
    other: str = "before"

    @property
    def is_long(self) -> bool:
        """True if the image shows a long text line or a text is long, which needs a wide card."""
        header = base64.b64decode(self.png[:32])  # bytes 16 to 23 of a PNG are its width and height
        width, height = (int.from_bytes(header[at : at + 4], "big") for at in (16, 20))
        return width > _LONG * height > 0 or len(max(self.label or "", self.text, key=len)) > _LONG_TEXT


@dataclass(frozen=True)
class SampleSet:
    """Some samples of one evaluation, errors first.

    Attributes:
        source: name of the evaluation.
        count: samples evaluated.
        wrong: errors among them.
        cards: the samples to show.
        note: how many images were not found; empty if all were.
        rule: how texts are compared, in words; empty if all characters must be equal.
    """

    source: str
    count: int
    wrong: int
    cards: list[SampleCard]
    note: str = ""
    rule: str = ""


def read_samples(folder: Path, rule: str = "") -> list[SampleSet]:
    """Read the samples of a run's last evaluation; an empty list if there are none.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is invalid.
    """
    file = folder / SAMPLES_FILE
    if not file.is_file():
        return []
    content = read_json_object(file)
    if not isinstance(content.get("samples"), list):
        raise ValueError("it has no list of samples")
    cards = [_card(entry) for entry in content["samples"] if isinstance(entry, dict)]
    step, count, wrong = (int(finite_number(content.get(key)) or 0) for key in ("step", "judged", "wrong"))
    return [SampleSet(f"last evaluation, step {step:,}", count, wrong, cards[:KEPT], rule=rule)]


def _card(entry: Mapping[str, Any]) -> SampleCard:
    png, label, text = (str(entry.get(key, "")) for key in ("png", "label", "text"))
    nrtr = entry.get("nrtr")
    return SampleCard(
        label,
        text,
        finite_number(entry.get("confidence")),
        bool(entry.get("right")),
        png if _PNG.fullmatch(png) else "",
        nrtr=nrtr if isinstance(nrtr, str) else None,
    )


def read_prediction_samples(folder: Path, data_dir: Path | None) -> list[SampleSet]:
    """Select samples from each predictions file in ``folder``, as ``eval --save-predictions`` writes it.

    Args:
        folder: run folder.
        data_dir: start of relative image paths; None to show no images.
    """
    sets = []
    for file in sorted(folder.glob("*.tsv")):
        with contextlib.suppress(DataError):  # another kind of table
            sets.append(_select(file.name, read_predictions(file), data_dir))
    return sets


def _select(name: str, predictions: Sequence[Prediction], data_dir: Path | None) -> SampleSet:
    selection: SampleSelection[Prediction] = SampleSelection()
    for prediction in predictions:
        confidence = finite_number(prediction.confidence) or 0.0
        selection.add(prediction.correct, confidence, lambda prediction=prediction: prediction)  # type: ignore[misc]
    images = SampleImages(data_dir)
    cards = [card_of(prediction, images) for prediction in selection.selected()]
    return SampleSet(name, selection.count, selection.wrong, cards, images.note, "spaces count")


def card_of(prediction: Prediction, images: SampleImages, before: str | None = None) -> SampleCard:
    """Return the card of a prediction, with its image, and with an earlier prediction if there is one."""
    return SampleCard(
        prediction.label,
        prediction.text,
        finite_number(prediction.confidence),
        prediction.correct,
        images.png(prediction.image),
        prediction.image,
        before,
    )


class SampleImages:
    """Read the images of samples as PNG in base64, and count how many were found.

    Args:
        data_dir: start of relative paths; None to read no image.

    Attributes:
        wanted: images asked for.
        found: images that could be read.
    """

    def __init__(self, data_dir: Path | None) -> None:
        self.data_dir = data_dir
        self.wanted = self.found = 0
        self._sets: dict[Path, LmdbSet | None] = {}
        self._error = ""

    @property
    def note(self) -> str:
        """Return ``0 of 12 images found below data``; empty if none is missing."""
        if self.found == self.wanted:
            return ""
        why = f" ({self._error.rstrip('.')})" if self._error else ""
        return f"{self.found:,} of {self.wanted:,} images found below {self.data_dir}{why}"

    def png(self, image: str) -> str:
        """Return the image, scaled down if it is large; empty if it cannot be read.

        Args:
            image: a path, or ``folder#12`` for sample 12 of an LMDB.
        """
        if not image or self.data_dir is None:
            return ""
        self.wanted += 1
        content = self.content(image)
        png = _png(content) if content else ""
        self.found += bool(png)
        return png

    def content(self, image: str) -> bytes | None:
        """Return the file of an image, or its entry in an LMDB; None if it cannot be read."""
        if self.data_dir is None:
            return None
        return _read_file(self.data_dir / image) or self._read_lmdb(image, self.data_dir)

    def _read_lmdb(self, image: str, data_dir: Path) -> bytes | None:
        if (name := _IN_LMDB.fullmatch(image)) is None:
            return None
        folder = Path(name["folder"])
        if folder not in self._sets:
            self._sets[folder] = self._open(folder, data_dir)
        lmdb_set = self._sets[folder]
        content = None if lmdb_set is None else lmdb_set.image(int(name["sample"]))
        return bytes(content) if content is not None and len(content) <= _MAX_BYTES else None

    def _open(self, folder: Path, data_dir: Path) -> LmdbSet | None:
        """Open the LMDB at its path in the evaluation, or below ``data_dir`` by its name."""
        moved = [data_dir] if data_dir.resolve().name == folder.name else []
        for place in (data_dir / folder, folder, data_dir / folder.name, *moved):
            try:
                if (place / "data.mdb").is_file():
                    return next((lmdb_set for lmdb_set in open_sets(place) if lmdb_set.path == place), None)
            except (DataError, MissingPackageError) as error:
                self._error = str(error)
                break
            except (OSError, ValueError):  # not a folder name
                break
        return None


def _read_file(path: Path) -> bytes | None:
    with contextlib.suppress(OSError, ValueError):  # the file is gone, or this is no file name
        return read_at_most(path, _MAX_BYTES) or None
    return None


def _png(content: bytes) -> str:
    try:
        pixels = decode_image(content)
    except ValueError:
        return ""
    height, width = pixels.shape[:2]
    scale = min(1.0, _WIDTH / width, _HEIGHT / height)
    if scale < 1:
        size = (max(1, round(width * scale)), max(1, round(height * scale)))
        pixels = cv2.resize(pixels, size, interpolation=cv2.INTER_AREA)
    return base64.b64encode(bytes(cv2.imencode(".png", pixels)[1])).decode("ascii")


def normalised_png(image: np.ndarray) -> str:
    """Return an image as the network sees it, as PNG in base64.

    Args:
        image: normalised, float [channels, height, width]. Zeros that pad it on the right are left out.
    """
    used = np.flatnonzero(np.any(image != 0, axis=(0, 1)))
    if len(used):
        image = image[:, :, : used[-1] + 1]
    low, high = (-1.0, 1.0) if np.abs(image).max(initial=0) <= 1.001 else (image.min(), image.max())
    pixels = np.rint((image - low) * (255.0 / max(high - low, 1e-6))).clip(0, 255).astype(np.uint8)
    channels = pixels if len(pixels) in (1, 3) else pixels[:1]
    _, encoded = cv2.imencode(".png", np.ascontiguousarray(channels.transpose(1, 2, 0)))
    return base64.b64encode(bytes(encoded)).decode("ascii")
