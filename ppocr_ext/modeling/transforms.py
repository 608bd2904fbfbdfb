"""Transforms: straighten the image of a text line before the backbone reads it."""

from __future__ import annotations

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import ParamAttr, Tensor, nn
from paddle.nn.initializer import Assign, Constant, Uniform

from ppocr_ext.errors import ConfigError
from ppocr_ext.modeling.backbones.conv_parts import DecayedConv
from ppocr_ext.registry import TRANSFORMS

# channels of the four convolutions, and features of the layer behind them
LOCATORS = {"large": ((64, 128, 256, 512), 256), "small": ((16, 32, 64, 128), 64)}
_SHIFT = 1e-6  # PaddleOCR adds it to a distance, whose logarithm would be infinite at 0


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
        first = fixed_points(num_fiducial)
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


def fixed_points(count: int) -> np.ndarray:
    """Return the points of the straight image, float64 [count, 2]: half on its upper edge, half on its lower one."""
    x = np.tile(np.linspace(-1.0, 1.0, count // 2), 2)
    return np.stack([x, np.repeat([-1.0, 1.0], count // 2)], axis=1)


class GridGenerator(nn.Layer):
    """Find where each pixel of the straight image is in the given one, by a thin-plate spline (Bookstein, 1989).

    The spline moves the fixed points to those that were found. It is linear in these, so a pixel's place is a weighted
    sum of them. PaddleOCR multiplies the points by two matrices in float32, whose large numbers cancel, with an error
    of 1e-5 to 1e-4. Here their product is made in float64; its numbers are near 1.

    Args:
        num_fiducial: the number of points.
    """

    def __init__(self, num_fiducial: int) -> None:
        super().__init__()
        # PaddleOCR's checkpoints have it, but nothing trains its zeros: no gradient reaches it
        still = ParamAttr(initializer=Constant(0.0), learning_rate=0.0, trainable=False)
        self.fc = nn.Linear(2 * num_fiducial, 6, weight_attr=still, bias_attr=still)
        self._fixed = fixed_points(num_fiducial)
        distances = np.linalg.norm(self._fixed[:, None] - self._fixed, axis=2) + np.eye(num_fiducial)
        system = np.zeros([num_fiducial + 3] * 2)
        system[:-3, 0] = system[-1, 3:] = 1.0
        system[:-3, 1:3] = self._fixed
        system[-3:-1, 3:] = self._fixed.T
        system[:-3, 3:] = distances**2 * np.log(distances)
        self._inverse = np.linalg.inv(system)

    def forward(self, points: Tensor, height: int, width: int) -> Tensor:
        """Map points [B, 2 * num_fiducial] to the places (x, y) of all pixels, float32 [B, height, width, 2]."""
        moved = paddle.concat([points, self.fc(points.detach())], axis=1).reshape([0, -1, 2])
        with paddle.amp.auto_cast(enable=False):  # float16 would be wrong by half a pixel in a long line
            places = paddle.matmul(self._shares(height, width), moved.astype("float32"))
        return places.reshape([-1, height, width, 2])

    def _shares(self, height: int, width: int) -> Tensor:
        """Return the weights of the points for each pixel, row by row, float32 [height * width, num_fiducial + 3]."""
        rows, columns = (
            (2.0 * paddle.arange(edge, dtype="float64") + (1.0 - edge)) / edge for edge in (height, width)
        )
        y, x = (each.flatten() for each in paddle.meshgrid(rows, columns))
        fixed = paddle.to_tensor(self._fixed)
        square = (x.unsqueeze(1) - fixed[:, 0]) ** 2 + (y.unsqueeze(1) - fixed[:, 1]) ** 2
        bends = square * paddle.log(paddle.sqrt(square) + _SHIFT)
        terms = paddle.concat([paddle.stack([paddle.ones_like(x), x, y], axis=1), bends], axis=1)
        return paddle.matmul(terms, paddle.to_tensor(self._inverse)).astype("float32")


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
        if num_fiducial < 4 or num_fiducial % 2:
            raise ConfigError(
                f"TPS.num_fiducial is {num_fiducial}, but must be an even number from 4.",
                code="bad_value",
                key=("num_fiducial",),
            )
        if model_name not in LOCATORS:
            raise ConfigError(
                f"TPS.model_name is {model_name!r}, but must be 'large' or 'small'.",
                code="bad_value",
                key=("model_name",),
            )
        self.loc_net = LocalizationNetwork(in_channels, num_fiducial, loc_lr, model_name)
        self.grid_generator = GridGenerator(num_fiducial)
        self.out_channels = in_channels

    def forward(self, images: Tensor) -> Tensor:
        """Map images [B, in_channels, H, W] to straight ones of the same shape."""
        places = self.grid_generator(self.loc_net(images), images.shape[2], images.shape[3])
        pixels = images.astype("float32")
        if pixels.stop_gradient and not places.stop_gradient:
            # Paddle's gradient of the places ends the process if there is none of the pixels
            pixels = pixels.detach()
            pixels.stop_gradient = False
        return F.grid_sample(pixels, places).astype(images.dtype)
