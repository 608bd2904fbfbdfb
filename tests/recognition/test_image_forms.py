"""Images in the forms that a caller has, and those that places on a command line stand for."""

import shutil

import cv2
import numpy as np
import pytest
from error_codes import raises_code

from ppocr_ext.cli.main import main
from ppocr_ext.errors import DataError
from ppocr_ext.recognition.images import list_images, read_image

RNG = np.random.default_rng(1)
FORMS = {
    "grey": RNG.integers(0, 256, (20, 31), np.uint8),
    "grey-1": RNG.integers(0, 256, (20, 31, 1), np.uint8),
    "colour": RNG.integers(0, 256, (20, 31, 3), np.uint8),
    "alpha": RNG.integers(0, 256, (20, 31, 4), np.uint8),
    "16-bit": RNG.integers(0, 65536, (20, 31, 3), np.uint16),
    "16-bit-grey": RNG.integers(0, 65536, (20, 31), np.uint16),
    "16-bit-alpha": RNG.integers(0, 65536, (20, 31, 4), np.uint16),
}


@pytest.mark.parametrize("form", FORMS)
def test_file_bytes_and_array_give_the_same_pixels(tmp_path, form):
    path = tmp_path / "ein Bild.png"
    content = cv2.imencode(".png", FORMS[form])[1].tobytes()
    path.write_bytes(content)
    expected = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)  # as PaddleOCR decodes
    for source in (path, str(path), content, bytearray(content), memoryview(content), FORMS[form]):
        found = read_image(source)
        assert found.dtype == np.uint8 and found.shape == (20, 31, 3)
        assert np.array_equal(found, expected), type(source)


def test_an_array_is_taken_in_any_layout_of_memory():
    image = FORMS["colour"]
    assert np.array_equal(read_image(np.asfortranarray(image)), image)
    assert np.array_equal(read_image(image[::-1, ::2]), image[::-1, ::2])


def test_a_photo_is_turned_by_its_orientation():
    image = np.zeros((10, 30, 3), np.uint8)
    jpeg = cv2.imencode(".jpg", image)[1].tobytes()
    exif = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0"  # turn by a quarter
    turned = jpeg[:2] + b"\xff\xe1" + (len(exif) + 2).to_bytes(2, "big") + exif + jpeg[2:]
    assert read_image(turned).shape == (30, 10, 3)


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("nowhere/a.png", "missing_image"),
        (".", "broken_image"),
        ("a\0b.png", "broken_image"),
        (b"", "broken_image"),
        (b"not an image", "broken_image"),
        (cv2.imencode(".png", FORMS["colour"])[1].tobytes()[:40], "broken_image"),
        (np.zeros((0, 5, 3), np.uint8), "broken_image"),
        (np.zeros((4, 5, 3)), "bad_value"),
        (np.zeros((4, 5, 2), np.uint8), "bad_value"),
        (np.zeros((2, 4, 5, 3), np.uint8), "bad_value"),
        (np.zeros((), np.uint8), "bad_value"),
        (None, "bad_value"),
        (7, "bad_value"),
    ],
)
def test_what_is_no_image_is_refused(source, code):
    with raises_code(DataError, code):
        read_image(source)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Some images of different brightness, in folders, and other files."""
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(("a.png", "b.JPG", "inner/c.bmp", "inner/deep/d.webp", "[x].png")):
        file = tmp_path / "scans" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(file), np.full((8, 16, 3), 40 * number, np.uint8))
    (tmp_path / "scans" / "notes.txt").write_text("no image\n")
    shutil.copy(tmp_path / "scans" / "a.png", tmp_path / "scan-without-ending")
    return tmp_path


def names(*places, **options):
    return [image.name for image in list_images(places, **options).images]


def test_files_folders_and_patterns_in_their_order(folder):
    below = ["scans/[x].png", "scans/a.png", "scans/b.JPG", "scans/inner/c.bmp", "scans/inner/deep/d.webp"]
    assert names("scans") == below
    assert names(str(folder / "scans")) == [str(folder / name) for name in below]
    assert names("scans/b.JPG", "scans/a.png") == ["scans/b.JPG", "scans/a.png"]
    assert names("scans/*") == below[:2] + below[2:]  # the folder `inner` is one of the matches
    assert names("scans/**/*.bmp", "scans/?.png") == ["scans/inner/c.bmp", "scans/a.png"]
    assert names("scans/[x].png") == ["scans/[x].png"]  # a file of that name goes before the pattern
    assert names("scan-without-ending") == ["scan-without-ending"]
    assert names("scans/a.png", "gone.png") == ["scans/a.png", "gone.png"]  # reported when it is read
    assert not list_images(["scans"]).has_labels


def test_a_label_file_has_labels_and_paths_from_its_own_folder_or_another(folder):
    lines = 'a.png\tÄ 1\r\nno tab\ninner/c.bmp\t\n["b.JPG", "a.png"]\ttwo\n'
    for place, options in (("scans/list.txt", {}), ("list.txt", {"data_dir": "scans"})):
        (folder / place).write_text(lines, encoding="utf-8")
        found = list_images([place], **options)
        assert [(image.name, image.label) for image in found.images] == [
            ("a.png", "Ä 1"),
            ("inner/c.bmp", ""),
            ("b.JPG", "two"),
            ("a.png", "two"),
        ]
        assert found.has_labels and all(image.place.is_file() for image in found.images)
        assert [line.rpartition(": ")[0].split(":")[1] for line in found.bad_lines] == ["2"]


def test_an_lmdb_has_names_labels_and_images(folder):
    (folder / "list.txt").write_text("scans/a.png\tone\nscans/inner/c.bmp\tdrei\n")
    assert main(["make-lmdb", "--label-files", "list.txt", "--data-dir", ".", "--out", "db/set"]) == 0
    for place in ("db", "db/set"):
        images = list_images([place]).images
        assert [(image.name, image.label) for image in images] == [("db/set#1", "one"), ("db/set#2", "drei")]
        assert [int(read_image(image.source()).max()) for image in images] == [0, 80]


@pytest.mark.parametrize(
    ("place", "code"),
    [
        ("gone", "missing_file"),
        ("empty", "no_images"),
        ("scans/notes.txt", "no_images"),
        ("nothing/*.png", "no_images"),
        ("nul", "no_images"),
    ],
)
def test_a_place_without_images_is_named(folder, place, code):
    (folder / "empty").mkdir()
    (folder / "nul").write_bytes(b"")
    with raises_code(DataError, code, place):
        list_images([place])
    if code == "no_images":  # an image in another place is read nevertheless
        found = list_images([place, "scans/a.png"])
        assert len(found.images) == 1 and place in found.bad_lines[-1]
