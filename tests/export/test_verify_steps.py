"""A client with one wrong step differs from the network, whatever it does wrong."""

from collections.abc import Callable
from dataclasses import replace

import cv2
import numpy as np
import pytest

from ppocr_ext.charset import Charset
from ppocr_ext.export.verify import Comparer, Comparison, Output, Picture, compare, read_picture
from ppocr_ext.inference.comparison import TOLERANCE, Limits, drawn_images
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
        return softmax(self.rows(images) @ self.weights)

    def rows(self, images: np.ndarray) -> np.ndarray:
        count, frames = len(images), images.shape[3] // 8
        blocks = images[:, :, :, : frames * 8].reshape(count, 3, HEIGHT, frames, 8)
        return blocks.transpose(0, 3, 1, 2, 4).reshape(count, frames, -1)


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


def compared(client: Client, label: str | None = None) -> Comparison:
    comparer = Comparer(RIGHT, client, Limits())
    for image in IMAGES:
        comparer.add(Picture(image, label), read_picture(comparer.network, image))
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
    assert not result.faults and not result.different and result.images == len(IMAGES)


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
    (fault,) = result.faults
    assert result.images == len(IMAGES)
    assert fault.startswith("image ") and fact in fault


def test_a_client_that_fails_is_named_and_the_image_is_read_wrongly():
    def fail(image: np.ndarray) -> np.ndarray:
        raise ValueError("no such colour")

    result = compared(Client(decoded=fail), "x")
    assert result.different == result.images == result.labelled == len(IMAGES) and not result.correct
    (fault,) = result.faults
    assert "no such colour" in fault


class Sensitive(Columns):
    """As `Columns`, but the logits are waves of its logits, so that rounding shows.

    Args:
        order: of the terms of a sum, 1 or -1, as two libraries may add them.
        more: is added to the logits of the first character.
    """

    def __init__(self, order: int = 1, more: float = 0.0) -> None:
        self.order, self.more = order, np.float32(more)

    def probabilities(self, images: np.ndarray) -> np.ndarray:
        rows = self.rows(images)[:, :, :: self.order]
        logits = 8 * np.sin(200 * (rows @ self.weights[:: self.order]) + np.arange(CHARSET.ctc_classes))
        logits[:, :, 1] += self.more
        return softmax(logits.astype(np.float32))


@pytest.mark.parametrize(
    ("form", "agrees"),
    [(Sensitive(-1), True), (Sensitive(-1, 0.2), False), (Sensitive(more=0.2), False), (Columns(), False)],
    ids=["other-order", "other-order-and-bias", "bias", "other-weights"],
)
def test_rounding_is_told_from_a_fault_where_the_network_is_sensitive(form, agrees):
    network = replace(RIGHT, engine=Sensitive())
    forms = {"form": replace(RIGHT, engine=form)}
    _, found = compare("network", network, forms, (), map(Picture, IMAGES), any_width=True)
    assert (not found.faults) == agrees and found.largest > TOLERANCE
    assert found.limits.noise > TOLERANCE and 0 < found.margin < 1
    _, strict = compare("network", network, forms, (), map(Picture, IMAGES), True, tolerance=TOLERANCE)
    assert strict.faults


class SensitiveIfWide(Sensitive):
    def probabilities(self, images: np.ndarray) -> np.ndarray:
        return (super() if images.shape[3] > WIDTH else Columns()).probabilities(images)


@pytest.mark.parametrize(
    "kind", ["pad", "widen"]
)  # wide images are compared as batches, or after the first eight
@pytest.mark.parametrize(("more", "agrees"), [(0.0, True), (0.2, False)])
def test_noise_is_measured_on_what_is_compared(kind, more, agrees):
    network = replace(RIGHT, engine=SensitiveIfWide(), policy=replace(RIGHT.policy, kind=kind))
    forms = {"form": replace(network, engine=SensitiveIfWide(-1, more))}
    narrow = [image for image in IMAGES if network.policy.widths(*image.shape[:2])[0] <= WIDTH]
    images = [*narrow * 8, *IMAGES] if kind == "widen" else IMAGES
    reference, found = compare("network", network, forms, (), map(Picture, images), any_width=True)
    assert (not found.faults) == agrees and found.largest > TOLERANCE
    assert reference.limits.noise == found.limits.noise > TOLERANCE


def test_a_network_that_differs_in_a_batch_is_as_noisy_as_that():
    class Batched(Columns):
        def probabilities(self, images: np.ndarray) -> np.ndarray:
            return super().probabilities(images) + np.float32(0.003 * (len(images) > 1))

    parts = replace(RIGHT, engine=Batched())
    (reference,) = compare("network", parts, {}, (), map(Picture, IMAGES), any_width=False)
    assert reference.limits.noise == pytest.approx(0.003, rel=0.1)


@pytest.mark.parametrize(
    ("noise", "expected", "difference", "accepted"),
    [
        (0.0, (0.9, 0.1), 0.5e-4, True),
        (0.0, (0.50001, 0.49999), 0.5e-4, True),
        (0.0, (0.9, 0.1), 2e-4, False),
        (0.001, (0.9, 0.1), 0.0039, True),
        (0.001, (0.9, 0.1), 0.0041, False),
        (0.001, (0.502, 0.498), 0.0019, True),  # both move, and the best class stays the best
        (0.001, (0.502, 0.498), 0.0021, False),  # the text could change
        (0.001, (0.50001, 0.49999), 0.0009, True),  # and here it does so in the network itself
        (0.001, (0.50001, 0.49999), 0.0011, False),
        (0.5, (0.9, 0.1), 0.019, True),
        (0.5, (0.9, 0.1), 0.021, False),
        (0.001, (0.9, 0.1), np.nan, False),
    ],
)
def test_a_difference_is_accepted_if_it_is_noise_and_cannot_change_the_text(
    noise, expected, difference, accepted
):
    right = np.float32([[1, 0], expected])
    wrong = right + np.float32([[0, 0], [-difference, difference]])
    assert Limits(noise=noise).accept(right[None], wrong[None]) == accepted
    assert not Limits(noise=noise).accept(right, wrong[:1])
