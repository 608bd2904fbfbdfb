"""Datasets that draw their images during training, so that no image is seen twice and none is written to the disk.

Keys of ``dataset``:
    name: one of the datasets below; each adds its own keys.
    transforms: PaddleOCR's transforms; a ``DecodeImage`` at the beginning is not run.
    size: number of images of an epoch.
    seed: seed of the images; default ``Global.seed``.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar

import numpy as np
from paddle.io import Dataset

from ppocr_ext.charset import Charset
from ppocr_ext.data.preprocessing import apply_transforms, create_transforms
from ppocr_ext.errors import ConfigError, DataError
from ppocr_ext.registry import DATASETS, known_options
from ppocr_ext.synth.captcha import CaptchaOptions
from ppocr_ext.synth.dataset_folder import SampleSource
from ppocr_ext.synth.lines.line_source import LineOptions
from ppocr_ext.synth.option_checks import check_options, is_whole

# Keys of `dataset` that are not options of the images.
_OWN_KEYS = ("name", "transforms", "ext_op_transform_idx", "size", "seed")


class SyntheticDataSet(Dataset):
    """Draw each image when training asks for it. It depends only on seed, mode, epoch and index.

    In ``Train`` each epoch has its own images. In ``Eval`` and ``Test`` the images are always the same. The number of
    workers makes no difference. Keys of ``dataset``: ``transforms`` (PaddleOCR's), ``size`` (images of an epoch),
    ``seed`` (default ``Global.seed``, or 0 without it), and the fields of ``OPTIONS``.

    ``DecodeImage`` at the beginning of ``transforms`` is not run, since there is no file to decode. Its ``img_mode``
    and ``channel_first`` are applied to the image.

    Args:
        config: the whole configuration; it is not changed.
        mode: ``"Train"``, ``"Eval"`` or ``"Test"``, the section of the configuration.
        logger: unused; PaddleOCR passes one to each dataset.
        seed: ``Global.seed``.

    Raises:
        ConfigError: a value of ``dataset`` cannot be used; the message starts with its path.
        HostError: no host has been opened.
    """

    OPTIONS: ClassVar[type[CaptchaOptions | LineOptions]]
    need_reset = False

    @classmethod
    def known_keys(cls) -> tuple[str, ...]:
        """Return the keys of ``dataset`` that are read, for the checks of a config."""
        return (*_OWN_KEYS, *(option.name for option in fields(cls.OPTIONS)))

    def __init__(
        self,
        config: Mapping[str, Any],
        mode: str,
        logger: logging.Logger | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        section = config[mode]["dataset"]
        global_config = config["Global"]
        where = f"{mode}.dataset"
        self._mode = mode.lower()
        self._epoch = 0
        of_images = {key: value for key, value in section.items() if key not in _OWN_KEYS}
        options: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in known_options(self.OPTIONS, of_images, where).items()
        }
        path = global_config.get("character_dict_path")
        use_space = bool(global_config.get("use_space_char"))
        charset = Charset.from_file(path, use_space, lenient=True) if path else Charset.default()
        size = section.get("size")
        own_seed = section.get("seed")
        try:
            check_options(
                (
                    "size",
                    is_whole(size, 1, sys.maxsize),
                    size,
                    "the number of images of an epoch, such as 10000",
                ),
                ("seed", own_seed is None or type(own_seed) is int, own_seed, "a whole number"),
            )
            seed = (seed or 0) if own_seed is None else own_seed
            source = self.OPTIONS(**options).make_source(self._mode, charset, seed)
            _check_labels(source, charset, int(global_config.get("max_text_length", 25)))
        except (ConfigError, DataError) as error:
            raise ConfigError(f"{where}.{error}", code=error.code) from error
        self._source = source
        self._size = size
        transforms = list(section.get("transforms") or ())
        decodes = bool(transforms) and "DecodeImage" in transforms[0]
        self._decode = dict(transforms.pop(0)["DecodeImage"] or {}) if decodes else None
        self.ops = create_transforms(transforms, global_config)
        # An operator such as RecConAug joins further samples, which have passed the operators before it.
        joiner = next((i for i, op in enumerate(self.ops) if hasattr(op, "ext_data_num")), None)
        self._ext_count = 0 if joiner is None else self.ops[joiner].ext_data_num
        # The index counts DecodeImage too, which is not in `ops`. If the index is too large, PaddleOCR would send the
        # further samples through the joining operator itself.
        before = int(section.get("ext_op_transform_idx", 2)) - decodes
        self._ext_ops = self.ops[: max(0, min(before, joiner or 0))]

    def set_epoch(self, epoch: int) -> None:
        """Choose the images of ``epoch``; in evaluation they stay the same."""
        self._epoch = int(epoch) if self._mode == "train" else 0

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> Any:
        data = self._sample(f"{self._mode}/{self._epoch}", int(index))
        if self._ext_count:
            streams = [f"{self._mode}/{self._epoch}/ext{number}" for number in range(self._ext_count)]
            data["ext_data"] = [
                apply_transforms(self._sample(stream, int(index)), self._ext_ops) for stream in streams
            ]
        if (result := apply_transforms(data, self.ops)) is None:
            raise DataError(
                f"{self._mode}: a transform rejects the sample with the label {data['label']!r}. Fix: raise "
                "Global.max_text_length; NRTR and SAR need two more than the length of the label.",
                code="rejected_sample",
            )
        return result

    def _sample(self, stream: str, index: int) -> dict[str, Any]:
        """Draw a sample with its image, like the result of ``DecodeImage``."""
        label, image = self._source.image(stream, index)
        if self._decode is not None:
            if self._decode.get("img_mode", "RGB") == "RGB":
                image = image[:, :, ::-1]
            if self._decode.get("channel_first"):
                image = image.transpose(2, 0, 1)
        path = f"{self._source.kind}/{stream}/{index}"
        return {"image": np.ascontiguousarray(image), "label": label, "img_path": path, "filename": path}


def _check_labels(source: SampleSource, charset: Charset, longest: int) -> None:
    """Check that the labels of ``source`` can be encoded.

    Raises:
        DataError: a character is not in the dictionary, or labels are too long (``bad_value``).
    """
    unknown = "".join(charset.unknown("".join(source.characters)))
    check_options(
        ("characters", not unknown, unknown, f"characters of {charset.name}"),
        (
            "length",
            source.max_length <= longest,
            source.max_length,
            f"at most {longest}, which is Global.max_text_length; with NRTR or SAR {longest - 2}",
        ),
    )


@DATASETS.register("CaptchaDataSet")
class CaptchaDataSet(SyntheticDataSet):
    """Draw CAPTCHAs, by the keys of :class:`~ppocr_ext.synth.captcha.CaptchaOptions`."""

    OPTIONS = CaptchaOptions


@DATASETS.register("TextLineDataSet")
class TextLineDataSet(SyntheticDataSet):
    """Draw text lines, by the keys of :class:`~ppocr_ext.synth.lines.line_source.LineOptions`."""

    OPTIONS = LineOptions
