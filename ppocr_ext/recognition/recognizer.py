"""Read text lines: :class:`Recognizer`, over a run, a config, an exported folder or an ONNX file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby, islice
from os import PathLike, fspath
from typing import Any, Literal, NamedTuple, cast

import numpy as np

from ppocr_ext.config import Config
from ppocr_ext.errors import DataError
from ppocr_ext.recognition.ctc_text import Reading, read, with_image
from ppocr_ext.recognition.images import ImageSource, is_image, read_image
from ppocr_ext.recognition.opening import EngineName, OpenOptions, Source, open_parts

_WINDOW = 8  # batches, of whose images those of equal width are put together


class _Input(NamedTuple):
    """An image that is prepared for the engine.

    Attributes:
        place: in its window.
        pixels: float32 [3, H, W].
        height: of the image itself, pixels.
        width: of the image itself.
    """

    place: int
    pixels: np.ndarray
    height: int
    width: int


class Recognizer:
    """Read images of one text line each.

    One object may be used by several threads. A text does not depend on ``batch_size`` or on the other images,
    since only images of equal width share a batch.

    Args:
        source: the folder of a run (its best checkpoint and its own config), a config file, a folder or an ONNX file
            that ``ppocr-ext export`` wrote, a :class:`ppocr_ext.config.Config`, or the
            :class:`ppocr_ext.recognition.opening.RecognizerParts` themselves.
        engine: ``"network"`` for a run or config; ``"onnx"`` or ``"paddle"`` for an exported model, by default
            the faster one that is installed.
        threads: of the engines ``"onnx"`` and ``"paddle"``; None: the engine's own default.
        device: of a run or config: ``"cpu"`` or ``"gpu"``; None: as the config says. Exported models run on the CPU.
        options: of a run or config, as after ``-o``: ``["Global.checkpoints=output/run/latest"]``.
        model: the sub-model of a distillation; None: the one that its metric is of.
        host_path: of a run or config: a PaddleOCR checkout; None searches for a host.
        old_dictionary: of a run or config: the dictionary of the weights, if it differs.

    Attributes:
        engine: name of the engine.
        policy: how images are prepared.
        charset: the dictionary.

    Raises:
        PPOCRExtError: the source cannot be opened; the message says what to change.
    """

    def __init__(
        self,
        source: Source,
        *,
        engine: EngineName | None = None,
        threads: int | None = None,
        device: Literal["cpu", "gpu"] | None = None,
        options: Sequence[str] = (),
        model: str | None = None,
        host_path: str | None = None,
        old_dictionary: str | None = None,
    ) -> None:
        given = OpenOptions(
            engine=engine,
            threads=threads,
            device=device,
            options=options,
            model=model,
            host_path=host_path,
            old_dictionary=old_dictionary,
        )
        self._parts = open_parts(source, given)
        self.engine = self._parts.engine.name
        self.policy = self._parts.policy
        self.charset = self._parts.charset

    @classmethod
    def from_config(cls, config: Config, **options: Any) -> Recognizer:
        """Return the recogniser that a config describes, with the weights that it names.

        Args:
            config: as :func:`ppocr_ext.config.load` returns it.
            options: the other arguments of the class.
        """
        return cls(config, **options)

    def read(self, images: ImageSource | Iterable[ImageSource], batch_size: int = 16) -> list[Reading]:
        """Return what is read from each image, in their order.

        An image that cannot be read gives a :class:`Reading` with an ``error`` and an empty text.

        Args:
            images: one or several, each a path, the bytes of an encoded image, or an array: uint8 or uint16 [H, W],
                [H, W, 3] (BGR, as ``cv2.imread`` returns it) or [H, W, 4].
            batch_size: most images that the engine gets at a time.

        Raises:
            WeightsError: the engine's classes are not those of the dictionary.
        """
        if is_image(images):
            return list(self.stream([images], batch_size))
        if not isinstance(images, Iterable):
            raise DataError(
                f"images cannot be a {type(images).__name__}. Fix: give an image, or a list of images.",
                code="bad_value",
            )
        return list(self.stream(cast("Iterable[ImageSource]", images), batch_size))

    def stream(self, images: Iterable[ImageSource], batch_size: int = 16) -> Iterator[Reading]:
        """Yield what :meth:`read` returns; only a few batches of images are in memory at a time.

        The next images are decoded and resized in a thread of their own, while the engine computes.
        """
        if batch_size < 1:
            raise DataError(f"batch_size is {batch_size}, but must be at least 1.", code="bad_value")
        numbered = enumerate(images)
        size = batch_size * (_WINDOW if self.policy.kind == "widen" else 1)
        windows = iter(lambda: list(islice(numbered, size)), [])
        first = next(windows, [])
        with ThreadPoolExecutor(1) as pool:
            loaded = self._load(first)  # here, so that a few images need no thread
            for window in windows:
                following = pool.submit(self._load, window)
                yield from self._read_window(*loaded, batch_size)
                loaded = following.result()
            yield from self._read_window(*loaded, batch_size)

    def _load(self, window: Sequence[tuple[int, ImageSource]]) -> tuple[list[Reading], list[_Input]]:
        """Return an empty reading for each image, and the inputs of those that are images."""
        readings, inputs = [], []
        for place, (number, source) in enumerate(window):
            name = fspath(source) if isinstance(source, str | PathLike) else number
            try:
                image = read_image(source)
                inputs.append(_Input(place, self.policy.prepare(image), image.shape[0], image.shape[1]))
                readings.append(Reading(image=name))
            except DataError as error:
                readings.append(Reading(image=name, error=str(error)))
        return readings, inputs

    def _read_window(
        self, readings: list[Reading], inputs: list[_Input], batch_size: int
    ) -> Iterator[Reading]:
        """Yield ``readings`` with the texts of ``inputs``, which are read in batches of equal width."""
        by_width = sorted(inputs, key=lambda each: each.pixels.shape[2])
        for _, equal in groupby(by_width, key=lambda each: each.pixels.shape[2]):
            while batch := list(islice(equal, batch_size)):
                for each, reading in zip(batch, self._read_batch(batch), strict=True):
                    readings[each.place] = with_image(reading, readings[each.place].image)
        yield from readings

    def _read_batch(self, batch: Sequence[_Input]) -> Iterator[Reading]:
        parts = self._parts
        probabilities = parts.probabilities(np.stack([each.pixels for each in batch]))
        for each, frames in zip(batch, probabilities, strict=True):
            columns, filled = parts.policy.widths(each.height, each.width)
            # a frame stands for columns of the input, and those for columns of the image
            scale = columns / len(frames) * each.width / filled
            yield read(frames, parts.charset, pixels_per_frame=scale, width=each.width, reorder=parts.reorder)
