"""CAPTCHAs made as training asks for them: no image is seen twice, and nothing lies on disk."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping
from typing import Any, TypeGuard

import numpy as np
from paddle.io import Dataset

from ppocr_ext.charset import Charset
from ppocr_ext.data.transform_factory import apply_transforms, create_transforms
from ppocr_ext.errors import ConfigError, DataError
from ppocr_ext.registry import DATASETS, known_options
from ppocr_ext.synth.captcha import LIBRARY_FONT_SIZES, CaptchaOptions, CaptchaSource, PainterName

# Keys of PaddleOCR's `dataset` section that are read here and not by `_options`.
_HOST_KEYS = ("name", "transforms", "ext_op_transform_idx")


@DATASETS.register("CaptchaDataSet")
class CaptchaDataSet(Dataset):
    """Images determined by seed, mode, epoch and index; any number of workers makes the same ones.

    In ``Train`` each epoch has images of its own. In ``Eval`` and ``Test`` they are the same every time.
    Keys of ``dataset``, besides ``transforms`` (PaddleOCR's)::

        size: 10000             # images of an epoch
        characters: "0123456789"
        length: [4, 6]          # fewest and most characters
        width: 160
        height: 60
        seed: 1                 # else Global.seed, else 0
        painter: fast           # or: library
        fonts: []               # TrueType files; none for the library's own
        font_sizes: [42, 50, 56]

    ``DecodeImage`` at the head of ``transforms`` is not run: there is no file to decode, and the image is
    handed on as it would be (``img_mode``, ``channel_first``).

    Args:
        config: the whole configuration; it is not changed.
        mode: ``"Train"``, ``"Eval"`` or ``"Test"``, the section of the configuration.
        logger: unused; PaddleOCR hands one to each dataset.
        seed: ``Global.seed``.

    Raises:
        ConfigError: a key is missing, misspelt or out of range.
        DataError: characters, fonts or sizes cannot be drawn, or the dictionary lacks characters.
        HostError: no host has been opened.
    """

    need_reset = False

    @classmethod
    def known_keys(cls) -> tuple[str, ...]:
        """Keys of ``dataset`` that are read, for the checks of a config."""
        return (*_HOST_KEYS, *(name for name in inspect.signature(_options).parameters if name != "where"))

    def __init__(
        self,
        config: Mapping[str, Any],
        mode: str,
        logger: logging.Logger | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        section, global_config = config[mode]["dataset"], config["Global"]
        where = f"{mode}.dataset"
        if (config[mode].get("sampler") or {}).get("name") == "MultiScaleSampler":
            raise ConfigError(f"{mode}.sampler: CaptchaDataSet makes images of one size. Remove the sampler.")
        own = {key: value for key, value in section.items() if key not in _HOST_KEYS}
        self.size, options, own_seed = _options(where=where, **known_options(_options, own, where))
        chosen = seed if own_seed is None else own_seed
        self._source = CaptchaSource(options, 0 if chosen is None else int(chosen))
        _check_labels(options, global_config, where)
        transforms = list(section.get("transforms") or ())
        self._decode = _take_decode(transforms)
        self.ops = create_transforms(transforms, global_config)
        joiner = next((i for i, op in enumerate(self.ops) if hasattr(op, "ext_data_num")), None)
        self._ext_count = 0 if joiner is None else self.ops[joiner].ext_data_num
        # PaddleOCR counts DecodeImage, which is not among these operators, and would send the further
        # samples through the joining operator itself where the index is too large.
        before = int(section.get("ext_op_transform_idx", 2)) - (self._decode is not None)
        self._ext_ops = self.ops[: max(0, min(before, joiner or 0))]
        self._training = mode.lower() == "train"
        self._mode = mode.lower()
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the images of ``epoch``; in evaluation they stay as they are."""
        self._epoch = int(epoch) if self._training else 0

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        data = self._sample(int(index))
        if self._ext_count:
            data["ext_data"] = [self._ext_sample(int(index), number) for number in range(self._ext_count)]
        result = apply_transforms(data, self.ops)
        if result is None:
            raise DataError(
                f"{self._mode}: a transform refuses the CAPTCHA {data['label']!r}. Is its label too long? NRTR and "
                "SAR take two characters less than Global.max_text_length."
            )
        return result

    def _sample(self, index: int, stream: str = "") -> dict[str, Any]:
        name = f"{self._mode}/{self._epoch}{stream}"
        label, image = self._source.image(name, index)
        path = f"captcha/{name}/{index}"
        return {"image": _as_decoded(image, self._decode), "label": label, "img_path": path, "filename": path}

    def _ext_sample(self, index: int, number: int) -> Any:
        """Another image, as far processed as operators such as ``RecConAug`` expect it."""
        return apply_transforms(self._sample(index, f"/ext{number}"), self._ext_ops)


def _options(
    where: str,
    size: int | None = None,
    characters: str = "0123456789",
    length: tuple[int, int] = (4, 6),
    width: int = 160,
    height: int = 60,
    seed: int | None = None,
    painter: PainterName = "fast",
    fonts: tuple[str, ...] = (),
    font_sizes: tuple[int, ...] = LIBRARY_FONT_SIZES,
) -> tuple[int, CaptchaOptions, int | None]:
    """Images of an epoch, what to draw, and the seed, from the keys of ``dataset``."""
    if not _is_whole(size) or size < 1:
        raise ConfigError(
            f"{where}.size: give the number of images of an epoch, such as 10000; found {size!r}."
        )
    if not isinstance(characters, str):
        raise ConfigError(
            f'{where}.characters: put quotes around it, such as "0123456789"; found {characters!r}.'
        )
    if not isinstance(length, list | tuple) or len(length) != 2 or not all(map(_is_whole, length)):
        raise ConfigError(
            f"{where}.length: give [fewest, most] characters, such as [4, 6]; found {length!r}."
        )
    for key, value in (("width", width), ("height", height), *(("font_sizes", each) for each in font_sizes)):
        if not _is_whole(value):
            raise ConfigError(f"{where}.{key}: give whole pixels; found {value!r}.")
    options = CaptchaOptions(
        characters, (length[0], length[1]), width, height, tuple(fonts), tuple(font_sizes), painter
    )
    return size, options, seed


def _is_whole(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_labels(options: CaptchaOptions, global_config: Mapping[str, Any], where: str) -> None:
    path = global_config.get("character_dict_path")
    use_space = bool(global_config.get("use_space_char", False))
    charset = Charset.from_file(path, use_space, lenient=True) if path else Charset.default()
    unknown = charset.unknown(options.characters)
    if unknown:
        raise DataError(f"{where}.characters has {''.join(unknown)!r}, which are not in {charset.name}.")
    longest = int(global_config.get("max_text_length", 25))
    if options.length[1] > longest:
        raise DataError(
            f"{where}.length goes to {options.length[1]} characters, Global.max_text_length is {longest}. Raise it to "
            f"{options.length[1]} (with NRTR or SAR: {options.length[1] + 2})."
        )


def _take_decode(transforms: list[Any]) -> dict[str, Any] | None:
    """Remove ``DecodeImage`` from the head of ``transforms``; its options, None if it is not there."""
    if transforms and "DecodeImage" in transforms[0]:
        return dict(transforms.pop(0)["DecodeImage"] or {})
    return None


def _as_decoded(image: np.ndarray, options: Mapping[str, Any] | None) -> np.ndarray:
    """The image (blue-green-red) as ``DecodeImage`` with these options would give it."""
    if options is None:
        return image
    if options.get("img_mode", "RGB") == "RGB":
        image = image[:, :, ::-1]
    return np.ascontiguousarray(image.transpose(2, 0, 1) if options.get("channel_first") else image)
