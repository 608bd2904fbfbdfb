"""Decode and resize images as PaddleOCR's ``DecodeImage`` and ``RecResizeImg`` do, bit for bit; imports no Paddle."""

from __future__ import annotations

import glob
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeGuard, get_args

import cv2
import numpy as np

from ppocr_ext.base.parts import HALF, TRANSFORM_ROWS, kind_of
from ppocr_ext.charset import Charset
from ppocr_ext.config import Config, named_items
from ppocr_ext.config.node import dotted
from ppocr_ext.data.image_check import SUFFIXES, image_pixels, read_image_file
from ppocr_ext.data.label_file import read_label_file
from ppocr_ext.data.lmdb_sets import DATA_FILE, LmdbSet, open_sets
from ppocr_ext.data.preprocessing import (
    COLORS,
    PAD,
    SQUASH,
    WIDEN,
    are_positive_numbers,
    read_preprocessing,
)
from ppocr_ext.data.sample_rules import SampleIssue
from ppocr_ext.errors import ConfigError, DataError
from ppocr_ext.io.image_pixels import is_tall
from ppocr_ext.limits import MAX_INPUT_WIDTH
from ppocr_ext.messages import shortened
from ppocr_ext.text_direction import in_order

# The path of a file, the bytes of an encoded image, or pixels: uint8 or uint16 [H, W] or [H, W, 1 | 3 | 4], BGR.
ImageSource = str | PathLike[str] | bytes | bytearray | memoryview | np.ndarray


def is_image(source: Any) -> TypeGuard[ImageSource]:
    """Return True if ``source`` is one image in a form that :func:`read_image` takes."""
    return isinstance(source, str | PathLike | bytes | bytearray | memoryview | np.ndarray)


def read_image(source: ImageSource) -> np.ndarray:
    """Return the pixels of an image: uint8 [H, W, 3], BGR.

    A file and bytes are decoded as in training, by ``cv2.imdecode(…, IMREAD_COLOR)``, which ignores transparency,
    turns 16 bit into 8, and rotates a photo by its EXIF orientation. An array of the same pixels gives the same result.

    Args:
        source: see ``ImageSource``.

    Raises:
        DataError: there is no such file, it is not an image or has more than ``MAX_IMAGE_PIXELS`` pixels, or the array
            has another type or shape.
    """
    if isinstance(source, np.ndarray):
        return _of_array(source)
    if isinstance(source, bytes | bytearray | memoryview):
        return _decode(bytes(source), "the image")
    if not isinstance(source, str | PathLike):
        raise DataError(
            f"an image cannot be a {type(source).__name__}. Fix: give the path of a file, the bytes of an encoded "
            f"image, or a NumPy array [H, W] or [H, W, 3].",
            code="bad_value",
        )
    path = Path(fspath(source))
    return _decode(read_image_file(path), str(path))


def _decode(content: bytes | SampleIssue, name: str) -> np.ndarray:
    pixels = image_pixels(content, name)
    if isinstance(pixels, SampleIssue):
        is_large = pixels.reason == "too_many_pixels"
        fix = ". Fix: cut out the text line, or give its pixels as an array." if is_large else ""
        raise DataError(f"{pixels.detail}{fix}", code=pixels.reason)
    return np.asarray(pixels)


def _of_array(pixels: np.ndarray) -> np.ndarray:
    channels = pixels.shape[2] if pixels.ndim == 3 else 1
    if pixels.dtype not in (np.uint8, np.uint16) or pixels.ndim not in (2, 3) or channels not in (1, 3, 4):
        raise DataError(
            f"an image cannot be an array of {pixels.dtype} {list(pixels.shape)}. Fix: give uint8 or uint16 [H, W], "
            f"[H, W, 3] (BGR, as cv2.imread returns it) or [H, W, 4].",
            code="bad_value",
        )
    if not pixels.size:
        raise DataError(f"the image has no pixels (an array {list(pixels.shape)})", code="broken_image")
    if pixels.dtype == np.uint16:
        pixels = (pixels >> 8).astype(np.uint8)  # as OpenCV decodes a file of 16 bit
    if channels == 1:
        return np.repeat(pixels.reshape(*pixels.shape[:2], 1), 3, axis=2)
    return np.ascontiguousarray(pixels[:, :, :3])


_SHOWN = 3  # unreadable lines of a label file that a message shows


