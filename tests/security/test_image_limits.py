"""An image states how large it is; one that is too large is refused before it is decoded."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest
from error_codes import raises_code

from ppocr_ext.charset import Charset
from ppocr_ext.cli.main import main
from ppocr_ext.data.image_check import content_issue, read_image_file
from ppocr_ext.data.preflight import check_label_files
from ppocr_ext.data.sample_rules import SampleRules
from ppocr_ext.errors import DataError
from ppocr_ext.recognition.images import read_image
from ppocr_ext.report.page_samples import SampleImages

HEIGHT, WIDTH = 64, 96
FORMATS = ["png", "jpg", "bmp", "webp", "tiff", "gif", "jp2", "ppm"]


def png_chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def huge_png(side: int = 32_000) -> bytes:
    """A whole PNG of one colour: 130 KB that take 3 GB when they are decoded."""
    packer = zlib.compressobj(9)
    row = b"\0" * (side // 8 + 1)
    rows = b"".join(packer.compress(row * 100) for _ in range(side // 100)) + packer.flush()
    header = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    chunks = png_chunk(b"IHDR", header) + png_chunk(b"IDAT", rows) + png_chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


def encoded(form: str) -> bytes:
    pixels = np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
    return bytes(cv2.imencode(f".{form}", pixels)[1])


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("how", ["header", "decode"])
def test_the_size_is_read_in_each_format(tmp_path: Path, form: str, how: str) -> None:
    content, file = encoded(form), tmp_path / f"image.{form}"
    file.write_bytes(content)
    assert cv2.imdecode(np.frombuffer(content, np.uint8), 1).shape[:2] == (HEIGHT, WIDTH)
    for most, reason in ((HEIGHT * WIDTH, None), (HEIGHT * WIDTH - 1, "too_many_pixels")):
        for issue in (
            content_issue(read_image_file(file, most), "image", how, most),
            content_issue(content, "image", how, most),
        ):  # type: ignore[arg-type]
            assert (issue and issue.reason) == reason
            assert issue is None or f"{HEIGHT * WIDTH - 1:,}" in issue.detail


@pytest.mark.parametrize("kind", ["lossy", "lossless", "extended"])
def test_each_kind_of_webp(kind: str) -> None:
    from io import BytesIO

    from PIL import Image

    stream = BytesIO()
    picture = Image.new("RGBA" if kind == "extended" else "RGB", (WIDTH, HEIGHT), (200, 100, 50, 9))
    picture.save(stream, "webp", lossless=kind == "lossless", exif=b"Exif\0\0" if kind == "extended" else b"")
    content = stream.getvalue()
    assert content[12:16] == {"lossy": b"VP8 ", "lossless": b"VP8L", "extended": b"VP8X"}[kind]
    assert content_issue(content, "image", "header", HEIGHT * WIDTH) is None
    issue = content_issue(content, "image", "header", HEIGHT * WIDTH - 1)
    assert issue and f"{WIDTH} × {HEIGHT}" in issue.detail


@pytest.mark.parametrize(
    "between", [b"", b"\xff\xe1\xff\xff" + b"\xff\xc0" * 32_766 + b"\0" * 1, b"\xff\xff\xff", b"\0\1\2"]
)
def test_the_size_of_a_jpeg_comes_after_other_segments(between: bytes) -> None:
    content = encoded("jpg")
    content = content[:2] + between + content[2:]
    if cv2.imdecode(np.frombuffer(content, np.uint8), 1) is not None:  # as its decoder reads it
        assert content_issue(content, "image", "header") is None
        issue = content_issue(content, "image", "header", 1)
        assert issue and f"{WIDTH} × {HEIGHT}" in issue.detail


def test_garbage_in_a_jpeg_does_not_take_long() -> None:
    for filler in (b"\xff", b"\0", b"\xff\xe0\0\2", b"\xff\xd0"):
        content = b"\xff\xd8\xff\xe0\0\2" + filler * (4_000_000 // len(filler)) + b"\xff\xd9"
        issue = content_issue(content, "x", "header")
        assert issue and issue.reason == "broken_image"


def test_a_huge_image_is_refused_without_decoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    huge = huge_png()
    assert len(huge) < 1_000_000
    (tmp_path / "huge.png").write_bytes(huge)
    monkeypatch.setattr(cv2, "imdecode", lambda *_: pytest.fail("decoded"))
    (tmp_path / "list.txt").write_text("huge.png\t1\n")
    for how in ("header", "decode"):
        rules = SampleRules(Charset(("1",)), 5, image_check=how)  # type: ignore[arg-type]
        report = check_label_files(tmp_path / "list.txt", tmp_path, rules)
        assert report.counts == {"too_many_pixels": 1}
        assert "1,024,000,000 pixels" in report.unusable_samples[0].detail
    with raises_code(DataError, "too_many_pixels", "50,000,000", "huge.png"):
        read_image(tmp_path / "huge.png")
    with raises_code(DataError, "too_many_pixels", "50,000,000"):
        read_image(huge)
    assert SampleImages(tmp_path).png("huge.png") == ""


def test_a_file_of_gigabytes_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "large.png"
    with file.open("wb") as stream:
        stream.write(encoded("png")[:64])
        stream.truncate(1 << 40)  # of zeros, which take no space
    issue = content_issue(read_image_file(file), "image", "decode")
    assert issue and issue.reason == "too_many_pixels"
    with raises_code(DataError, "too_many_pixels", file):
        read_image(file)


@pytest.mark.parametrize(("most", "written"), [(HEIGHT * WIDTH, 1), (HEIGHT * WIDTH - 1, 0)])
def test_make_lmdb_has_the_limit_as_an_option(
    most: int, written: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.png").write_bytes(encoded("png"))
    (tmp_path / "list.txt").write_text("a.png\t1\n")
    places = ["--label-files", tmp_path / "list.txt", "--data-dir", tmp_path, "--out", tmp_path / "out"]
    code = main(["make-lmdb", *map(str, places), "--max-image-pixels", str(most)])
    shown = capsys.readouterr()
    assert code == (0 if written else 2)
    assert written or "too_many_pixels" in shown.err and "--max-image-pixels" in shown.err


# Images are those of data_dir: neither `..` nor a symbolic link leads out of it


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """`data/a.png`, `data/sub/b.png`, `secret.png`, and links between them."""
    data = tmp_path / "data"
    (data / "sub").mkdir(parents=True)
    for file in (data / "a.png", data / "sub" / "b.png", tmp_path / "secret.png"):
        cv2.imwrite(str(file), np.full((8, 24, 3), 200, np.uint8))
    (data / "out.png").symlink_to("../secret.png")
    (data / "in.png").symlink_to("sub/b.png")
    (data / "outside").symlink_to("..")
    (data / "inside").symlink_to("sub")
    (data / "loop").symlink_to("loop")
    return data


IMAGES = {
    "a.png": None,
    "sub/b.png": None,
    "in.png": None,
    "inside/b.png": None,
    "sub/../a.png": None,
    "./a.png": None,
    "out.png": "outside_data_dir",
    "outside/secret.png": "outside_data_dir",
    "outside/data/a.png": None,
    "outside/data/out.png": "outside_data_dir",
    "../secret.png": "outside_data_dir",
    "inside/../../secret.png": "outside_data_dir",
    "inside/../a.png": None,
    "/etc/hostname": "outside_data_dir",
    "loop": "broken_image",
    "gone.png": "missing_image",
    "x" * 5000: "broken_image",
    "a\0b": "broken_image",
}


def reasons(data: Path, names: list[str], allowed: bool) -> dict[str, str]:
    (data / "list.txt").write_text("".join(f"{name}\t1\n" for name in names))
    rules = SampleRules(Charset(("1",)), 5, allow_outside_data_dir=allowed)
    report = check_label_files(data / "list.txt", data, rules)
    return {names[sample.line - 1]: sample.reason for sample in report.unusable_samples}


def test_each_path_is_followed_to_its_file(data: Path) -> None:
    expected = {name: reason for name, reason in IMAGES.items() if reason}
    assert reasons(data, list(IMAGES), allowed=False) == expected
    for name, reason in IMAGES.items():  # an independent reference
        if reason in (None, "outside_data_dir"):
            assert (data / name).resolve().is_relative_to(data.resolve()) == (reason is None)


def test_links_out_are_read_if_allowed(data: Path) -> None:
    links = [
        name for name, reason in IMAGES.items() if reason == "outside_data_dir" and name != "/etc/hostname"
    ]
    assert reasons(data, links, allowed=True) == {}


def test_a_data_dir_that_is_a_link_itself_is_followed(data: Path) -> None:
    link = data.parent / "link"
    link.symlink_to(data)
    assert reasons(link, ["a.png", "inside/b.png", "out.png"], allowed=False) == {
        "out.png": "outside_data_dir"
    }
