"""An exported folder may come from somebody else: `verify` reads it within limits too."""

from __future__ import annotations

from pathlib import Path

from error_codes import raises_code

from ppocr_ext.errors import DataError
from ppocr_ext.export.verify import _settings
from ppocr_ext.limits import MAX_DICTIONARY_BYTES

START = "PreProcess: {transform_ops: [{RecResizeImg: {image_shape: [3, 32, 128]}}]}\n"


def test_aliases_in_the_dictionary_do_not_multiply(tmp_path: Path) -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    bomb += "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12))
    (tmp_path / "inference.yml").write_text(f"{bomb}{START}PostProcess: {{character_dict: ['0', *a11]}}\n")
    with raises_code(DataError, "bad_content", "inference.yml"):
        _settings(tmp_path / "inference.yml")


def test_one_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "inference.yml").open("wb") as stream:
        stream.truncate(MAX_DICTIONARY_BYTES + 1)
    with raises_code(DataError, "bad_content", f"{MAX_DICTIONARY_BYTES:,}"):
        _settings(tmp_path / "inference.yml")
