"""Read text lines: :class:`Recognizer`, over a run, a config, an exported or a released model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain, islice, repeat
from os import PathLike, fspath
from typing import Any, Literal, NamedTuple, cast

import numpy as np

from ppocr_ext.config import Config
from ppocr_ext.errors import DataError
from ppocr_ext.inference.runners import NrtrEngine
from ppocr_ext.io.image_pixels import is_tall
from ppocr_ext.recognition.ctc_text import Reading, read_classes, read_sequence
from ppocr_ext.recognition.images import ImageSource, is_image, read_image
from ppocr_ext.recognition.opening import OpenOptions, Source, open_parts

# the best class of each frame and its probability, [B, T]; the loss of the label, [B]
_Classes = tuple[np.ndarray, np.ndarray, np.ndarray]
_WINDOW = 8  # batches that are read together; their images of equal width share a batch


class _Batch(NamedTuple):
    """Images of equal width, prepared for the engine.

    Attributes:
        places: positions of the images in their window.
        sizes: original height and width of each image, pixels.
        labels: class ids of the label of each; None if there is none to judge.
        inputs: float32 [B, 3, H, W].
    """

    places: Sequence[int]
    sizes: Sequence[tuple[int, int]]
    labels: Sequence[list[int] | None]
    inputs: np.ndarray


class _Window(NamedTuple):
    """A group of consecutive images.

    Attributes:
        readings: one for each image: its name, and its error if it cannot be read.
        batches: the images that can be read.
    """

    readings: list[Reading]
    batches: list[_Batch]


class Recognizer:
    """Read images of one text line each.

    >>> len(Recognizer("output/my_run").read(["first.png", "second.png"]))
    2

    Several threads may use one object. The text of an image does not depend on ``batch_size`` or on the other images,
    since only images of equal width share a batch.

    Args:
        source: the folder of a run (its best checkpoint and its own config), a config file, a folder or an ONNX file
            that ``ppocr-ext export`` wrote, a released inference model (its folder, its ONNX file, or PaddleOCR's name
            of one on this machine), a :class:`ppocr_ext.config.Config`, a
            :class:`ppocr_ext.inference.released.ReleasedModel`, or the
            :class:`ppocr_ext.recognition.opening.RecognizerParts` themselves.
        engine: for a run or config ``"network"``, or ``"paddle"``, which compiles it; by default the network with fused
            convolutions, or a compiled one for many ``images``. ``"onnx"`` or ``"paddle"`` for an exported model, by
            default the faster one that is installed.
        threads: the number of threads of the engines ``"onnx"`` and ``"paddle"``; None for the engine's own default.
        device: for a run or config, ``"cpu"`` or ``"gpu"``; None for the config's own. Exported models run on the CPU.
        options: for a run or config, options as after ``-o``: ``["Global.checkpoints=output/run/latest"]``.
        model: the sub-model of a distillation; None for the one that the metric evaluates.
        host_path: for a run or config, a PaddleOCR checkout; None searches for a host.
        old_dictionary: for a run or config, the dictionary of the weights, if it differs.
        dictionary: for a released model, the file of its dictionary, if the model does not state it.
        trust_model: run a file even if neither a ``model.json`` nor our table of released models has its digest. Such a
            file is a program.
        images: about how many images will be read, if that is known.

    Attributes:
        engine: name of the engine.
        policy: how images are prepared.
        charset: the dictionary.
        origin: for a released model, where it, its dictionary and its preprocessing are from; empty for others.
        is_right: says if a text equals its label: for a run as its ``Metric`` does, else all of both.

    Raises:
        PPOCRExtError: the source cannot be opened; the message says what to change.
    """

    def __init__(
        self,
        source: Source,
        *,
        engine: str | None = None,
        threads: int | None = None,
        device: Literal["cpu", "gpu"] | None = None,
        options: Sequence[str] = (),
        model: str | None = None,
        host_path: str | None = None,
        old_dictionary: str | None = None,
        dictionary: str | PathLike[str] | None = None,
        trust_model: bool = False,
        images: int = 0,
    ) -> None:
        open_options = OpenOptions(
            engine=engine,
            threads=threads,
            device=device,
            options=options,
            model=model,
            host_path=host_path,
            old_dictionary=old_dictionary,
            dictionary=dictionary,
            trust_model=trust_model,
            images=images,
        )
        self._parts = open_parts(source, open_options)
        self.engine = self._parts.engine.name
        self.policy = self._parts.policy
        self.charset = self._parts.charset
        self.origin = self._parts.origin
        self.is_right = self._parts.is_right

    @classmethod
    def from_config(cls, config: Config, **options: Any) -> Recognizer:
        """Return the recogniser of a config, with the weights that it names.

        Args:
            config: as :func:`ppocr_ext.config.load` returns it.
            options: the other arguments of the class.
        """
        return cls(config, **options)

    def ignoring(self, characters: str) -> Recognizer:
        """Return a recogniser that reads ``characters`` as nothing: a CTC frame that shows one is a blank."""
        return Recognizer(replace(self._parts, ignored=characters))

    def read(self, images: ImageSource | Iterable[ImageSource], batch_size: int = 16) -> list[Reading]:
        """Return the reading of each image, in the order of the images.

        For an image that cannot be read, the :class:`Reading` has an ``error`` and an empty text.

        Args:
            images: one or several, each a path, the bytes of an encoded image, or an array: uint8 or uint16 [H, W],
                [H, W, 3] (BGR, as ``cv2.imread`` returns it) or [H, W, 4].
            batch_size: the largest number of images that the engine gets at a time.

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

    def stream(
        self,
        images: Iterable[ImageSource],
        batch_size: int = 16,
        labels: Iterable[str | None] = (),
    ) -> Iterator[Reading]:
        """Yield the readings of :meth:`read`; only a few batches of images are in memory at a time.

        With ``labels``, one for each image, a reading has the loss of its label.

        The engine computes in its own thread. Meanwhile the next images are decoded and resized, and the results of the
        previous ones are turned into texts.
        """
        if batch_size < 1:
            raise DataError(f"batch_size is {batch_size}, but must be at least 1.", code="bad_value")
        numbered = enumerate(zip(images, chain(labels, repeat(None))))  # noqa: B905 - the images end first
        size = batch_size * (_WINDOW if self.policy.kind == "widen" else 1)
        windows = iter(lambda: list(islice(numbered, size)), [])
        first = next(windows, [])
        second = next(windows, [])
        if not second:
            # Not in a new thread: an engine would start its own threads again there, which takes longer than one image.
            loaded = self._load(first, batch_size)
            yield from self._texts(loaded, map(self._best, loaded.batches))
            return
        pool = ThreadPoolExecutor(1)
        before: Iterator[Reading] = iter(())
        try:
            for window in chain([first, second], windows):
                loaded = self._load(window, batch_size)
                # Submitted before the texts of the previous window are made, so that the engine never waits.
                computing = [pool.submit(self._best, batch) for batch in loaded.batches]
                yield from before
                before = self._texts(loaded, (each.result() for each in computing))
            yield from before
        finally:
            pool.shutdown(cancel_futures=True)

    def _best(self, batch: _Batch) -> _Classes:
        return self._parts.best(batch.inputs, batch.labels)

    def _load(self, images: Sequence[tuple[int, tuple[ImageSource, str | None]]], batch_size: int) -> _Window:
        """Decode, resize and group images, each with its number and its label."""
        readings, by_width = [], defaultdict[int, list[tuple[Any, ...]]](list)
        for place, (number, (source, label)) in enumerate(images):
            name, error = fspath(source) if isinstance(source, str | PathLike) else number, None
            try:
                image = self.policy.turned(read_image(source))
                pixels = self.policy.prepare(image)
                ids = None if label is None else self.charset.ids_to_read(label)
                by_width[pixels.shape[2]].append((place, image.shape[:2], ids, pixels))
            except DataError as problem:
                error = str(problem)
            except MemoryError:
                error = f"{name} needs more memory than is available"
            readings.append(Reading(image=name, error=error))
        batches = []
        for equal in by_width.values():
            for first in range(0, len(equal), batch_size):
                places, sizes, labels, inputs = zip(*equal[first : first + batch_size], strict=True)
                batches.append(_Batch(places, sizes, labels, np.stack(inputs)))
        return _Window(readings, batches)

    def _texts(self, window: _Window, computed: Iterable[_Classes]) -> Iterator[Reading]:
        """Yield the readings of a window, with the texts; ``computed`` has the classes of each batch."""
        parts, readings = self._parts, window.readings
        for batch, classes in zip(window.batches, computed, strict=True):
            columns, frames = batch.inputs.shape[3], classes[0].shape[1]
            for place, (height, width), ids, best, loss in zip(
                batch.places, batch.sizes, *classes, strict=True
            ):
                image = readings[place].image
                if isinstance(parts.engine, NrtrEngine):
                    reading = read_sequence(ids, best, parts.charset, image)
                else:
                    _, filled = parts.policy.widths(height, width)
                    reading = read_classes(
                        ids,
                        best,
                        parts.charset,
                        # A frame covers columns / frames columns of the input, and each of these covers width / filled
                        # columns of the image.
                        pixels_per_frame=columns / frames * width / filled,
                        width=width,
                        image=image,
                    )
                readings[place] = replace(reading, tall=is_tall(height, width), loss=float(loss))
        yield from readings
