"""A config, its bases and its dictionary have a size that people write."""

from __future__ import annotations

from pathlib import Path

import pytest
from error_codes import raises_code

from ppocr_ext.charset import Charset
from ppocr_ext.config import load
from ppocr_ext.errors import CharsetError, ConfigError, DataError
from ppocr_ext.export.verify import _settings
from ppocr_ext.limits import MAX_CONFIG_BYTES, MAX_CONFIG_FILES, MAX_DICTIONARY_BYTES, MAX_DICTIONARY_LINES


def test_a_config_that_is_too_large_is_refused_and_the_largest_is_read(tmp_path: Path) -> None:
    file = tmp_path / "my.yml"
    start = "Global:\n  epoch_num: 3\n#"
    file.write_text(start + "x" * (MAX_CONFIG_BYTES - len(start)))
    assert load(file).at("Global.epoch_num") == 3
    file.write_text(start + "x" * (MAX_CONFIG_BYTES - len(start) + 1))
    with raises_code(ConfigError, "unreadable_file", file, f"{MAX_CONFIG_BYTES:,}"):
        load(file)


def test_aliases_do_not_multiply(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    (tmp_path / "my.yml").write_text("\n".join(lines))
    with raises_code(ConfigError, "too_many_values", "100,000", "my.yml:1"):
        load(tmp_path / "my.yml")


def test_bases_do_not_multiply(tmp_path: Path) -> None:
    (tmp_path / "0.yml").write_text("Global: {epoch_num: 3}\n")
    for number in range(1, 31):
        (tmp_path / f"{number}.yml").write_text(f"_BASE_: [{number - 1}.yml, {number - 1}.yml]\n")
    assert load(tmp_path / "5.yml").at("Global.epoch_num") == 3
    with raises_code(ConfigError, "too_many_files", MAX_CONFIG_FILES):
        load(tmp_path / "30.yml")


def test_a_dictionary_has_at_most_the_lines_of_unicode(tmp_path: Path) -> None:
    file = tmp_path / "dict.txt"
    characters = [
        chr(code)
        for code in range(0x3400, 0x3400 + MAX_DICTIONARY_LINES + 0x801)
        if not 0xD800 <= code < 0xE000
    ]
    file.write_text("\n".join(characters[:MAX_DICTIONARY_LINES]), encoding="utf-8")
    assert len(Charset.from_file(file).characters) == MAX_DICTIONARY_LINES
    file.write_text("\n".join(characters[: MAX_DICTIONARY_LINES + 1]), encoding="utf-8")
    with raises_code(CharsetError, "too_many_lines", file, f"{MAX_DICTIONARY_LINES:,}"):
        Charset.from_file(file)


@pytest.mark.parametrize("lenient", [False, True])
def test_a_dictionary_that_is_too_large_is_not_read(tmp_path: Path, lenient: bool) -> None:
    file = tmp_path / "dict.txt"
    with file.open("wb") as stream:
        stream.write(b"a\n" * 10)
        stream.truncate(MAX_DICTIONARY_BYTES + 1)
    with raises_code(CharsetError, "unreadable_file", file, f"{MAX_DICTIONARY_BYTES:,}"):
        Charset.from_file(file, lenient=lenient)


# An exported folder may come from somebody else: `verify` reads it within limits too

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
