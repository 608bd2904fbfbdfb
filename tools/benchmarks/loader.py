"""How many images one worker of a loader prepares in a second of CPU time, and what takes that time."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from benchmarks.table import circumstances, report
from ppocr_ext.host import open_host
from ppocr_ext.run.logs import quiet_host
from ppocr_ext.synth.captcha import CaptchaOptions, CaptchaSource
from ppocr_ext.synth.dataset_folder import DatasetFolder, make_folder

DECODE, AUGMENT = "DecodeImage", "RecAug"
# of the files, and of the network: the quickstart's, and full size
_SIZES = (((60, 160), (32, 128)), ((48, 320), (48, 320)))
_FORMATS: tuple[Literal["png", "jpg"], ...] = ("png", "jpg")
_MICRO = 1e6


@dataclass(frozen=True)
class LoaderCost:
    """What one kind of images takes.

    Attributes:
        images: in words.
        seconds: of CPU time for an image, by transform.
    """

    images: str
    seconds: dict[str, float]

    def per_second(self, augment: bool) -> float:
        """Images that a worker prepares, with or without augmentation."""
        return 1.0 / sum(seconds for name, seconds in self.seconds.items() if augment or name != AUGMENT)

    def cells(self) -> list[str]:
        """A row of the table; the last cell is what an image that is decoded already would save at most."""
        others = sum(seconds for name, seconds in self.seconds.items() if name not in (DECODE, AUGMENT))
        times = [self.seconds[DECODE], others, self.seconds[AUGMENT]]
        return [
            self.images,
            *(f"{_MICRO * seconds:,.0f}" for seconds in times),
            *(f"{self.per_second(augment):,.0f}" for augment in (False, True)),
            *(f"{self.seconds[DECODE] * self.per_second(augment):.0%}" for augment in (False, True)),
        ]


@dataclass(frozen=True)
class LoaderCosts:
    """What was measured, and the setting in words."""

    setting: str
    costs: Sequence[LoaderCost]
    agrees: bool = True  # there is nothing to compare

    def to_markdown(self) -> str:
        """A row for each kind of images."""
        head = [
            "images",
            "decode, µs",
            "label, size, …, µs",
            "RecAug, µs",
            "images/s",
            "images/s with RecAug",
        ]
        head += ["decoding, of the time", "with RecAug"]
        return report(self.setting, (head, [each.cells() for each in self.costs]))


def measure_loader(images: int = 500, rounds: int = 3) -> LoaderCosts:
    """Measure the transforms of a training on drawn images, which are in the memory of the system.

    Args:
        images: of each kind.
        rounds: the one that takes least counts, for each transform.
    """
    before = os.getloadavg()[0]
    costs = [
        _measure_kind(file, network, kind, images, rounds) for file, network in _SIZES for kind in _FORMATS
    ]
    return LoaderCosts(f"{images} images, {rounds} rounds, one worker, {circumstances(before)}", costs)


def _measure_kind(
    file: Sequence[int], network: Sequence[int], kind: Literal["png", "jpg"], images: int, rounds: int
) -> LoaderCost:
    """Measure drawn images with ``file``'s height and width, which a network gets with that of ``network``."""
    host = open_host()
    quiet_host(host.logger)
    with tempfile.TemporaryDirectory(prefix="ppocr_ext_") as name:
        folder = Path(name)
        source = CaptchaSource(CaptchaOptions(width=file[1], height=file[0]), 0)
        make_folder(folder, DatasetFolder(source, train=images, val=0, image_format=kind))
        lines = (folder / "train_list.txt").read_text(encoding="utf-8").splitlines()
        transforms: list[dict[str, Any]] = [
            {DECODE: {"img_mode": "BGR", "channel_first": False}},
            {AUGMENT: None},
            {"MultiLabelEncode": {"gtc_encode": "NRTRLabelEncode"}},
            {"RecResizeImg": {"image_shape": [3, *network]}},
            {"KeepKeys": {"keep_keys": ["image", "label_ctc", "label_gtc", "length", "valid_ratio"]}},
        ]
        names = [next(iter(each)) for each in transforms]
        dictionary = {"character_dict_path": str(folder / "dict.txt"), "use_space_char": False}
        operators = host.create_operators(transforms, {**dictionary, "max_text_length": 25})
        samples = [
            (Path(folder, path).read_bytes(), text) for path, text in (line.split("\t") for line in lines)
        ]
    taken = [_seconds(operators, samples) for _ in range(rounds)]
    least = [min(times) / images for times in zip(*taken, strict=True)]
    described = f"{kind.upper()} {file[0]} × {file[1]}, for {network[0]} × {network[1]}"
    return LoaderCost(described, dict(zip(names, least, strict=True)))


def _seconds(operators: Sequence[Any], samples: Sequence[tuple[bytes, str]]) -> list[float]:
    """Return the CPU time of each operator for all samples."""
    seconds = [0.0] * len(operators)
    for image, label in samples:
        data: Any = {"image": image, "label": label}
        for place, operator in enumerate(operators):
            began = time.process_time()
            data = operator(data)
            seconds[place] += time.process_time() - began
    return seconds
