"""Compare readers image by image: probabilities first, since equal texts hide a second softmax; imports no Paddle."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

import numpy as np

from ppocr_ext.errors import ModelError, PPOCRExtError
from ppocr_ext.export.sample_images import batches_of
from ppocr_ext.export.verify_steps import Fault, Seen, distance, input_faults, output_faults
from ppocr_ext.recognition.ctc_text import read
from ppocr_ext.recognition.opening import RecognizerParts
from ppocr_ext.recognition.resize import WidthPolicy

TOLERANCE = 1e-4  # of probabilities; Paddle and ONNX Runtime differ by less than 1e-5
_EXAMINED = 2  # images of a reader whose faulty step is searched
_LONGEST = 200  # letters of a message
_SHOWN = 5  # pairs of texts that are kept


class Picture(NamedTuple):
    """An image to read: uint8 [H, W, 3] in BGR, and its label if that is known."""

    pixels: np.ndarray
    label: str | None = None


class Reader(Protocol):
    """What reads images, and shows what it does with them.

    Attributes:
        name: for the table.
        own_policy: with which it prepares images if it knows no other; None: with that of the network.
        note: what the user should know of that policy; may be empty.
    """

    name: str
    own_policy: WidthPolicy | None
    note: str

    def see(self, pixels: np.ndarray) -> Seen:
        """Read one image, uint8 [H, W, 3] in BGR."""
        ...


class EngineReader:
    """Read images with an engine of this package.

    Args:
        name: for the table.
        parts: engine, width policy and dictionary.
    """

    own_policy: WidthPolicy | None = None
    note = ""

    def __init__(self, name: str, parts: RecognizerParts) -> None:
        self.name, self.parts = name, parts

    def see(self, pixels: np.ndarray) -> Seen:
        """See :class:`Reader`."""
        given = self.parts.policy.prepare(pixels)
        found = self.parts.probabilities(given[None])[0]
        return Seen(read(found, self.parts.charset, reorder=self.parts.reorder).text, found, given)


@dataclass
class Comparison:
    """How far a reader is from the one that it must equal.

    Attributes:
        name: of the reader.
        note: see :class:`Reader`.
        images: how many were compared.
        largest: the largest difference of two probabilities; infinite if the shapes differ or a number is NaN.
        different: how many texts differ.
        texts: (expected, found) of the first of them.
        labelled: how many images have a label.
        correct: how many of those are read correctly.
        faults: what differs, without repetition.
    """

    name: str
    note: str = ""
    images: int = 0
    largest: float = 0.0
    different: int = 0
    texts: list[tuple[str, str]] = field(default_factory=list)
    labelled: int = 0
    correct: int = 0
    faults: list[Fault] = field(default_factory=list)

    def agrees(self, tolerance: float = TOLERANCE) -> bool:
        """Return True if no probability differs by more than ``tolerance``, and nothing else is wrong."""
        return self.largest <= tolerance and not self.faults

    def add_faults(self, faults: Sequence[Fault]) -> None:
        """Add those that are not there yet."""
        self.faults += [fault for fault in faults if fault not in self.faults]

    def __str__(self) -> str:
        """Return ``onnx: 12 images, largest difference of probabilities 2.1e-07, texts equal``."""
        texts = f"{self.different} texts differ" if self.different else "texts equal"
        return f"{self.name}: {self.images} images, largest difference of probabilities {self.largest:.1e}, {texts}"


def compare(
    reference: RecognizerParts,
    reader: EngineReader,
    pictures: Sequence[Picture],
    any_width: bool,
    tolerance: float = TOLERANCE,
) -> Comparison:
    """Compare a reader with the reference: each image alone, several at once, and inputs of other widths.

    Args:
        reference: the trained network.
        reader: the one to check.
        pictures: a few images.
        any_width: the graph should take every width.
        tolerance: the largest difference of probabilities that is accepted.
    """
    comparer = Comparer(reference, reader, tolerance)
    for picture in pictures:
        comparer.add(picture, comparer.right.see(picture.pixels))
    comparer.add_batches(reader, pictures, any_width)
    return comparer.result


class Comparer:
    """Compare one reader with the reference, an image at a time.

    Args:
        reference: the reader that is right.
        found: the one to check.
        tolerance: the largest difference of probabilities that is accepted.

    Attributes:
        right: the reference, with the width policy that is expected of the reader.
        result: what was found so far.
    """

    def __init__(self, reference: RecognizerParts, found: Reader, tolerance: float = TOLERANCE) -> None:
        self.right = EngineReader("", replace(reference, policy=found.own_policy or reference.policy))
        self._found, self._tolerance = found, tolerance
        self._examined = 0
        self.result = Comparison(found.name, found.note)

    def add(self, picture: Picture, expected: Seen) -> None:
        """Read an image, and add what is found to ``result``; ``expected`` is what ``right`` sees in it."""
        result = self.result
        try:
            seen = self._found.see(picture.pixels)
        except Exception as error:  # whatever an engine or a client raises
            result.images += 1
            result.largest = math.inf
            result.different += 1
            result.labelled += picture.label is not None
            step = "graph" if isinstance(self._found, EngineReader) else "client"
            height, width = picture.pixels.shape[:2]
            result.add_faults([_failure(error, f"an image of {width} x {height} pixels", step)])
        else:
            self.judge(picture, expected, seen)

    def judge(self, picture: Picture, expected: Seen, seen: Seen) -> None:
        """Add what the reader has seen in an image to ``result``."""
        result = self.result
        result.images += 1
        largest = distance(expected.probabilities, seen.probabilities)
        result.largest = max(result.largest, largest)
        if picture.label is not None:
            result.labelled += 1
            result.correct += seen.text == picture.label
        differs = seen.text != expected.text
        if differs:
            result.different += 1
            result.texts += [(expected.text, seen.text)] * (len(result.texts) < _SHOWN)
        if (differs or largest > self._tolerance) and self._examined < _EXAMINED:
            self._examined += 1
            result.add_faults(self._explain(picture.pixels, seen))

    def _explain(self, pixels: np.ndarray, seen: Seen) -> list[Fault]:
        """Return the steps that differ: those before the graph, the graph, and those behind it."""
        right = self.right.parts
        before = input_faults(right.policy, pixels, seen.input)
        return [*before, *output_faults(right, seen, self._tolerance)]

    def add_batches(self, reader: EngineReader, pictures: Sequence[Picture], any_width: bool) -> None:
        """Give the graph several images at once, and inputs of other widths, and compare.

        Args:
            reader: the reader to check.
            pictures: a few images.
            any_width: the graph should take every width.
        """
        right, result = self.right.parts, self.result
        images = [picture.pixels for picture in pictures]
        batches = [batch for batch in batches_of(images, right.policy) if len(batch) > 1]
        if not batches:
            batches = [np.repeat(right.policy.prepare(images[0])[None], 2, axis=0)]
        if any_width:
            batches += batches_of(images, replace(right.policy, kind="widen"))
        for batch in batches:
            expected = right.engine.probabilities(batch)
            try:
                found = reader.parts.engine.probabilities(batch)
            except Exception as error:  # whatever an engine raises
                result.largest = math.inf
                result.add_faults([_failure(error, f"{len(batch)} images of width {batch.shape[3]}")])
                continue
            largest = distance(expected, found)
            result.largest = max(result.largest, largest)
            if largest > self._tolerance:
                what = f"other probabilities for {len(batch)} images of width {batch.shape[3]}"
                result.add_faults([Fault("graph", what)] if not result.faults else [])


def _failure(error: Exception, given: str, step: str = "graph") -> Fault:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    said = lines[0] if isinstance(error, PPOCRExtError) else lines[-1]  # Paddle's last line has the reason
    if getattr(error, "code", "") == "charset_mismatch":
        step = "dictionary"
    return Fault(step, f"it fails on {given}: {said}"[:_LONGEST])


def require_equal(comparison: Comparison) -> None:
    """Refuse a file that computes something else than the network.

    Raises:
        ModelError: the probabilities or the texts differ.
    """
    if comparison.agrees():
        return
    pair = f" It reads {comparison.texts[0][1]!r} for {comparison.texts[0][0]!r}." if comparison.texts else ""
    steps = "".join(f"\n  {fault}" for fault in comparison.faults)
    raise ModelError(
        f"What was written does not compute what the network computes ({comparison}), so nothing is published.{pair} "
        f"Fix: export again; if it stays so, report it with the config: Paddle or the converter cannot express this "
        f"network.{steps}",
        code="export_differs",
    )
