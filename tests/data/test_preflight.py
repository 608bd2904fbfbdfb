"""PreflightReport: the rules of PaddleOCR's encoders and decoder, exact counts, usable copies."""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import fields, replace

import cv2
import numpy as np
import pytest
from error_codes import raises_code

from ppocr_ext.charset import Charset
from ppocr_ext.data.preflight import check_label_files
from ppocr_ext.data.sample_rules import FrameLimit, SampleRules
from ppocr_ext.data.unusable_limit import UnusableLimit, limit_errors
from ppocr_ext.errors import DataError
from ppocr_ext.host.locate import locate_host

DIGITS = Charset(tuple("0123456789"))


@pytest.fixture
def folder(tmp_path):
    """A folder with one good image, ``ok.png``."""
    image = np.full((8, 24, 3), 200, np.uint8)
    image[:, 5:9] = 3
    for name in ("ok.png", "ok.jpg", "ok.bmp", "ok.webp", "ok.tiff"):
        assert cv2.imwrite(str(tmp_path / name), image)
    return tmp_path


def check(files, folder, charset, max_text_length, **options):
    """Check label files by the rules among ``options``."""
    if options.pop("unknown_char", "") == "drop_char":
        charset = replace(charset, drops_unknown=True)
    names = {field.name for field in fields(SampleRules)} & set(options)
    rules = SampleRules(charset, max_text_length, **{name: options.pop(name) for name in names})
    return check_label_files(files, folder, rules, **options)


def write(folder, *lines, name="list.txt"):
    file = folder / name
    file.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return file


def reasons(result):
    return [(f.line, f.reason) for f in result.unusable_samples]


def test_each_reason_with_its_line(folder):
    (folder / "text.png").write_text("no image at all")
    (folder / "empty.png").touch()
    (folder / "cut.png").write_bytes((folder / "ok.png").read_bytes()[:-5])
    file = write(
        folder,
        "ok.png\t1",
        "ok.png 2",
        "ok.png\t",
        "ok.png\t123456",
        "ok.png\t1x2",
        "none.png\t1",
        "text.png\t1",
        "empty.png\t1",
        "cut.png\t1",
        "ok.png\t111",
        ".\t1",
    )
    result = check([file], folder, DIGITS, 5, frames=FrameLimit(4))
    assert reasons(result) == [
        (2, "bad_format"),
        (3, "empty_label"),
        (4, "too_long"),
        (5, "unknown_char"),
        (6, "missing_image"),
        (7, "broken_image"),
        (8, "broken_image"),
        (9, "broken_image"),
        (10, "too_long_for_frames"),  # 3 characters and 2 repeats need 5 frames
        (11, "broken_image"),
    ]
    assert result.usable == 1
    assert (result.longest, result.longest_at) == (6, (file, 4))
    assert "'x' (U+0078)" in result.unusable_samples[3].detail