class ListedImage(NamedTuple):
    """One image to read.

    Attributes:
        name: the path as the user or the label file gives it, or ``folder#12`` for a sample of an LMDB. If there are
            label files in several folders, whose names may be equal, it is the path of the image.
        place: the file, or the LMDB and the number of the sample.
        label: the true text; None if it is unknown.
    """

    name: str
    place: Path | tuple[LmdbSet, int]
    label: str | None = None

    def source(self) -> ImageSource:
        """Return the argument for :func:`read_image`."""
        if isinstance(self.place, Path):
            return self.place
        environment, number = self.place
        return environment.image(number) or b""


class ImageList(NamedTuple):
    """A list of images, and messages about places and lines of label files without an image.

    Attributes:
        images: in the order of the places; images of a folder are sorted by their path.
        bad_lines: ``file:12: reason``, or the reason why a place has no images.
    """

    images: list[ListedImage]
    bad_lines: list[str]

    def with_labels(self, charset: Charset) -> ImageList:
        """Return the list with each label as readings with this dictionary are compared with it."""
        labels = in_order([each.label or "" for each in self.images], charset.direction)
        images = [
            each if each.label is None else each._replace(label=charset.label_to_compare(label))
            for each, label in zip(self.images, labels, strict=True)
        ]
        return ImageList(images, self.bad_lines)

    def by_path(self) -> ImageList:
        """Return the list with the path of each image file as its name."""
        images = [
            each._replace(name=str(each.place)) if isinstance(each.place, Path) else each
            for each in self.images
        ]
        return ImageList(images, self.bad_lines)

    @property
    def has_labels(self) -> bool:
        """True if at least one image has a label."""
        return any(image.label is not None for image in self.images)


def list_images(places: Sequence[str], data_dir: str | Path | None = None) -> ImageList:
    """Return the images at ``places``.

    Args:
        places: each an image, a folder (with its subfolders), a folder of an LMDB, a pattern (``scans/*.png``,
            ``scans/**/*.png``), or a label file: ``path<TAB>label`` in each line.
        data_dir: folder in which the paths of label files start; None for the folder of the label file.

    Raises:
        DataError: a folder or label file does not exist, a label file cannot be read, or no place has images.
    """
    listed = ImageList([], [])
    empty = []
    for place in places:
        count = len(listed.images)
        path = Path(place)
        if path.is_dir():
            listed.images.extend(images_in(path))
        elif path.is_file():
            _add_file(listed, path, data_dir)
        elif glob.has_magic(place):
            for match in sorted(glob.glob(place, recursive=True)):  # noqa: PTH207 - Path.glob takes no absolute one
                inner = Path(match)
                if inner.is_dir() or inner.suffix.lower() in SUFFIXES:
                    listed.images.extend(images_in(inner) if inner.is_dir() else [ListedImage(match, inner)])
        elif path.suffix.lower() in SUFFIXES:
            listed.images.append(ListedImage(place, path))  # read_image reports a missing file
        else:
            raise DataError(
                f"{place}: no such file or folder. Fix: give an image, a folder, a pattern in quotes, a label file or "
                f"an LMDB.",
                code="missing_file",
            )
        if len(listed.images) == count:
            empty.append(_nothing(place, listed.bad_lines))
    if empty and not listed.images:
        raise empty[0]
    listed.bad_lines.extend(map(str, empty))
    folders = {Path(place).parent for place in places if Path(place).is_file()}
    return listed.by_path() if data_dir is None and len(folders) > 1 else listed


def _nothing(place: str, bad_lines: list[str]) -> DataError:
    """Return the error of a place without images."""
    if bad_lines:
        return DataError(
            f"{place} is neither an image nor a label file: {shortened(bad_lines, _SHOWN, '; ')}. Fix: write "
            f"`path<TAB>label` in each line.",
            code="no_images",
        )
    matches = glob.has_magic(place) and not Path(place).exists()
    what = f"no image matches {place}" if matches else f"{place} has no images"
    return DataError(
        f"{what} ({', '.join(SUFFIXES[:3])}, …). Fix: correct the path, or name files of other endings one by one.",
        code="no_images",
    )


def images_in(folder: Path) -> Iterator[ListedImage]:
    """Yield the images in a folder and its subfolders: the samples of its LMDBs, or the files if it has none."""
    files = sorted(Path(parent, name) for parent, _, names in os.walk(folder) for name in names)
    if any(file.name == DATA_FILE for file in files):
        for environment in open_sets(folder):
            for number in range(1, environment.count + 1):
                label = bytes(environment.label(number) or b"").decode("utf-8", "replace")
                yield ListedImage(f"{environment.path}#{number}", (environment, number), label)
        return
    for file in files:
        if file.suffix.lower() in SUFFIXES:
            yield ListedImage(str(file), file)


