import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ppocr_ext.charset import Charset
from ppocr_ext.errors import CharsetError


def write(folder: Path, data: bytes | str) -> Path:
    path = folder / "dict.txt"
    path.write_bytes(data.encode("utf-8") if isinstance(data, str) else data)
    return path


def paddleocr_folder() -> Path:
    spec = importlib.util.find_spec("paddleocr")
    assert spec and spec.origin, "paddleocr is a requirement of the package"
    return Path(spec.origin).parent


@pytest.mark.parametrize(("use_space", "n"), [(False, 4), (True, 5)])
def test_class_counts_follow_from_the_characters(tmp_path, use_space, n):
    charset = Charset.from_file(write(tmp_path, "a\nb\nc\n"), use_space)
    assert (charset.ctc_classes, charset.sar_classes, charset.nrtr_classes) == (n, n + 2, n + 3)
    assert (charset.sar_padding_id, charset.nrtr_rows) == (n + 1, n + 4)
    assert len(charset.ctc_symbols) == charset.ctc_classes
    assert len(charset.nrtr_symbols) == charset.nrtr_classes
    assert charset.ctc_symbols[charset.blank_id] == "blank"
    assert charset.nrtr_symbols[:5] == ("blank", "<unk>", "<s>", "</s>", "a")
    assert (charset.characters[-1] == " ") is use_space


def test_ids_and_unknown_characters(tmp_path):
    charset = Charset.from_file(write(tmp_path, "a\nb\n未\n"))
    assert charset.ids("ab未a") == [1, 2, 3, 1]
    assert charset.ids("") == []
    assert charset.unknown("a末x未x") == ["末", "x"]
    with pytest.raises(CharsetError) as error:
        charset.ids("未末 末")
    assert error.value.code == "unknown_char"
    assert all(fact in str(error.value) for fact in ("dict.txt", "'末' (U+672B), ' ' ", "use_space_char"))


def test_default_characters_fold_case_and_have_no_space():
    charset = Charset.default()
    assert charset.ctc_classes == 37
    assert charset.ids("aA0") == [11, 11, 1]
    assert charset.unknown("Az !") == [" ", "!"]


def test_all_flaws_come_in_one_message(tmp_path):
    with pytest.raises(CharsetError) as caught:
        Charset.from_file(write(tmp_path, "\ufeffa\nb\n\na\nc\rd\n"))
    assert caught.value.code == "bad_dictionary"
    assert [number for number in range(1, 7) if f"\n  line {number}: " in str(caught.value)] == [1, 3, 4, 5]


@pytest.mark.parametrize(
    ("data", "code", "facts"),
    [
        (b"", "empty_file", ()),
        (b"\n\r\n", "empty_file", ()),
        ("a\n中\n".encode("gbk"), "not_utf8", ("dict.txt:2: ", "0xd6 at offset 2")),
        ("a\nb\n".encode("utf-16"), "not_utf8", ("dict.txt:1: ", "0xff at offset 0")),
    ],
)
def test_unreadable_files(tmp_path, data, code, facts):
    with pytest.raises(CharsetError) as error:
        Charset.from_file(write(tmp_path, data))
    assert error.value.code == code and all(fact in str(error.value) for fact in facts)


def test_missing_file_and_folder(tmp_path):
    for path in (tmp_path / "no_dict.txt", tmp_path):
        with pytest.raises(CharsetError) as error:
            Charset.from_file(path)
        assert error.value.code == "unreadable_file" and str(error.value).startswith(f"{path}: ")


def test_lenient_reading_keeps_the_classes_a_model_was_trained_with(tmp_path):
    charset = Charset.from_file(write(tmp_path, "a\n\nb\na\n"), lenient=True)
    assert charset.characters == ("a", "", "b", "a")
    assert charset.ids("a") == [4]  # as in PaddleOCR's encoder, where the last line of two wins
    assert [line.split(":")[0] for line in charset.unused_lines] == ["line 2", "line 4"]


def test_longer_lines_are_admitted_and_never_used(tmp_path):
    charset = Charset.from_file(write(tmp_path, "a\nр\u0301\nb \n"), use_space_char=True)
    assert charset.ctc_classes == 5
    assert [line.split(":")[0] for line in charset.unused_lines] == ["line 2", "line 3"]
    assert charset.unknown("b") == ["b"]


