import subprocess
import sys
from pathlib import Path

import pytest
from error_codes import raises_code

from ppocr_ext.charset import Charset
from ppocr_ext.config import Config, load, resolve_charset
from ppocr_ext.errors import CharsetError, ConfigError


def test_resolve_charset(tmp_path):
    path = tmp_path / "dict.txt"
    path.write_text("a\nb\n")
    asked = []

    def find_file(name):
        asked.append(name)
        return path

    config = Config({"Global": {"character_dict_path": "ppocr/utils/x.txt", "use_space_char": True}})
    charset = resolve_charset(config, find_file)
    assert asked == ["ppocr/utils/x.txt"]
    assert charset == Charset(("a", "b", " "), use_space=True) and charset.path == path
    default = resolve_charset(
        Config({"Global": {"character_dict_path": None, "use_space_char": True}}), find_file
    )
    assert default == Charset.default() and len(asked) == 1


def test_resolve_charset_names_what_is_wrong(tmp_path):
    (tmp_path / "a.yml").write_text("Global:\n  character_dict_path: x/y.txt\n  use_space_char: 'no'\n")
    with raises_code(ConfigError, "quoted_value", f"{tmp_path / 'a.yml'}:3"):
        resolve_charset(load(tmp_path / "a.yml"), lambda name: None)
    with pytest.raises(CharsetError) as error:
        resolve_charset(load(tmp_path / "a.yml", ["Global.use_space_char=false"]), lambda name: None)
    assert error.value.code == "missing_file"
    assert all(fact in str(error.value) for fact in (f"{tmp_path / 'a.yml'}:2", "x/y.txt", str(Path.cwd())))
    assert "Did you mean" not in str(error.value)


@pytest.mark.parametrize("name", ["ppocr/utils/dict/ppocrv6_tny_dict.txt", "ppocrv6_tiny_dict.txt"])
def test_a_misspelt_dictionary_names_the_shipped_one(name):
    config = Config({"Global": {"character_dict_path": name, "use_space_char": True}})
    with raises_code(CharsetError, "missing_file", "'ppocr/utils/dict/ppocrv6_tiny_dict.txt'"):
        resolve_charset(config, lambda name: None)


def test_reading_a_config_imports_no_paddle():
    """Every module of the package that stands behind `config` and `charset` starts without Paddle."""
    code = (
        "import sys, ppocr_ext.config, ppocr_ext.charset; "
        "print([m for m in sys.modules if 'paddle' in m.partition('.')[0]])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout.strip() == "[]"