def images_of_eval(config: Config) -> Iterator[ListedImage]:
    """Yield the images of ``Eval`` that the config's own kinds of data name; a dataset of a plugin yields none.

    Raises:
        DataError: a label file or an LMDB cannot be read.
    """
    dataset = config.at("Eval.dataset", default=None) or {}
    folder = dataset.get("data_dir")
    files = dataset.get("label_file_list") or ()
    if files and folder:
        for file in [files] if isinstance(files, str) else files:
            for line in read_label_file(file, dataset.get("delimiter", "\t")):
                if line.issue is None:
                    yield ListedImage(line.images[0], Path(folder, line.images[0]), line.label)
    elif folder and str(dataset.get("name")).startswith("LMDB"):
        yield from images_in(Path(folder))


def _add_file(found: ImageList, file: Path, data_dir: str | Path | None) -> None:
    """Add an image, or the images of a label file or of a list of paths, one a line."""
    if file.suffix.lower() in SUFFIXES or cv2.haveImageReader(str(file)):
        found.images.append(ListedImage(str(file), file))
        return
    folder = file.parent if data_dir is None else Path(data_dir)
    lines = list(read_label_file(file))
    paths = [name for each in lines if (name := each.content.decode("utf-8", "replace").strip())]
    if all("\t" not in each and each.lower().endswith(SUFFIXES) for each in paths):
        found.images.extend(ListedImage(each, folder / each) for each in paths)
        return
    for line in lines:
        if line.issue is not None:
            found.bad_lines.append(f"{file}:{line.number}: {line.issue}")
        for name in line.images:
            found.images.append(ListedImage(name, folder / name, line.label))


Kind = Literal["pad", "squash", "widen"]
Color = Literal["BGR", "RGB"]
_KINDS: dict[str, Kind] = {PAD: "pad", SQUASH: "squash", WIDEN: "widen"}
# The normalised value for each value of a pixel. A table is faster than the operations, and equal in every bit.
_NORMALISED = (np.arange(256, dtype=np.float32) / np.float32(255) - np.float32(0.5)) / np.float32(0.5)
_UNSUPPORTED = ("ignore_orientation", "channel_first")  # options of DecodeImage


