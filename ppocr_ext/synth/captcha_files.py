"""Folders of CAPTCHAs with label files and a dictionary, as PaddleOCR reads them; no Paddle."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ppocr_ext.synth.captcha import CaptchaOptions, CaptchaSource
from ppocr_ext.synth.dataset_folder import DatasetFolder, ImageFormat, Made, check_counts, make_folder


@dataclass(frozen=True)
class CaptchaFolder:
    """What a folder of CAPTCHAs holds.

    Args:
        options: what to draw.
        train, val: images of each split. A split is a stream of its own: none of its images is in the other.
        seed: of the images.
        image_format: ``"png"`` or ``"jpg"`` (quality 95).
    """

    options: CaptchaOptions
    train: int
    val: int
    seed: int
    image_format: ImageFormat = "png"


def make_captcha_folder(out: str | Path, wanted: CaptchaFolder, processes: int = 1) -> Made:
    """Draw what is missing of a folder of CAPTCHAs, see :func:`ppocr_ext.synth.dataset_folder.make_folder`.

    Raises:
        DataError: the parameters cannot be drawn, or ``out`` holds something else.
        OSError: a file cannot be written.
    """
    check_counts(wanted.train, wanted.val, processes)
    options = wanted.options
    source = CaptchaSource(options, wanted.seed)
    counts = (wanted.train, wanted.val, wanted.seed, wanted.image_format)
    return make_folder(
        out, DatasetFolder("captcha", options.to_json(), options.characters, *counts), source, processes
    )
