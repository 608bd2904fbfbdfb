"""The two sizes: ``tiny`` (the quickstart's networks) and ``full`` (SVTRv2 teacher, RepSVTR student)."""

from __future__ import annotations

from ppocr_ext.charset import Charset
from ppocr_ext.config import Config, load, with_class_counts
from ppocr_ext.errors import HostError
from ppocr_ext.host import open_host
from ppocr_ext.io.resources import config_path

SIZES = {"tiny": ("quickstart/distill.yml", (32, 128)), "full": ("svtrv2/distill.yml", (48, 320))}


def charset_of(size: str) -> Charset:
    """Return ten digits, or PaddleOCR's 6,623 Chinese characters and the space."""
    if size == "tiny":
        return Charset(characters=tuple("0123456789"), use_space=False, path=None)
    path = open_host().find_file("ppocr/utils/ppocr_keys_v1.txt")
    if path is None:
        raise HostError("PaddleOCR has no ppocr/utils/ppocr_keys_v1.txt.", code="missing_file")
    return Charset.from_file(path, use_space_char=True)


def networks_of(size: str) -> tuple[Config, Charset]:
    """Return the config of a distillation with its class counts, and its dictionary."""
    charset = charset_of(size)
    return with_class_counts(load([config_path(SIZES[size][0])]), charset), charset