@dataclass(frozen=True)
class WidthPolicy:
    """Determine the width of the network's input for an image, and resize and normalise the image.

    The height is always that of ``image_shape``. Pixels become (x / 255 - 0.5) / 0.5; padding is 0.

    Attributes:
        kind: ``"pad"`` keeps the aspect ratio, pads on the right to the width of ``image_shape``, and squeezes longer
            images to that width. ``"squash"`` resizes to that width (``padding: false``). ``"widen"`` keeps the aspect
            ratio, so that a longer image makes a wider input (``eval_mode: true``).
        image_shape: (3, height, width).
        color: order of the channels that the network takes.
        max_width: limit of ``"widen"``, to which longer images are squeezed. PaddleOCR's transform has no limit (None),
            so a PNG of 662 bytes can need gigabytes. :meth:`from_config` sets ``MAX_INPUT_WIDTH``.
        turns: turn tall images by 90° to the left first (``Global.turn_tall_images``).
    """

    kind: Kind
    image_shape: tuple[int, int, int]
    color: Color = "BGR"
    max_width: int | None = None
    turns: bool = False

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            DataError: a value is not allowed.
        """
        known = self.kind in get_args(Kind) and self.color in COLORS
        sizes = are_positive_numbers(self.image_shape, 3) and self.image_shape[0] == 3
        if not known or not sizes or not are_positive_numbers((self.max_width or 1,), 1):
            raise DataError(
                f"a width policy needs a kind ({', '.join(get_args(Kind))}), a color ({', '.join(COLORS)}), an "
                f"image_shape [3, height, width], and a max_width in pixels or None (found {vars(self)}).",
                code="bad_value",
            )

    @classmethod
    def from_config(cls, config: Config) -> WidthPolicy:
        """Return the policy of the transforms of ``Eval``.

        Raises:
            ConfigError: this class does not support these transforms.
        """
        resizing = [name for name, _ in _of_pixels(config) if name.endswith("ResizeImg")]
        steps = read_preprocessing(config, "Eval")
        for name, path in _of_pixels(config):
            if name not in TRANSFORM_ROWS or not TRANSFORM_ROWS[name].is_usual:
                raise _unsupported(config, path, f"{name} changes the pixels")
        decoding = config.at(("Eval", "dataset", "transforms", "DecodeImage"), None)
        for key in _UNSUPPORTED if isinstance(decoding, Mapping) else ():
            if decoding.get(key):
                path = ("Eval", "dataset", "transforms", "DecodeImage", key)
                raise _unsupported(config, path, "the option is not supported")
        if steps is None or len(resizing) != 1 or len(steps.sizes) != 1 or steps.fit not in _KINDS:
            raise _unsupported(config, ("Eval", "dataset", "transforms"), "no single RecResizeImg is found")
        if steps.normalisation != (HALF,) or steps.sizes[0][0] != 3 or steps.color is None:
            reason = f"found {steps.color}, {list(steps.sizes[0])}, {' then '.join(steps.normalisation)}"
            raise _unsupported(config, steps.path, reason)
        kind = _KINDS[steps.fit]
        color: Color = "RGB" if steps.color == "RGB" else "BGR"
        return cls(kind, steps.sizes[0], color, _max_width(kind), config.settings.turn_tall_images)

    @classmethod
    def from_json(cls, content: Any, where: str) -> WidthPolicy:
        """Return the policy that :meth:`to_json` wrote.

        Args:
            content: the content of a JSON file.
            where: the file, for messages.

        Raises:
            DataError: :meth:`to_json` cannot have written it.
        """
        try:
            shape = tuple(content["image_shape"])
            return cls(
                content["kind"],
                shape,
                content["color"],
                content.get("max_width", _max_width(content["kind"])),
                content.get("turns", False) is True,
            )
        except (DataError, TypeError, KeyError, AttributeError) as error:
            reason = f"no {error}" if isinstance(error, KeyError) else error
            raise DataError(
                f"{where}: width_policy is not one that an export writes ({reason}). Fix: export the model again.",
                code="bad_content",
            ) from error

    def to_json(self) -> dict[str, Any]:
        """Return ``kind``, ``image_shape``, ``color``, ``max_width`` if there is one, and ``turns`` if it is true."""
        limit = {} if self.max_width is None else {"max_width": self.max_width}
        turns = {"turns": True} if self.turns else {}
        return {
            "kind": self.kind,
            "image_shape": list(self.image_shape),
            "color": self.color,
            **limit,
            **turns,
        }

    def turned(self, image: np.ndarray) -> np.ndarray:
        """Return an image [H, W, 3] as it is read: a tall one turned, if this policy ``turns``."""
        return np.rot90(image) if self.turns and is_tall(*image.shape[:2]) else image

    def widths(self, height: int, width: int) -> tuple[int, int]:
        """Return the width of the input for an image, and how many columns of the input the image fills.

        Args:
            height: the height of the image as it is read (:meth:`turned`), pixels.
            width: its width, pixels.
        """
        _, rows, columns = self.image_shape
        if self.kind == "squash":
            return columns, columns
        ratio = width / float(height)
        if self.kind == "widen":
            # PaddleOCR's order of operations, since another order can differ by a column.
            columns = int(rows * max(columns * 1.0 / rows, ratio))
            if self.max_width is not None and columns > self.max_width:
                return self.max_width, self.max_width
        return columns, min(columns, math.ceil(rows * ratio))

    def prepare(self, image: np.ndarray) -> np.ndarray:
        """Return the input of the network for an image: float32 [3, height, width].

        Args:
            image: uint8 [H, W, 3], BGR.
        """
        image = self.turned(image)
        rows = self.image_shape[1]
        columns, filled = self.widths(*image.shape[:2])
        resized = cv2.resize(image, (filled, rows), interpolation=cv2.INTER_LINEAR)
        if self.color == "RGB":
            resized = cv2.cvtColor(resized, cv2.COLOR_BGR2RGB)
        prepared = np.zeros((3, rows, columns), np.float32)
        prepared[:, :, :filled] = cv2.LUT(resized, _NORMALISED).transpose(2, 0, 1)
        return prepared


def _max_width(kind: Kind) -> int | None:
    return MAX_INPUT_WIDTH if kind == "widen" else None


def _of_pixels(config: Config) -> list[tuple[str, tuple[str, ...]]]:
    """Return name and path of the transforms of ``Eval`` that change pixels after they are decoded."""
    listed = named_items(config, "Eval", "dataset", "transforms")
    return [(name, path) for name, path in listed if kind_of(name) != "plain"]


def _unsupported(config: Config, path: tuple[str, ...], reason: str) -> ConfigError:
    exists = config.at(path, None) is not None
    where = f"{config.where(path)}: {dotted(path)}" if exists else dotted(path)
    return ConfigError(
        f"{where}: only `eval` can prepare images like this: {reason}. Fix: let Eval decode with DecodeImage and "
        f"resize only with RecResizeImg, if the network was trained so.",
        code="unsupported_preprocessing",
    )
