"""Transforms: straighten the image of a text line before the backbone reads it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import ParamAttr, Tensor, nn
from paddle.nn.initializer import Assign, Constant, Normal, Uniform

from ppocr_ext.errors import ConfigError
from ppocr_ext.modeling.backbones.conv_parts import DecayedConv
from ppocr_ext.registry import TRANSFORMS

# channels of the four convolutions, and features of the layer behind them
LOCATORS = {"large": ((64, 128, 256, 512), 256), "small": ((16, 32, 64, 128), 64)}
_STN_WIDTHS = (32, 64, 128, 256, 256, 256)  # channels of the convolutions of STN_ON
_HALVINGS = len(_STN_WIDTHS) - 1


def border_points(
    count: int, x: tuple[float, float] = (-1.0, 1.0), y: tuple[float, float] = (-1.0, 1.0)
) -> np.ndarray:
    """Return points (x, y) from left to right, float64 [count, 2]: half on the upper edge, half on the lower one.

    ``x`` are their first and last places, ``y`` those of both edges.
    """
    places = np.tile(np.linspace(*x, count // 2), 2)
    return np.stack([places, np.repeat(y, count // 2)], axis=1)


class ThinPlateSpline:
    """Move fixed points to given ones, and all between them smoothly (Bookstein, 1989).

    The spline is linear in the given points, so a pixel's place is a weighted sum of them. PaddleOCR multiplies them by
    two matrices in float32, whose large numbers cancel, with an error of 1e-5 to 1e-4. Here the product of both is made
    in float64; its numbers are near 1.

    Args:
        fixed: the fixed points, float64 [N, 2].
        shift: added to the distance of a pixel and a fixed point before its logarithm; 0 for the exact spline.
    """

    def __init__(self, fixed: np.ndarray, shift: float = 0.0) -> None:
        self.fixed = fixed
        self.shift = shift
        count = len(fixed)
        distances = np.linalg.norm(fixed[:, None] - fixed, axis=2) + np.eye(count)
        system = np.zeros([count + 3] * 2)
        system[:-3, 0] = system[-1, 3:] = 1.0
        system[:-3, 1:3] = fixed
        system[-3:-1, 3:] = fixed.T
        system[:-3, 3:] = distances**2 * np.log(distances)
        self.inverse = np.linalg.inv(system)

    def terms(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Return the terms of the spline for each pixel, row by row, float64 [H * W, N + 3].

        ``rows`` [H] and ``columns`` [W] are the places of the pixels in the straight image, float64.
        """
        y, x = (each.flatten() for each in paddle.meshgrid(rows, columns))
        fixed = paddle.to_tensor(self.fixed)
        square = (x.unsqueeze(1) - fixed[:, 0]) ** 2 + (y.unsqueeze(1) - fixed[:, 1]) ** 2
        # The logarithm of 0 is infinite. So without a shift, the smallest number is added: 0 times its logarithm is 0.
        distance = paddle.sqrt(square) + (self.shift or np.finfo(np.float64).tiny)
        return paddle.concat(
            [paddle.stack([paddle.ones_like(x), x, y], axis=1), square * paddle.log(distance)], axis=1
        )

    def weights(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Return the weights of the points, and of three for the slope, for each pixel, float32 [H * W, N + 3]."""
        return paddle.matmul(self.terms(rows, columns), paddle.to_tensor(self.inverse)).astype("float32")


def places_of(weights: Tensor, points: Tensor) -> Tensor:
    """Map ``weights`` [P, N] of points [B, N, 2] to the places of all pixels, float32 [B, P, 2]."""
    with paddle.amp.auto_cast(enable=False):  # float16 would be wrong by half a pixel in a long line
        return paddle.matmul(weights, points.astype("float32"))


def sample(images: Tensor, places: Tensor) -> Tensor:
    """Read images [B, C, H, W] at places (x, y) from -1 to 1, [B, H', W', 2]: images [B, C, H', W']."""
    pixels = images.astype("float32")
    if pixels.stop_gradient and not places.stop_gradient:
        # Paddle's gradient of the places ends the process if there is none of the pixels
        pixels = pixels.detach()
        pixels.stop_gradient = False
    return F.grid_sample(pixels, places).astype(images.dtype)


class LocalizationNetwork(nn.Layer):
    """Find the points of the image that border the text, from left to right: above it, then below it.

    Args:
        in_channels: channels of the image.
        num_fiducial: the number of points.
        loc_lr: learning rate multiplier of the linear layers, but not of the first bias.
        model_name: a key of ``LOCATORS``.
    """

    def __init__(self, in_channels: int, num_fiducial: int, loc_lr: float, model_name: str) -> None:
        super().__init__()
        widths, hidden = LOCATORS[model_name]
        for index, (before, after) in enumerate(zip((in_channels, *widths), widths, strict=False)):
            self.add_sublayer(f"loc_conv{index}", DecayedConv(before, after, 3, act=F.relu))

        def slow(initializer: nn.initializer.Initializer) -> ParamAttr:
            return ParamAttr(initializer=initializer, learning_rate=loc_lr)

        edge = widths[-1] ** -0.5
        self.fc1 = nn.Linear(widths[-1], hidden, weight_attr=slow(Uniform(-edge, edge)))
        # at first, the points are on a slope down to the right above the middle, and on one below it
        first = border_points(num_fiducial)
        first[:, 1] = (first[:, 1] - first[:, 0]) / 2
        self.fc2 = nn.Linear(
            hidden,
            2 * num_fiducial,
            weight_attr=slow(Constant(0.0)),
            bias_attr=slow(Assign(first.reshape(-1))),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Map [B, in_channels, H, W] to the points (x, y), [B, 2 * num_fiducial]; the image reaches from -1 to 1."""
        features = self.loc_conv0(images)
        for conv in (self.loc_conv1, self.loc_conv2, self.loc_conv3):
            features = conv(F.max_pool2d(features, 2, 2))
        return self.fc2(F.relu(self.fc1(F.adaptive_avg_pool2d(features, 1).flatten(1))))


class GridGenerator(nn.Layer):
    """Find where each pixel of the straight image is in the given one, by a thin-plate spline.

    Args:
        num_fiducial: the number of points.
    """

    def __init__(self, num_fiducial: int) -> None:
        super().__init__()
        # PaddleOCR's checkpoints have it, but nothing trains its zeros: no gradient reaches it
        still = ParamAttr(initializer=Constant(0.0), learning_rate=0.0, trainable=False)
        self.fc = nn.Linear(2 * num_fiducial, 6, weight_attr=still, bias_attr=still)
        self.spline = ThinPlateSpline(border_points(num_fiducial), shift=1e-6)  # the shift is PaddleOCR's

    def forward(self, points: Tensor, height: int, width: int) -> Tensor:
        """Map points [B, 2 * num_fiducial] to the places (x, y) of all pixels, float32 [B, height, width, 2]."""
        moved = paddle.concat([points, self.fc(points.detach())], axis=1).reshape([0, -1, 2])
        rows, columns = (
            (2.0 * paddle.arange(edge, dtype="float64") + (1.0 - edge)) / edge for edge in (height, width)
        )
        return places_of(self.spline.weights(rows, columns), moved).reshape([-1, height, width, 2])


def require(fits: bool, key: str, value: object, expected: str) -> None:
    """Raise a ConfigError about ``value`` of ``key`` (``COMPONENT.KEY``) unless it ``fits``."""
    if not fits:
        raise ConfigError(
            f"{key} is {value!r}, but must be {expected}.", code="bad_value", key=(key.rpartition(".")[2],)
        )


def require_points(key: str, count: int) -> None:
    """Raise a ConfigError unless a spline can have ``count`` points, half of them on each edge."""
    require(count >= 4 and count % 2 == 0, key, count, "an even number from 4")


@TRANSFORMS.register()
class TPS(nn.Layer):
    """Straighten a curved or slanted line by a thin-plate spline (Shi et al., CVPR 2016); it learns without labels.

    Args:
        num_fiducial: points around the text, an even number from 4.
        loc_lr: learning rate multiplier of the layers that find them.
        model_name: ``"large"`` or ``"small"``: the network that finds them.
        in_channels: channels of the image.

    Raises:
        ConfigError: the number is odd or too small, or the name is unknown.
    """

    def __init__(self, num_fiducial: int, loc_lr: float, model_name: str, in_channels: int = 3) -> None:
        super().__init__()
        require_points("TPS.num_fiducial", num_fiducial)
        require(model_name in LOCATORS, "TPS.model_name", model_name, "'large' or 'small'")
        self.loc_net = LocalizationNetwork(in_channels, num_fiducial, loc_lr, model_name)
        self.grid_generator = GridGenerator(num_fiducial)
        self.out_channels = in_channels

    def forward(self, images: Tensor) -> Tensor:
        """Map images [B, in_channels, H, W] to straight ones of the same shape."""
        places = self.grid_generator(self.loc_net(images), images.shape[2], images.shape[3])
        return sample(images, places)


class ControlPoints(nn.Layer):
    """Find the points of a small image that border the text, from left to right: above it, then below it.

    Args:
        in_channels: channels of the image.
        count: the number of points.
        bounded: keep the points within the image by a sigmoid.
    """

    def __init__(self, in_channels: int, count: int, bounded: bool) -> None:
        super().__init__()
        layers: list[nn.Layer] = []
        for before, after in pairwise((in_channels, *_STN_WIDTHS)):
            kernel = Normal(0.0, (2 / (9 * after)) ** 0.5)
            conv = nn.Conv2D(before, after, 3, padding=1, weight_attr=kernel, bias_attr=Constant(0.0))
            layers += [nn.Sequential(conv, nn.BatchNorm2D(after), nn.ReLU()), nn.MaxPool2D(2, 2)]
        self.stn_convnet = nn.Sequential(*layers[:-1])
        first = nn.Linear(2 * _STN_WIDTHS[-1], 512, weight_attr=Normal(0.0, 0.001), bias_attr=Constant(0.0))
        self.stn_fc1 = nn.Sequential(first, nn.BatchNorm1D(512), nn.ReLU())
        points = border_points(count, (0.01, 0.99), (0.01, 0.99)).reshape(-1)
        self.stn_fc2 = nn.Linear(
            512,
            2 * count,
            weight_attr=Constant(0.0),
            bias_attr=Assign(np.log(points / (1 - points)) if bounded else points),
        )
        self._bounded = bounded

    def forward(self, images: Tensor) -> Tensor:
        """Map [B, in_channels, H, W] to the points (x, y), [B, count, 2]; the image reaches from 0 to 1."""
        points = self.stn_fc2(0.1 * self.stn_fc1(self.stn_convnet(images).flatten(1)))
        return (F.sigmoid(points) if self._bounded else points).reshape([0, -1, 2])


@TRANSFORMS.register()
class STN_ON(nn.Layer):  # noqa: N801 - PaddleOCR's name
    """Straighten a line by a thin-plate spline whose points a network finds (ASTER, Shi et al., 2018), as SVTR does.

    It learns without labels, and makes images of one size, which the backbone reads.

    Args:
        tps_inputsize: height and width of the image in which the points are found, such as [32, 64].
        tps_outputsize: height and width of the straight image, such as [32, 100].
        num_control_points: points around the text, an even number from 4.
        tps_margins: distances x and y of the points from the edges of the straight image, as shares of it; below 0.5.
        stn_activation: ``"none"``, or ``"sigmoid"``, which keeps the points within the image.
        in_channels: channels of the image.

    Raises:
        ConfigError: a value is none of these.
    """

    def __init__(
        self,
        tps_inputsize: Sequence[int],
        tps_outputsize: Sequence[int],
        num_control_points: int,
        tps_margins: Sequence[float],
        stn_activation: str | None,
        in_channels: int = 3,
    ) -> None:
        super().__init__()
        height, width = (edge >> _HALVINGS for edge in tps_inputsize)
        halved = f"[32, 64], or another size of which {_HALVINGS} halvings leave two pixels"
        require(height * width == 2, "STN_ON.tps_inputsize", tps_inputsize, halved)
        require(
            min(tps_outputsize) > 1, "STN_ON.tps_outputsize", tps_outputsize, "a height and a width from 2"
        )
        require_points("STN_ON.num_control_points", num_control_points)
        require(max(tps_margins) < 0.5, "STN_ON.tps_margins", tps_margins, "two shares below 0.5")
        known = stn_activation in (None, "none", "sigmoid")
        require(known, "STN_ON.stn_activation", stn_activation, "'none' or 'sigmoid'")
        self.stn_head = ControlPoints(in_channels, num_control_points, stn_activation == "sigmoid")
        x, y = ((margin, 1.0 - margin) for margin in tps_margins)
        rows, columns = (paddle.linspace(0.0, 1.0, edge, dtype="float64") for edge in tps_outputsize)
        spline = ThinPlateSpline(border_points(num_control_points, x, y))
        self._weights = spline.weights(rows, columns)[:, :-3]  # the points of the slope are zeros
        self._size = list(tps_outputsize)
        small = paddle.meshgrid(
            *(paddle.linspace(-1.0, 1.0, edge, dtype="float64") for edge in tps_inputsize)
        )
        self._small = paddle.stack(small[::-1], axis=-1).unsqueeze(0).astype("float32")
        self.out_channels = in_channels

    def forward(self, images: Tensor) -> Tensor:
        """Map images [B, in_channels, H, W] to straight ones, [B, in_channels, *tps_outputsize]."""
        # not F.interpolate: Paddle 3.3 cannot run its operator with oneDNN in an exported model
        small = sample(images, self._small.expand([images.shape[0], -1, -1, -1]))
        places = places_of(self._weights, self.stn_head(small)).clip(0.0, 1.0)
        return sample(images, (2.0 * places - 1.0).reshape([-1, *self._size, 2]))
