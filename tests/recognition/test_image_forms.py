"""Images in the forms that a caller has, against OpenCV's decoder."""

import cv2
import numpy as np
import pytest
from error_codes import raises_code

from ppocr_ext.errors import DataError
from ppocr_ext.recognition.images import read_image

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