@pytest.mark.parametrize("name", ["ok.png", "ok.jpg", "ok.bmp", "ok.webp", "ok.tiff"])
@pytest.mark.parametrize("how", ["header", "decode"])
def test_images_that_opencv_reads_are_good_and_halves_of_them_are_not(folder, name, how):
    content = (folder / name).read_bytes()
    (folder / "half").write_bytes(content[: len(content) // 2])
    (folder / "longer").write_bytes(content + b"\0" * 20)  # what some cameras append
    readable = cv2.imdecode(np.frombuffer(content + b"\0" * 20, np.uint8), 1) is not None
    file = write(folder, f"{name}\t1", "half\t1", "longer\t1")
    expected = [(2, "broken_image")] + ([] if readable else [(3, "broken_image")])
    assert reasons(check(file, folder, DIGITS, 25, image_check=how)) == expected


def test_a_missing_image_names_the_file_in_its_place(folder):
    (folder / "in").mkdir()
    places = ["in\\a.png", "in/a.jpg", "in/a.PNG", "in/a", "..\\..\\a.png", "in/b.png"]
    for place in ("in/a.png", "../../a.png"):
        (folder / place).write_bytes((folder / "ok.png").read_bytes())
    result = check(write(folder, *(f"{place}\t1" for place in places)), folder / ".", DIGITS, 25)
    named = [f"there is {folder}/in/a.png:" in each.detail for each in result.unusable_samples]
    assert named == [True] * 4 + [False] * 2 and "but" not in result.unusable_samples[4].detail


def test_counts_are_exact_and_examples_bounded(folder):
    file = write(folder, "ok.png\t1", *["ok.png\tx"] * 5000, *["ok.png\t"] * 3)
    result = check(file, folder, DIGITS, 25, examples=4)
    assert result.counts == {"unknown_char": 5000, "empty_label": 3}
    assert len(result.unusable_samples) == 7
    assert result.unusable_samples[0].line == 2
    summary = result.summary()
    assert (
        "1 of 5,004" in summary and "5,000 unknown_char, 3 empty_label" in summary and f"{file}:2" in summary
    )


def test_copies_keep_one_file_for_each_source(folder):
    first = write(folder, "ok.png\t1", "ok.png\tx", "ok.jpg\t2\t24\t8", name="a.txt")
    second = write(folder, "ok.png\t3", name="b.txt")
    third = write(folder, "ok.png\tx", name="c.txt")
    result = check([first, second, third], folder, DIGITS, 25)
    copies = result.write_usable(folder / "copies")
    assert [copy.read_text() for copy in copies] == ["ok.png\t1\nok.jpg\t2\t24\t8\n", "ok.png\t3\n", ""]
    assert copies[1] == second
    assert first.read_text().count("\n") == 3
    assert result.write_usable(folder / "copies") == copies  # again, over the first ones


def test_files_of_one_name_do_not_overwrite_each_other(folder):
    files = []
    for sub, label in (("x", "1"), ("y", "2")):
        (folder / sub).mkdir()
        files.append(write(folder / sub, f"ok.png\t{label}", "none.png\t1"))
    copies = check(files, folder, DIGITS, 25).write_usable(folder / "copies")
    assert [copy.read_text() for copy in copies] == ["ok.png\t1\n", "ok.png\t2\n"]


def test_windows_line_ends_are_usable_and_copied_without(folder):
    file = folder / "list.txt"
    file.write_bytes(b"\xef\xbb\xbfok.png\t12\r\nok.jpg\t3\r\n")
    result = check(file, folder, DIGITS, 2)
    assert result.usable == 2
    assert result.write_usable(folder / "copies")[0].read_bytes() == b"ok.png\t12\nok.jpg\t3\n"


@pytest.mark.parametrize("change", ["ok.png\t1\nok.png\tx\nok.png\t1\n", "ok.png\t1\n"])
def test_a_file_that_changed_meanwhile_is_refused(folder, change):
    file = write(folder, "ok.png\t1", "ok.png\tx")
    result = check(file, folder, DIGITS, 25)
    file.write_text(change)
    with raises_code(DataError, "file_changed"):
        result.write_usable(folder / "copies")
    assert list((folder / "copies").iterdir()) == []


@pytest.mark.parametrize(("gtc", "enough"), [(None, 31), ("nrtr", 33), ("sar", 33)])
def test_without_a_usable_sample_the_reason_and_the_fix_are_named(folder, gtc, enough):
    file = write(folder, *[f"ok.png\t{'1' * 31}"] * 3, "none.png\t1")
    result = check(file, folder, DIGITS, 25, gtc=gtc)
    (errors,) = limit_errors({"Train": result}, UnusableLimit(1.0))
    for part in (
        f"{file}",
        "3 too_long, 1 missing_image",
        "31 characters",
        f"`Global.max_text_length: {enough}`",
    ):
        assert part in errors
    assert check(file, folder, DIGITS, enough, gtc=gtc).usable == 3


@pytest.mark.parametrize(("max_text_length", "unknown_char"), [(25, "drop_line"), (82, "drop_char")])
def test_all_limits_of_length_are_named_at_once(folder, max_text_length, unknown_char):
    long, demanding = "0123456789" * 8, "0011223344" * 7  # 80 and 70 + 35 frames
    file = write(folder, "ok.png\t1", f"ok.png\t{long}", f"ok.png\t{demanding}", *["ok.png\t12"] * 3)
    options = {"gtc": "nrtr", "unknown_char": unknown_char}
    result = check(file, folder, DIGITS, max_text_length, frames=FrameLimit(40, width=320), **options)
    assert (result.most_frames, result.most_frames_at) == (105, (file, 3))
    assert result.to_json()["most_frames"] == {"needed": 105, "of": 40, "at": {"file": str(file), "line": 3}}
    errors = limit_errors({"Train": result}, UnusableLimit(0.1))[0]
    assert ("`Global.max_text_length: 82`" in errors) == (max_text_length < 82)
    for part in (f"{file}:3", "105 frames", "40", "2.63 times", "864 instead of 320"):
        assert part in errors
    assert errors.count("max_text_length: 82") <= 1
    assert check(file, folder, DIGITS, 82, frames=FrameLimit(864 // 8), **options).usable == 6


def test_the_frames_of_a_label_are_those_of_its_characters(folder):
    default, dropped = Charset.default(), write(folder, "ok.png\t1x1x1")
    assert check(write(folder, "ok.png\taAa", name="b.txt"), folder, default, 25).most_frames == 5
    assert check(dropped, folder, DIGITS, 25, unknown_char="drop_char").most_frames == 5
    assert check(dropped, folder, DIGITS, 25).most_frames == 5


def test_labels_that_lose_characters_are_counted(folder):
    file = write(folder, "ok.png\t1x1", "ok.png\t11", "ok.png\t2xy", "ok.png\tA1")
    result = check(file, folder, Charset(("1", "2", "a")), 25, unknown_char="drop_char")
    assert (result.mapped, result.usable) == (
        3,
        4,
    ) and "3 with characters that are dropped" in result.summary()
    clean = check(write(folder, "ok.png\t12", name="b.txt"), folder, DIGITS, 25, unknown_char="drop_char")
    assert clean.mapped == 0 and clean.summary() == "1 samples, all usable"


@pytest.mark.parametrize(
    ("labels", "named", "counted"),
    [("QXghL gh Qh", True, (2, "QXghL")), ("#1 gh Qg", True, (1, "Qg")), ("#1 #2 Q# Qg", False, (1, "Qg"))],
)
def test_a_dictionary_without_the_other_case_is_named_before_letters_are_dropped(
    folder, labels, named, counted
):
    file = write(folder, *(f"ok.png\t{label}" for label in labels.split()))
    charset = Charset(tuple("qxghl"))
    result = check(file, folder, charset, 25)
    errors = limit_errors({"Train": result}, UnusableLimit(0.1))[0]
    assert ("other case" in errors) == named
    assert ("`Global.unknown_char: drop_char` keeps" in errors) == (not named)
    assert (
        check(file, folder, charset, 25, unknown_char="drop_char").other_case == counted == result.other_case
    )


@pytest.fixture(scope="module")
def encoders():
    """PaddleOCR's own label encoders."""
    root = str(locate_host().root)
    if root not in sys.path:
        sys.path.append(root)
    from ppocr.data.imaug import label_ops

    return label_ops


@pytest.mark.parametrize("gtc", [None, "nrtr", "sar"])
@pytest.mark.parametrize("unknown_char", ["drop_char", "drop_line"])
@pytest.mark.parametrize("use_space", [False, True])
def test_the_usable_samples_are_those_of_paddleocrs_encoders(encoders, folder, gtc, unknown_char, use_space):
    dictionary = folder / "dict.txt"
    dictionary.write_text("a\nb\nc\n")
    options = {"max_text_length": 6, "character_dict_path": str(dictionary), "use_space_char": use_space}
    encode = {
        None: lambda: encoders.CTCLabelEncode(**options),
        "nrtr": lambda: encoders.MultiLabelEncode(gtc_encode="NRTRLabelEncode", **options),
        "sar": lambda: encoders.MultiLabelEncode(gtc_encode=None, **options),
    }[gtc]()
    rng = random.Random(3)
    labels = [""] + ["".join(rng.choices("abc #", k=rng.randint(1, 8))) for _ in range(150)]
    file = write(folder, *(f"ok.png\t{label}" for label in labels))
    charset = Charset.from_file(dictionary, use_space)
    result = check(file, folder, charset, 6, gtc=gtc, unknown_char=unknown_char)
    for number, label in enumerate(labels, start=1):
        taken = encode({"label": label, "image": None}) is not None
        if unknown_char == "drop_line":
            taken = taken and not charset.unknown(label)
        assert result.files[0].lines[number - 1] == taken, label


def test_paddle_is_not_imported():
    code = "import sys, ppocr_ext.data.preflight; print('paddle' in sys.modules, 'cv2' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


@pytest.mark.parametrize(
    ("bad", "share", "strict", "is_error"),
    [(1, 0.1, False, False), (2, 0.1, False, True), (2, 0.2, False, False), (9, 1.0, False, False)]
    + [(10, 1.0, False, True), (1, 1.0, True, True), (0, 0.0, True, False), (0, 0.0, False, False)],
)
def test_how_many_are_allowed(folder, bad, share, strict, is_error):
    file = write(folder, *["ok.png\tx"] * bad, *["ok.png\t1"] * (10 - bad))
    result = check(file, folder, DIGITS, 25)
    errors = limit_errors({"Train": result}, UnusableLimit(share, strict))
    assert bool(errors) == is_error
    if is_error:
        assert f"{file}:1" in errors[0]
    if is_error and not strict and bad < 10:
        assert errors[-1].endswith(f"-o Global.max_unusable={bad / 10:g}.")


def test_strict_names_every_line_up_to_a_number(folder):
    file = write(folder, "ok.png\t1", *["ok.png\tx"] * 25)
    errors, _ = limit_errors(
        {"Eval": check(file, folder, DIGITS, 25, examples=40)}, UnusableLimit(strict=True)
    )
    assert all(f"{file}:{number}: unknown_char" in errors for number in range(2, 22))
    assert "5 more" in errors.splitlines()[-1]


def details(result):
    return [(f.reason, f.detail) for f in result.unusable_samples]


@pytest.mark.parametrize("characters", ["0123456789", '0123456789"'])
def test_columns_in_quotes_are_called_so(folder, characters):
    file = write(folder, '"ok.png"\t"12"', 'ok.png\t"12"x', 'ok.png\t"12\t x"')
    first, second, *cut = details(check(file, folder, Charset(tuple(characters)), 25))
    assert first[0] == ("missing_image" if '"' in characters else "unknown_char")
    assert ("in quotes" if '"' not in characters else f"there is {folder}/ok.png") in first[1]
    assert "in quotes" not in second[1]
    assert all("in quotes" in detail for _, detail in cut) and len(cut) == ('"' not in characters)


def test_the_names_of_columns_are_not_an_image(folder):
    file = write(folder, "image\t12", "ok.png\t12", "image\t12", "image.png\t12")
    missing = details(check(file, folder, Charset(tuple("12")), 25))
    assert [(reason, "is a header" in detail) for reason, detail in missing] == [
        ("missing_image", True),
        ("missing_image", False),
        ("missing_image", False),
    ]
    assert (
        "header" not in details(check(write(folder, "gone.png\t12"), folder, Charset(tuple("12")), 25))[0][1]
    )


def test_a_path_written_on_windows_names_the_file_that_is_there(folder):
    (folder / "img").mkdir()
    (folder / "ok.png").rename(folder / "img" / "ok.png")
    file = write(folder, "img\\ok.png\t1", "img\\no.png\t1", "..\\list.txt\t1", "img\\..\\list.txt\t1")
    found = details(check(file, folder, DIGITS, 25))
    assert [reason for reason, _ in found] == ["missing_image"] * 4
    assert f"{folder}/img/ok.png" in found[0][1]
    assert not any("there is /" in detail for _, detail in found[1:])


def test_in_evaluation_a_label_that_does_not_fit_stays_and_counts(folder):
    file = write(folder, "ok.png\t123456", "ok.png\t1122", *["ok.png\t12"] * 8)
    result = check(file, folder, DIGITS, 25, frames=FrameLimit(5, required=False))
    assert (result.usable, result.unusable_count, result.misfits, result.problem_count) == (10, 0, 2, 2)
    assert (result.misfit_examples[0].line, result.misfit_examples[0].reason) == (1, "too_long_for_frames")
    assert limit_errors({"Eval": result}, UnusableLimit(0.2)) == []
    errors = limit_errors({"Eval": result}, UnusableLimit(0.1))
    assert f"{file}:1: too_long_for_frames" in errors[0] and "-o Global.max_unusable=0.2" in errors[-1]
    strict = limit_errors({"Eval": result}, UnusableLimit(strict=True))[0]
    assert all(f"{file}:{line}: too_long_for_frames" in strict for line in (1, 2))
    assert [f["line"] for f in result.to_json()["misfit_examples"]] == [1, 2]


def test_under_ds_width_each_line_has_the_frames_of_its_ratio(folder):
    limit = FrameLimit(4, by_ratio={1: 4, 2: 8, 3: 12})
    lines = ["ok.png\t12345\t48\t48", "ok.png\t12345\t96\t48", "ok.png\t123456789012\t9999\t48"]
    result = check(write(folder, *lines), folder, DIGITS, 25, frames=limit, ds_width=True)
    assert (result.usable, [f.line for f in result.unusable_samples]) == (2, [1])


def test_a_check_that_had_time_for_all_lines_was_not_stopped(folder):
    result = check(write(folder, *["ok.png\t1"] * 10), folder, DIGITS, 25, seconds=0.0)
    assert (result.total, result.stopped) == (10, False)
    result = check(write(folder, *["ok.png\t1"] * 5000), folder, DIGITS, 25, seconds=0.0)
    assert (result.total, result.stopped) == (2048, True)
