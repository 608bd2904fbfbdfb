"""A client with one wrong step is told from the right one, whatever it does wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import cv2
import numpy as np
import pytest

from ppocr_ext.charset import Charset
from ppocr_ext.export.verify import Comparer, Comparison, Picture, Seen, look
from ppocr_ext.inference.comparison import drawn_images
from ppocr_ext.recognition.ctc_text import read
from ppocr_ext.recognition.opening import RecognizerParts
from ppocr_ext.recognition.resize import WidthPolicy

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

    name, step, own_policy, note = "client", "client", None, ""

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

    def see(self, pixels: np.ndarray) -> Seen:
        image = self.decoded(pixels)
        wanted = int(np.ceil(HEIGHT * image.shape[1] / image.shape[0]))
        filled = {"pad": min(WIDTH, wanted), "squash": WIDTH, "widen": wanted}[self.kind]
        resized = cv2.resize(image, (filled, HEIGHT), interpolation=self.interpolation).astype(np.float32)
        given = np.zeros((3, HEIGHT, max(filled, WIDTH, self.columns)), np.float32)
        given[:, :, :filled] = self.normalised(resized).transpose(2, 0, 1)
        found = self.output(Columns().probabilities(given[None])[0])
        return Seen(read(found, self.charset).text, found, given)


def compared(client: Client) -> Comparison:
    comparer = Comparer(RIGHT, client)
    for image in IMAGES:
        comparer.add(Picture(image), look(comparer.right, image))
    return comparer.result


def rgb(image: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(image[:, :, ::-1])


def grey(image: np.ndarray) -> np.ndarray:
    return np.repeat(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)[:, :, None], 3, axis=2)


def imagenet(pixels: np.ndarray) -> np.ndarray:
    return (pixels / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]


OTHER = replace(CHARSET, characters=(*CHARSET.characters[1:], CHARSET.characters[0]))


def test_the_images_are_coloured_and_of_mixed_width() -> None:
    widths = {RIGHT.policy.widths(*image.shape[:2])[1] for image in IMAGES}
    assert len(widths) >= 3 and WIDTH in widths
    assert all((image[:, :, 0] != image[:, :, 2]).any() for image in IMAGES)


def test_a_client_without_a_fault_is_equal() -> None:
    result = compared(Client())
    assert result.agrees() and not result.different and result.images == len(IMAGES)


@pytest.mark.parametrize(
    ("client", "steps"),
    [
        pytest.param(Client(charset=OTHER), {"dictionary"}, id="wrong-dictionary"),
        pytest.param(Client(decoded=rgb), {"channel order"}, id="RGB-for-BGR"),
        pytest.param(Client("squash"), {"width policy"}, id="squashed-width"),
        pytest.param(Client("widen"), {"width policy"}, id="widened"),
        pytest.param(Client(normalised=lambda x: x), {"normalisation"}, id="missing-normalisation"),
        pytest.param(Client(normalised=lambda x: x / 255), {"normalisation"}, id="only-scaled"),
        pytest.param(Client(normalised=imagenet), {"normalisation"}, id="ImageNet"),
        pytest.param(Client(decoded=grey), {"decode"}, id="grey"),
        pytest.param(Client(decoded=lambda x: 255 - x), {"decode"}, id="other-pixels"),
        pytest.param(Client(interpolation=cv2.INTER_NEAREST), {"resize"}, id="interpolation"),
        pytest.param(Client(decoded=lambda x: cv2.blur(x, (3, 3))), {"resize"}, id="another-library"),
        pytest.param(Client(decoded=lambda x: np.ascontiguousarray(np.rot90(x))), {"decode"}, id="turned"),
        pytest.param(Client(columns=160), {"batch padding"}, id="batch-padding"),
        pytest.param(Client(output=softmax), {"graph"}, id="double-softmax"),
        pytest.param(Client(output=lambda x: x[::-1]), {"graph"}, id="other-output"),
        pytest.param(Client(output=lambda x: x[1:]), {"graph"}, id="fewer-frames"),
        pytest.param(Client(output=lambda x: x * np.nan), {"graph"}, id="not-finite"),
        pytest.param(
            Client("squash", rgb, normalised=lambda x: x / 255, output=softmax, charset=OTHER),
            {"width policy", "channel order", "normalisation", "graph", "dictionary"},
            id="five-at-once",
        ),
    ],
)
def test_each_fault_is_found_in_its_step(client: Client, steps: set[str]) -> None:
    result = compared(client)
    assert not result.agrees()
    assert {fault.step for fault in result.faults} == steps


def test_a_client_that_fails_is_named_and_the_image_is_read_wrongly() -> None:
    def fail(image: np.ndarray) -> np.ndarray:
        raise ValueError("no such colour")

    comparer = Comparer(RIGHT, Client(decoded=fail))
    comparer.add(Picture(IMAGES[0], label="x"), look(comparer.right, IMAGES[0]))
    result = comparer.result
    assert not result.agrees() and result.different == result.images == result.labelled == 1
    assert not result.correct
    assert {fault.step for fault in result.faults} == {"client"} and "no such colour" in str(result.faults)