def test_space_line_under_use_space_char_is_two_classes(tmp_path):
    # PaddleOCR's en_dict.txt ends with a space and its English configs set use_space_char:
    # 95 lines and 97 classes.
    charset = Charset.from_file(write(tmp_path, "a\n \n"), use_space_char=True)
    assert charset.characters == ("a", " ", " ")
    assert charset.ids(" ") == [3]
    assert charset.line_of_second_space == 2
    for text, use_space in (("a\n \n", False), ("a\nb\n", True), ("a\nb\n", False)):
        assert Charset.from_file(write(tmp_path, text), use_space).line_of_second_space is None


# Dictionaries of PaddleOCR 2.10.0 that no config and no released model names, and what is wrong with them.
FLAWED = {"bn_dict.txt": "line 10: blank", "bm_dict_add.txt": "line 193: blank"}


def test_the_dictionaries_of_paddleocr_load():
    folder = paddleocr_folder() / "ppocr" / "utils"
    paths = [*folder.glob("*dict*.txt"), *folder.glob("*keys*.txt"), *(folder / "dict").glob("*_dict.txt")]
    assert len(paths) > 40
    flawed = {}
    for path in paths:
        lines = path.read_bytes().decode("utf-8").removesuffix("\n").count("\n") + 1
        try:
            assert Charset.from_file(path, use_space_char=True).ctc_classes == lines + 2, path
        except CharsetError as error:
            flawed[path.name] = str(error)
    for name, message in flawed.items():
        assert FLAWED.get(name, "loads") in message
    keys = Charset.from_file(folder / "ppocr_keys_v1.txt", use_space_char=True)
    assert (keys.ctc_classes, keys.nrtr_classes) == (6625, 6628)
    assert Charset.from_file(folder / "en_dict.txt", use_space_char=True).ctc_classes == 97


HOST_SCRIPT = """
import json, sys
sys.path.append(sys.argv[1])  # at the end, as the package itself does
from ppocr.data.imaug.label_ops import CTCLabelEncode
from ppocr.postprocess import build_post_process
result = {}
for path in sys.argv[2:]:
    for space in (False, True):
        options = {"character_dict_path": path or None, "use_space_char": space}
        symbols = {n: build_post_process({"name": n}, options).character
                   for n in ("CTCLabelDecode", "NRTRLabelDecode", "SARLabelDecode")}
        encode = CTCLabelEncode(25, **options)
        result[f"{path}|{space}"] = [symbols, encode.encode("aB 0")]
print("RESULT" + json.dumps(result))
"""


def test_symbols_and_ids_are_those_of_paddleocr(tmp_path):
    """Against the host itself: its decoders' symbols and its encoder's ids (imports PaddleOCR in a process)."""
    folder = paddleocr_folder()
    utils = folder / "ppocr" / "utils"
    paths = [
        "",
        str(utils / "en_dict.txt"),
        str(utils / "ppocr_keys_v1.txt"),
        str(utils / "dict/ru_dict.txt"),
        str(write(tmp_path, "a\n\nB\n0\na\n\r\nab\n")),
    ]
    done = subprocess.run(
        [sys.executable, "-c", HOST_SCRIPT, str(folder), *paths],
        capture_output=True,
        text=True,
        env={**os.environ, "NO_ALBUMENTATIONS_UPDATE": "1", "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    theirs = json.loads(done.stdout.split("RESULT")[1])
    assert len(theirs) == 10
    for key, (symbols, ids) in theirs.items():
        path, space = key.split("|")
        charset = Charset.from_file(path, space == "True", lenient=True) if path else Charset.default()
        assert list(charset.ctc_symbols) == symbols["CTCLabelDecode"], key
        assert list(charset.nrtr_symbols) == symbols["NRTRLabelDecode"], key
        assert charset.sar_classes == len(symbols["SARLabelDecode"]), key
        assert symbols["SARLabelDecode"][charset.sar_padding_id] == "<PAD>", key
        known = "".join(c for c in "aB 0" if not charset.unknown(c))
        assert charset.ids(known) == ids, key
