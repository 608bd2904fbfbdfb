"""Compare readers image by image: probabilities first, since equal texts hide a second softmax; imports no Paddle."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from ppocr_ext.charset import Charset
from ppocr_ext.config import Config
from ppocr_ext.config.global_keys import PADDLE
from ppocr_ext.config.yaml_io import PlainLoader
from ppocr_ext.errors import DataError, PPOCRExtError
from ppocr_ext.inference.comparison import Limits, distance, margins, noise_of
from ppocr_ext.inference.formats import FORMATS, INFERENCE_YML, ExportedEngine
from ppocr_ext.inference.runners import Engine
from ppocr_ext.limits import MAX_DICTIONARY_BYTES, read_at_most
from ppocr_ext.recognition.ctc_text import read
from ppocr_ext.recognition.images import ImageSource, WidthPolicy, images_of_eval, read_image
from ppocr_ext.recognition.opening import RecognizerParts, parts_of_metadata

_MAX_MESSAGE = 200  # characters of a client's message that are shown
# The first images show how much the network differs from itself, as do others if a reader differs by more. A graph also
# gets them as one batch, since it may be wrong in batches alone.
_BATCH_IMAGES = 8
_NOTHING = np.zeros(0, np.float32)  # the probabilities of a reader that fails: they differ from all others


class Picture(NamedTuple):
    """An image to read: uint8 [H, W, 3] in BGR, and its label if that is known."""

    pixels: np.ndarray
    label: str | None = None


class Output(NamedTuple):
    """The text that a reader returns for an image, and its probabilities, float32 [T, C]."""

    text: str
    probabilities: np.ndarray


@dataclass(frozen=True)
class Reader:
    """A form of the model, or a client, that reads images.

    Attributes:
        name: its name in the table.
        read: reads one image, uint8 [H, W, 3] in BGR.
        own_policy: how it prepares images; None if it does so as the network does.
        note: what the user should know of that policy; may be empty.
    """

    name: str
    read: Callable[[np.ndarray], Output]
    own_policy: WidthPolicy | None = None
    note: str = ""


def read_picture(parts: RecognizerParts, pixels: np.ndarray) -> Output:
    """Read one image, uint8 [H, W, 3] in BGR, with an engine of this package."""
    probabilities = parts.probabilities(parts.policy.prepare(pixels)[None])[0]
    return Output(read(probabilities, parts.charset).text, probabilities)


@dataclass
class Comparison:
    """How far a reader is from the network that it must equal.

    Attributes:
        name: the name of the reader.
        note: see :class:`Reader`.
        limits: the differences that are accepted.
        images: how many were compared.
        largest: the largest difference of two probabilities; infinite if the shapes differ or a number is NaN.
        margin: the least difference of the network's two most probable classes in a frame.
        different: how many texts differ.
        labelled: how many images have a label.
        correct: how many of those are read correctly.
        faults: what differs by more than the limits: the first image, a dictionary, a batch.
    """

    name: str
    note: str = ""
    limits: Limits = Limits()
    images: int = 0
    largest: float = 0.0
    margin: float = math.inf
    different: int = 0
    labelled: int = 0
    correct: int = 0
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """Return ``onnx: 12 images, largest difference of probabilities 2.1e-07, texts equal``."""
        texts = f"{self.different} texts differ" if self.different else "texts equal"
        return f"{self.name}: {self.images} images, largest difference of probabilities {self.largest:.1e}, {texts}"


def compare(
    name: str,
    network: RecognizerParts,
    forms: Mapping[str, RecognizerParts],
    clients: Sequence[Reader],
    pictures: Iterable[Picture],
    any_width: bool,
    tolerance: float | None = None,
) -> list[Comparison]:
    """Compare the readers of an export with the network, image by image. Graphs also get batches and other widths.

    Args:
        name: the name of ``network``.
        network: the trained network, whose outputs count as right.
        forms: the forms of the model, by name.
        clients: the clients that read it.
        pictures: the images.
        any_width: the graphs should take every width.
        tolerance: the largest difference of probabilities that is accepted; None for 0.0001 and what the network's own
            noise explains, see :class:`ppocr_ext.inference.comparison.Limits`.

    Returns:
        A comparison for ``network`` itself, and one for each form and client.
    """
    pictures = iter(pictures)
    first = list(islice(pictures, _BATCH_IMAGES))
    batch = [picture.pixels for picture in first]
    if tolerance is None:
        prepared = [network.policy.prepare(pixels) for pixels in batch]
        limits = Limits(noise=noise_of(network.engine.probabilities, prepared))
    else:
        limits = Limits(tolerance)
    readers = [Reader(each, partial(read_picture, parts)) for each, parts in forms.items()]
    reference = Comparer(network, Reader(name, partial(read_picture, network)), limits)
    comparers = [Comparer(network, each, limits, tolerance is None) for each in (*readers, *clients)]
    for picture in chain(first, pictures):
        output = read_picture(network, picture.pixels)
        reference.check(picture, output, output)
        expected: dict[WidthPolicy, Output] = {network.policy: output}
        for comparer in comparers:
            policy = comparer.network.policy
            if policy not in expected:
                expected[policy] = read_picture(comparer.network, picture.pixels)
            comparer.add(picture, expected[policy])
    # The first comparers are those of the forms.
    for comparer, parts in zip(comparers, forms.values(), strict=False) if batch else ():
        comparer.result.faults += dictionary_faults(network.charset, parts.charset)
        comparer.add_batches(parts.engine, batch, any_width)
    noise = max(each.result.limits.noise for each in (reference, *comparers))
    reference.result.limits = replace(limits, noise=noise)
    return [each.result for each in (reference, *comparers)]


class Comparer:
    """Compare one reader with the network, an image at a time.

    Args:
        network: the trained network, whose outputs count as right.
        reader: the reader to check.
        limits: the differences that are accepted.
        measures_noise: measure the noise of the network also on what differs by more, before it is a fault.

    Attributes:
        network: the network, with the width policy of the reader.
        result: the comparison of the images so far.
    """

    def __init__(
        self, network: RecognizerParts, reader: Reader, limits: Limits, measures_noise: bool = False
    ) -> None:
        self.network = replace(network, policy=reader.own_policy or network.policy)
        self.result = Comparison(reader.name, reader.note, limits)
        self._reader = reader
        self._measures_noise = measures_noise

    def add(self, picture: Picture, expected: Output) -> None:
        """Read an image and add the comparison to ``result``; ``expected`` is the output of ``network``."""
        try:
            output = self._reader.read(picture.pixels)
        except Exception as error:  # engines and clients raise any class
            self.check(picture, expected, Output("", _NOTHING), _failure(error))
        else:
            self.check(picture, expected, output)

    def check(self, picture: Picture, expected: Output, output: Output, failure: str = "") -> None:
        """Add the output of the reader for an image to ``result``; ``failure`` is the reason if there is none."""
        result, network = self.result, self.network
        result.images += 1
        difference = distance(expected.probabilities, output.probabilities)
        result.largest = max(result.largest, difference)
        result.margin = min(result.margin, float(margins(expected.probabilities).min()))
        result.labelled += picture.label is not None
        result.correct += output.text == picture.label and not failure
        differs = output.text != expected.text or bool(failure)
        result.different += differs
        given = network.policy.prepare(picture.pixels)[None]
        accepted = self._accepts(given, expected.probabilities, output.probabilities)
        if result.faults or (accepted and not differs):
            return
        height, width = picture.pixels.shape[:2]
        where = f"image {result.images} ({width} x {height} pixels)"
        if failure:
            result.faults.append(f"{where}: {failure}")
        elif not accepted:
            result.faults.append(
                f"{where}: text {output.text!r}, expected {expected.text!r}; probabilities differ by {difference:.1e} "
                f"({result.limits}; shape {list(output.probabilities.shape)}, expected "
                f"{list(expected.probabilities.shape)})"
            )
        # With equal probabilities, only the dictionary can make another text.
        elif output.text != read(output.probabilities, network.charset).text:
            result.faults.append(
                f"{where}: text {output.text!r}, expected {expected.text!r} for equal probabilities"
            )

    def add_batches(self, engine: Engine, images: Sequence[np.ndarray], any_width: bool) -> None:
        """Give the graph several images at once, and inputs of other widths, and compare.

        Args:
            engine: the engine that runs the graph.
            images: a few images, uint8 [H, W, 3].
            any_width: the graph should take every width.
        """
        network = self.network
        result = self.result
        batches = [batch for batch in batches_of(images, network.policy) if len(batch) > 1]
        if not batches:
            batches = [np.repeat(network.policy.prepare(images[0])[None], 2, axis=0)]
        if any_width:
            batches += batches_of(images, replace(network.policy, kind="widen"))
        for batch in batches:
            expected = network.engine.probabilities(batch)
            failure = ""
            try:
                found = engine.probabilities(batch)
            except Exception as error:  # engines raise any class
                found, failure = _NOTHING, _failure(error)
            difference = distance(expected, found)
            result.largest = max(result.largest, difference)
            if not (self._accepts(batch, expected, found) or result.faults):
                fault = failure or f"probabilities differ by {difference:.1e} ({result.limits})"
                result.faults.append(f"{len(batch)} images of width {batch.shape[3]}: {fault}")

    def _accepts(self, images: np.ndarray, expected: np.ndarray, found: np.ndarray) -> bool:
        """Return True if the outputs for images, float32 [B, 3, H, W], differ by rounding alone."""
        result = self.result
        accepted = result.limits.accept(expected, found)
        if accepted or result.faults or not self._measures_noise:
            return accepted
        noise = noise_of(self.network.engine.probabilities, images)  # it depends on width and text
        result.limits = replace(result.limits, noise=max(result.limits.noise, noise))
        return result.limits.accept(expected, found)


def _failure(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    reason = lines[0] if isinstance(error, PPOCRExtError) else lines[-1]  # Paddle's last line has the reason
    return f"it fails: {reason}"[:_MAX_MESSAGE]


def open_forms(
    folder: Path, policy: WidthPolicy, direction: str
) -> tuple[dict[str, RecognizerParts], dict[str, PPOCRExtError]]:
    """Return the forms of the model as clients read them, by name, and for each other form why it cannot be opened.

    Args:
        folder: has the files of an export.
        policy: the policy of the export; ``inference.yml`` overrides its size and its order of channels.
        direction: that of the dictionary; ``inference.yml`` has none, since the client goes by the name of the model.
    """
    opened: dict[str, RecognizerParts] = {}
    failed: dict[str, PPOCRExtError] = {}
    for name, form in reversed(FORMATS.items()):
        for way in form.openers if any((folder / file).is_file() for file in form.files) else ():
            try:
                if name == PADDLE:
                    shape, color, characters = _settings(folder / INFERENCE_YML)
                    own = replace(policy, image_shape=shape, color=color)
                    engine = ExportedEngine(name, folder, way=way)
                    opened[way] = RecognizerParts(engine, own, Charset(characters, direction=direction))
                else:
                    opened[way] = parts_of_metadata(name, folder, way=way)
            except PPOCRExtError as error:
                failed[way] = error
    return opened, failed


def _settings(file: Path) -> tuple[Any, Any, tuple[str, ...]]:
    """Return size, order of channels and dictionary, as the client of PaddleOCR 3.x reads them."""
    try:
        content = yaml.load(read_at_most(file, MAX_DICTIONARY_BYTES), PlainLoader)
        operators = {
            name: value for each in content["PreProcess"]["transform_ops"] for name, value in each.items()
        }
        characters = content["PostProcess"]["character_dict"]
        # A list or mapping may hold YAML aliases, whose text could be of any size.
        if any(isinstance(each, list | dict) for each in characters):
            raise TypeError("character_dict has a list or a mapping")
        # Without DecodeImage the client reads images as RGB.
        color = operators.get("DecodeImage", {"img_mode": "RGB"})["img_mode"]
        return tuple(operators["RecResizeImg"]["image_shape"]), color, tuple(map(str, characters))
    except (
        OSError,
        yaml.YAMLError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as error:
        raise DataError(
            f"{file} cannot be read as PaddleOCR 3.x does ({type(error).__name__}: {error}). Fix: export the model "
            f"again.",
            code="bad_content",
        ) from error


def dictionary_faults(expected: Charset, other: Charset) -> list[str]:
    """Return how a dictionary differs, also in characters that are in no image."""
    right = expected.characters
    characters = other.characters
    if right == characters and expected.turns_texts != other.turns_texts:
        return [f"texts: {other.direction}, expected {expected.direction}"]
    if right == characters:
        return []
    if len(right) != len(characters):
        return [f"dictionary: {len(characters)} characters, expected {len(right)}"]
    number = next(n for n, (one, two) in enumerate(zip(right, characters, strict=True)) if one != two)
    return [f"dictionary: character {number + 1} is {characters[number]!r}, expected {right[number]!r}"]


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
    try:
        yield from (image.source() for image in images_of_eval(config))
    except PPOCRExtError:
        return  # the data need not be on this machine


def batches_of(images: Sequence[np.ndarray], policy: WidthPolicy) -> list[np.ndarray]:
    """Return the images prepared for a network: each alone, and all of one width as one batch.

    Args:
        images: uint8 [H, W, 3].
        policy: the policy of the network.

    Returns:
        float32 [B, 3, H, W] each.
    """
    prepared = [policy.prepare(image) for image in images]
    by_width: dict[int, list[np.ndarray]] = {}
    for one in prepared:
        by_width.setdefault(one.shape[2], []).append(one)
    return [one[None] for one in prepared] + [np.stack(same) for same in by_width.values() if len(same) > 1]
