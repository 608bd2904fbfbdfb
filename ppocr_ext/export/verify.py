"""Compare readers image by image: probabilities first, since equal texts hide a second softmax; imports no Paddle."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice, product
from pathlib import Path
from typing import Any, NamedTuple, get_args

import cv2
import numpy as np
import yaml

from ppocr_ext.charset import Charset
from ppocr_ext.config import Config
from ppocr_ext.config.global_keys import PADDLE
from ppocr_ext.config.yaml_io import PlainLoader
from ppocr_ext.data.label_file import read_label_file
from ppocr_ext.errors import DataError, PPOCRExtError
from ppocr_ext.inference.comparison import TOLERANCE, distance
from ppocr_ext.inference.formats import FORMATS, ExportedEngine
from ppocr_ext.inference.runners import Engine
from ppocr_ext.limits import MAX_DICTIONARY_BYTES, read_at_most
from ppocr_ext.recognition.ctc_text import read
from ppocr_ext.recognition.images import ImageSource, images_in, read_image
from ppocr_ext.recognition.opening import INFERENCE_YML, RecognizerParts, parts_of_metadata
from ppocr_ext.recognition.resize import Color, Kind, WidthPolicy

_EXAMINED = 2  # images of a reader that are searched for the step at fault: it is the same in all
_LONGEST = 200  # limit of letters in the message of a client
_SHOWN = 5  # limit of pairs of texts that are shown
_TOGETHER = 8  # images that a graph also gets as one batch, since a graph may be wrong in batches alone


class Picture(NamedTuple):
    """An image to read: uint8 [H, W, 3] in BGR, and its label if that is known."""

    pixels: np.ndarray
    label: str | None = None


class Fault(NamedTuple):
    """What differs: ``decode``, ``resize``, ``width policy``, ``graph``, …, and how."""

    step: str
    detail: str

    def __str__(self) -> str:
        """Return ``channel order: RGB in place of BGR``."""
        return f"{self.step}: {self.detail}"


@dataclass(frozen=True, eq=False)
class Seen:
    """What a reader made of one image.

    Attributes:
        text: what it read.
        probabilities: float32 [T, C].
        input: what it gave the graph, float32 [3, H, W].
    """

    text: str
    probabilities: np.ndarray
    input: np.ndarray


@dataclass(frozen=True)
class Reader:
    """What reads images, and shows what it does with them.

    Attributes:
        name: for the table.
        see: reads one image, uint8 [H, W, 3] in BGR.
        step: that is to blame where it fails.
        own_policy: with which it prepares images if it knows no other; None: with that of the network.
        note: what the user should know of that policy; may be empty.
    """

    name: str
    see: Callable[[np.ndarray], Seen]
    step: str = "graph"
    own_policy: WidthPolicy | None = None
    note: str = ""


def look(parts: RecognizerParts, pixels: np.ndarray) -> Seen:
    """Read one image, uint8 [H, W, 3] in BGR, with an engine of this package."""
    given = parts.policy.prepare(pixels)
    found = parts.probabilities(given[None])[0]
    return Seen(read(found, parts.charset, reorder=parts.reorder).text, found, given)


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
    name: str,
    right: RecognizerParts,
    forms: Mapping[str, RecognizerParts],
    clients: Sequence[Reader],
    pictures: Iterable[Picture],
    any_width: bool,
    tolerance: float = TOLERANCE,
) -> list[Comparison]:
    """Compare what reads an export with the network: each image alone; graphs with several and other widths too.

    Args:
        name: of ``right``.
        right: the trained network.
        forms: of the model, by name.
        clients: that read it.
        pictures: the images.
        any_width: the graphs should take every width.
        tolerance: the largest difference of probabilities that is accepted.

    Returns:
        One for ``right`` itself, and one for each of the others.
    """
    readers = [Reader(each, partial(look, parts)) for each, parts in forms.items()]
    reference = Comparer(right, Reader(name, partial(look, right)), tolerance)
    comparers = [Comparer(right, each, tolerance) for each in (*readers, *clients)]
    together: list[np.ndarray] = []
    for picture in pictures:
        together += [picture.pixels] * (len(together) < _TOGETHER)
        seen = look(right, picture.pixels)
        reference.check(picture, seen, seen)
        expected: dict[WidthPolicy, Seen] = {right.policy: seen}
        for comparer in comparers:
            policy = comparer.right.policy
            if policy not in expected:
                expected[policy] = look(comparer.right, picture.pixels)
            comparer.add(picture, expected[policy])
    for comparer, parts in (
        zip(comparers, forms.values(), strict=False) if together else ()
    ):  # the first comparers are those of the forms
        comparer.result.add_faults(dictionary_faults(right.charset, parts.charset))
        comparer.add_batches(parts.engine, together, any_width)
    return [each.result for each in (reference, *comparers)]


class Comparer:
    """Compare one reader with the network, an image at a time.

    Args:
        network: that is right.
        found: the reader to check.
        tolerance: the largest difference of probabilities that is accepted.

    Attributes:
        right: the network, with the width policy that is expected of the reader.
        result: what was found so far.
    """

    def __init__(self, network: RecognizerParts, found: Reader, tolerance: float = TOLERANCE) -> None:
        self.right = replace(network, policy=found.own_policy or network.policy)
        self.result = Comparison(found.name, found.note)
        self._found = found
        self._tolerance = tolerance
        self._examined = 0

    def add(self, picture: Picture, expected: Seen) -> None:
        """Read an image, and add what is found to ``result``; ``expected`` is what ``right`` sees in it."""
        try:
            seen = self._found.see(picture.pixels)
        except Exception as error:  # whatever an engine or a client raises
            self.result.images += 1
            self.result.largest = math.inf
            self.result.different += 1
            self.result.labelled += picture.label is not None
            height, width = picture.pixels.shape[:2]
            given = f"an image of {width} x {height} pixels"
            self.result.add_faults([_failure(error, given, self._found.step)])
        else:
            self.check(picture, expected, seen)

    def check(self, picture: Picture, expected: Seen, seen: Seen) -> None:
        """Add what the reader has seen in an image to ``result``."""
        result = self.result
        result.images += 1
        largest = distance(expected.probabilities, seen.probabilities)
        result.largest = max(result.largest, largest)
        result.labelled += picture.label is not None
        result.correct += seen.text == picture.label
        differs = seen.text != expected.text
        if differs:
            result.different += 1
            result.texts += [(expected.text, seen.text)] * (len(result.texts) < _SHOWN)
        if (differs or largest > self._tolerance) and self._examined < _EXAMINED:
            self._examined += 1
            # the steps before the graph, the graph, and those behind it
            before = input_faults(self.right.policy, picture.pixels, seen.input)
            result.add_faults([*before, *output_faults(self.right, seen, self._tolerance)])

    def add_batches(self, engine: Engine, images: Sequence[np.ndarray], any_width: bool) -> None:
        """Give the graph several images at once, and inputs of other widths, and compare.

        Args:
            engine: that runs the graph.
            images: a few, uint8 [H, W, 3].
            any_width: the graph should take every width.
        """
        right = self.right
        result = self.result
        batches = [batch for batch in batches_of(images, right.policy) if len(batch) > 1]
        if not batches:
            batches = [np.repeat(right.policy.prepare(images[0])[None], 2, axis=0)]
        if any_width:
            batches += batches_of(images, replace(right.policy, kind="widen"))
        for batch in batches:
            given = f"{len(batch)} images of width {batch.shape[3]}"
            expected = right.engine.probabilities(batch)
            try:
                largest = distance(expected, engine.probabilities(batch))
            except Exception as error:  # whatever an engine raises
                largest = math.inf
                result.add_faults([_failure(error, given)])
            result.largest = max(result.largest, largest)
            if largest > self._tolerance and not result.faults:
                result.add_faults([Fault("graph", f"other probabilities for {given}")])


def _failure(error: Exception, given: str, step: str = "graph") -> Fault:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    said = lines[0] if isinstance(error, PPOCRExtError) else lines[-1]  # Paddle's last line has the reason
    if getattr(error, "code", "") == "charset_mismatch":
        step = "dictionary"
    return Fault(step, f"it fails on {given}: {said}"[:_LONGEST])


_SAME = 1e-3  # limit of the difference of equal inputs, whose values go from -1 to 1
_NEAR = 0.1  # limit of the mean difference between an input and that of another library for resizing
_INTERPOLATIONS = {
    "": cv2.INTER_LINEAR,
    "the nearest pixel in place of linear interpolation": cv2.INTER_NEAREST,
    "cubic in place of linear interpolation": cv2.INTER_CUBIC,
    "the mean of an area in place of linear interpolation": cv2.INTER_AREA,
    "Lanczos in place of linear interpolation": cv2.INTER_LANCZOS4,
}
_MEAN, _DEVIATION = (
    np.array(values, np.float32)[:, None, None] for values in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
)
_NORMALISATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "": lambda pixels: (pixels - 0.5) / 0.5,
    "the values go from 0 to 255": lambda pixels: pixels * 255,
    "the values go from 0 to 1": lambda pixels: pixels,
    "with mean and deviation of ImageNet": lambda pixels: (pixels - _MEAN) / _DEVIATION,
}


def input_faults(policy: WidthPolicy, pixels: np.ndarray, found: np.ndarray) -> list[Fault]:
    """Return the steps before the graph that differ; none if the input is right.

    Args:
        policy: how the image should be prepared.
        pixels: the image, uint8 [H, W, 3] in BGR.
        found: what the graph was given, float32 [3, H, W].
    """
    expected = policy.prepare(pixels)
    if distance(expected, found) <= _SAME:
        return []
    columns = expected.shape[2]
    wider = found.shape[:2] == expected.shape[:2] and found.shape[2] > columns
    if wider and distance(expected, found[:, :, :columns]) <= _SAME and not found[:, :, columns:].any():
        return [Fault("batch padding", f"filled up from {columns} to {found.shape[2]} columns")]
    # fewer swapped steps first, so that one wrong step is not explained by two
    for faults, prepared in sorted(_ways(policy, pixels), key=lambda way: len(way[0])):
        if distance(prepared, found) <= _SAME:
            return faults
    if found.shape != expected.shape:
        return [Fault("width policy", f"the input is {list(found.shape)}, expected {list(expected.shape)}")]
    if float(np.abs(expected - found).mean()) <= _NEAR:
        return [Fault("resize", "values that no interpolation of OpenCV gives")]
    return [Fault("decode", "the input is of other pixels than those of the image")]


def _ways(policy: WidthPolicy, pixels: np.ndarray) -> Iterator[tuple[list[Fault], np.ndarray]]:
    """Yield the image prepared in each known way, and before it the steps that differ from those of ``policy``."""
    images = {
        "": pixels,
        "grey": cv2.cvtColor(cv2.cvtColor(pixels, cv2.COLOR_BGR2GRAY), cv2.COLOR_GRAY2BGR),
        "turned": np.rot90(pixels, 1),
        "turned back": np.rot90(pixels, 3),
    }
    ways = product(
        images.items(), get_args(Kind), get_args(Color), _INTERPOLATIONS.items(), _NORMALISATIONS.items()
    )
    for (decoding, image), kind, color, (interpolation, flag), (values, normalised) in ways:
        swapped = replace(policy, kind=kind, color=color)
        columns, filled = swapped.widths(*image.shape[:2])
        shape = (3, policy.image_shape[1], filled)
        resized = cv2.resize(image, shape[:0:-1], interpolation=flag)
        scaled = (WidthPolicy("squash", shape, color).prepare(resized) + 1) / 2  # of its own size already
        prepared = np.zeros((*shape[:2], columns), np.float32)
        prepared[:, :, :filled] = normalised(scaled)
        differing = {
            "decode": f"the image is {decoding}" if decoding else "",
            "width policy": f"{kind} in place of {policy.kind}" if kind != policy.kind else "",
            "resize": interpolation,
            "channel order": f"{color} in place of {policy.color}" if color != policy.color else "",
            "normalisation": values,
        }
        yield [Fault(step, detail) for step, detail in differing.items() if detail], prepared


def output_faults(right: RecognizerParts, seen: Seen, tolerance: float) -> list[Fault]:
    """Return ``graph`` and ``dictionary`` if they differ, on the input that the reader itself prepared.

    Args:
        right: the network.
        seen: what the reader made of an image.
        tolerance: the largest difference of probabilities that is accepted.
    """
    expected = right.engine.probabilities(seen.input[None])[0]
    found = seen.probabilities
    faults = []
    if distance(expected, found) > tolerance:
        powers = np.exp(expected)
        twice = distance(powers / powers.sum(axis=-1, keepdims=True), found) <= tolerance
        shape = f"the output is {list(found.shape)}, expected {list(expected.shape)}"
        what = "a second softmax" if twice else "other weights or layers"
        faults.append(Fault("graph", what if expected.shape == found.shape else shape))
    if found.shape[1:] != (right.charset.ctc_classes,):
        return faults
    text = read(found, right.charset, reorder=right.reorder).text
    if text != seen.text:
        faults.append(Fault("dictionary", f"{seen.text!r} in place of {text!r} for the same classes"))
    return faults


def open_forms(
    folder: Path, policy: WidthPolicy, reorder: bool | None = None
) -> tuple[dict[str, RecognizerParts], dict[str, PPOCRExtError]]:
    """Return each form of the model as its clients read it, and why another form cannot be opened, by its name.

    Args:
        folder: has the files of an export.
        policy: of the export; ``inference.yml`` overrides its size and its order of channels.
        reorder: see :func:`ppocr_ext.recognition.ctc_text.read`.
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
                    opened[way] = RecognizerParts(engine, own, Charset(characters), reorder)
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
        if any(
            isinstance(each, list | dict) for each in characters
        ):  # aliases in it could be text of any size
            raise TypeError("character_dict has a list or a mapping")
        # without DecodeImage the client reads images as RGB
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


def dictionary_faults(expected: Charset, other: Charset) -> list[Fault]:
    """Return how a dictionary differs, also in characters that no image shows."""
    right = expected.characters
    found = other.characters
    if right == found:
        return []
    if len(right) != len(found):
        return [Fault("dictionary", f"{len(found)} characters in place of {len(right)}")]
    number = next(n for n, (one, two) in enumerate(zip(right, found, strict=True)) if one != two)
    return [Fault("dictionary", f"character {number + 1} is {found[number]!r} in place of {right[number]!r}")]


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
    folder = dataset.get("data_dir")
    files = dataset.get("label_file_list") or ()
    try:
        if files and folder:
            for file in [files] if isinstance(files, str) else files:
                lines = read_label_file(file, dataset.get("delimiter", "\t"))
                yield from (Path(folder, line.images[0]) for line in lines if line.issue is None)
        elif folder and str(dataset.get("name")).startswith("LMDB"):
            yield from (image.source() for image in images_in(Path(folder)))
    except PPOCRExtError:
        return  # the data need not be on this machine


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
