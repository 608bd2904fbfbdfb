"""A client with one wrong step differs from the network, whatever it does wrong."""

from collections.abc import Callable
from dataclasses import replace

import cv2
import numpy as np
import pytest

from ppocr_ext.charset import Charset
from ppocr_ext.export.verify import Comparer, Comparison, Output, Picture, read_picture
from ppocr_ext.inference.comparison import drawn_images
from ppocr_ext.recognition.ctc_text import read
from ppocr_ext.recognition.images import WidthPolicy
from ppocr_ext.recognition.opening import RecognizerParts

HEIGHT, WIDTH = 32, 96
CHARSET = Charset(tuple("0123456789abcdef"))
IMAGES = drawn_images(CHARSET.characters, HEIGHT)


class Columns:
    """A frame for each eight columns; its probabilities depend on every pixel of these."""

    name = "columns"
    weights = (
        np.random.default_rng(0).normal(0, 0.3, (3 * HEIGHT * 8, CHARSET.ctc_classes)).astype(np.float32)
    )

    def probabilities(self, images: np.ndarray) -> np.ndarray:
        count, frames = len(images), images.shape[3] // 8
        blocks = images[:, :, :, : frames * 8].reshape(count, 3, HEIGHT, frames, 8)
        return softmax(blocks.transpose(0, 3, 1, 2, 4).reshape(count, frames, -1) @ self.weights)


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


RIGHT = RecognizerParts(Columns(), WidthPolicy("pad", (3, HEIGHT, WIDTH)), CHARSET)


class Client:
    """Prepares images in code of its own, with an option for each fault."""

    name, own_policy, note = "client", None, ""

    def __init__(
        self,
        kind: str = "pad",
        decoded: Callable[[np.ndarray], np.ndarray] = lambda image: image,
        interpolation: int = cv2.INTER_LINEAR,
        normalised: Callable[[np.ndarray], np.ndarray] = lambda x: (x / 255 - 0.5) / 0.5,
        columns: int = 0,
        output: Callable[[np.ndarray], np.ndarray] = lambda probabilities: probabilities,
        charset: Charset = CHARSET,
    ) -> None:
        self.kind, self.columns, self.charset = kind, columns, charset
        self.decoded, self.interpolation = decoded, interpolation
        self.normalised, self.output = normalised, output

    def read(self, pixels: np.ndarray) -> Output:
        image = self.decoded(pixels)
        wanted = int(np.ceil(HEIGHT * image.shape[1] / image.shape[0]))
        filled = {"pad": min(WIDTH, wanted), "squash": WIDTH, "widen": wanted}[self.kind]
        resized = cv2.resize(image, (filled, HEIGHT), interpolation=self.interpolation).astype(np.float32)
        given = np.zeros((3, HEIGHT, max(filled, WIDTH, self.columns)), np.float32)
        given[:, :, :filled] = self.normalised(resized).transpose(2, 0, 1)
        found = self.output(Columns().probabilities(given[None])[0])
        return Output(read(found, self.charset).text, found)


def compared(client: Client) -> Comparison:
    comparer = Comparer(RIGHT, client)
    for image in IMAGES:
        comparer.add(Picture(image), read_picture(comparer.network, image))
    return comparer.result


def rgb(image: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(image[:, :, ::-1])


OTHER = replace(CHARSET, characters=(*CHARSET.characters[1:], CHARSET.characters[0]))


def test_the_images_are_coloured_and_of_mixed_width():
    widths = {RIGHT.policy.widths(*image.shape[:2])[1] for image in IMAGES}
    assert len(widths) >= 3 and WIDTH in widths
    assert all((image[:, :, 0] != image[:, :, 2]).any() for image in IMAGES)


def test_a_client_without_a_fault_is_equal():
    result = compared(Client())
    assert result.agrees() and not result.different and result.images == len(IMAGES)


@pytest.mark.parametrize(
    ("client", "fact"),
    [
        pytest.param(Client(charset=OTHER), "equal probabilities", id="wrong-dictionary"),
        pytest.param(Client(decoded=rgb), "differ by", id="RGB-for-BGR"),
        pytest.param(Client("squash"), "differ by", id="squashed-width"),
        pytest.param(Client("widen"), "shape", id="widened"),
        pytest.param(Client(normalised=lambda x: x / 255), "differ by", id="only-scaled"),
        pytest.param(Client(decoded=lambda x: 255 - x), "differ by", id="other-pixels"),
        pytest.param(Client(interpolation=cv2.INTER_NEAREST), "differ by", id="interpolation"),
        pytest.param(Client(columns=160), "shape", id="batch-padding"),
        pytest.param(Client(output=softmax), "differ by", id="double-softmax"),
        pytest.param(Client(output=lambda x: x[1:]), "shape", id="fewer-frames"),
        pytest.param(Client(output=lambda x: x * np.nan), "differ by inf", id="not-finite"),
        pytest.param(
            Client("squash", rgb, normalised=lambda x: x / 255, output=softmax, charset=OTHER),
            "differ by",
            id="five-at-once",
        ),
    ],
)
def test_a_wrong_step_is_found_at_the_first_image_that_shows_it(client, fact):
    result = compared(client)
    assert not result.agrees() and result.images == len(IMAGES)
    (fault,) = result.faults
    assert fault.startswith("image ") and fact in fault


def test_a_client_that_fails_is_named_and_the_image_is_read_wrongly():
    def fail(image: np.ndarray) -> np.ndarray:
        raise ValueError("no such colour")

    comparer = Comparer(RIGHT, Client(decoded=fail))
    comparer.add(Picture(IMAGES[0], label="x"), read_picture(comparer.network, IMAGES[0]))
    result = comparer.result
    assert not result.agrees() and result.different == result.images == result.labelled == 1
    assert not result.correct
    (fault,) = result.faults
    assert "no such colour" in fault
