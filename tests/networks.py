"""Cases of PaddleOCR's networks, and the weights and inputs that produced their numbers.

tests/fixtures/README.md says where they come from. Weights follow from their names and a seed, so that a
file holds outputs only.
"""

from __future__ import annotations

import json
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import nn

FOLDER = Path(__file__).parent / "fixtures" / "networks"
FIRST_POINTS = ("loc_net.fc2.bias", "stn_fc2.bias")
LSTM_CELL = re.compile(r"\.(\d+)\.cell(_fw|_bw)?\.(weight|bias)_(ih|hh)$")


def cases(kind: str) -> list[str]:
    """Names of the cases of a kind: `backbone`, `model` or `names`."""
    return sorted(file.stem for file in FOLDER.glob(f"{kind}_*.json"))


def read_case(name: str) -> dict[str, Any]:
    """What a case says of itself; its arrays by name under `arrays`."""
    case: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    archive = FOLDER / f"{name}.npz"
    if archive.exists():
        with np.load(archive, allow_pickle=False) as stored:
            case["arrays"] = {key: stored[key] for key in stored.files}
    return case


def load_weights(layer: nn.Layer, case: dict[str, Any]) -> None:
    """Give every entry of the state_dict its value (sinusoids and the first points of a transform keep theirs)."""
    state = layer.state_dict()
    drawn = {
        name: value(case, name, each.shape)
        for name, each in state.items()
        if not name.endswith((".pe", *FIRST_POINTS))
    }
    missing, unexpected = layer.set_state_dict({**state, **drawn})
    assert not missing and not unexpected


def value(case: dict[str, Any], name: str, shape: list[int]) -> np.ndarray:
    """The float32 value of an entry of the case's state_dict."""
    in_backbone = case["kind"] == "backbone" or name.startswith("backbone.")
    name = lstm_tensor(name)
    noise = _stream(name, case["seed"]).standard_normal(tuple(shape))
    kind = name.rpartition(".")[2]
    if kind == "_variance":
        noise = 1.0 + 0.1 * np.abs(noise)
    elif kind in ("_mean", "bias") or kind.startswith("bias_"):
        noise = 0.1 * noise
    elif noise.ndim == 1:  # the scale of a norm layer or of a learnable affine
        noise = 1.0 + 0.1 * noise
    elif name.endswith(("pos_embed", "loc_net.fc2.weight", "stn_fc2.weight")):
        noise = 0.02 * noise
    elif noise.ndim >= 3:  # a convolution: [out, in / groups, kernel…]
        gain = case["gain"] if in_backbone else case["head_gain"]
        noise = gain * noise / np.sqrt(np.prod(noise.shape[1:]))
    else:  # an LSTM has [4 hidden, in], a linear layer or an embedding [in, out]
        noise = noise / np.sqrt(noise.shape[1 if kind.startswith("weight_") else 0])
    return noise.astype(np.float32)


def lstm_tensor(name: str) -> str:
    """The one name of an LSTM's tensor, which Paddle lists twice: `0.cell.weight_ih` is `weight_ih_l0`."""
    found = LSTM_CELL.search(name)
    if found is None:
        return name
    layer, direction, kind, gate = found.groups()
    return f"{name[: found.start()]}.{kind}_{gate}_l{layer}{'_reverse' if direction == '_bw' else ''}"


def array(label: str, shape: list[int], seed: int) -> np.ndarray:
    """The standard-normal float32 input called `label`."""
    return _stream(label, seed).standard_normal(tuple(shape)).astype(np.float32)


def image(case: dict[str, Any], height: int, width: int) -> paddle.Tensor:
    """Noise; for a `smooth` case eight times as large, with a dark border: moving a pixel a little changes little."""
    if not case.get("smooth"):
        return paddle.to_tensor(array("image", [2, 3, height, width], case["seed"]))
    noise = np.pad(
        array("image", [2, 3, height // 8 - 2, width // 8 - 2], case["seed"]),
        [(0, 0), (0, 0), (1, 1), (1, 1)],
    )
    return F.interpolate(paddle.to_tensor(noise), [height, width], mode="bilinear")


def _stream(key: str, seed: int) -> np.random.Generator:
    return np.random.default_rng([zlib.crc32(key.encode()), seed])


def train_without_noise(layer: nn.Layer) -> None:
    """Train mode as the cases have it: BatchNorms in eval mode, dropout and stochastic depth at 0."""
    layer.train()
    for each in layer.sublayers(include_self=True):
        if "BatchNorm" in type(each).__name__:
            each.training = False
        for name, number in list(vars(each).items()):
            if name.strip("_") in (
                "p",
                "drop",
                "attn_drop",
                "proj_drop",
                "dropout",
                "pos_drop",
                "drop_prob",
            ) and isinstance(number, float):
                setattr(each, name, 0.0)


def assert_near(found: Any, reference: np.ndarray, least: float = 1e-4) -> None:
    """Compare with what another machine or engine computed: 3e-5 of the largest value, or `least` if it is more.

    Sums of float32 in another order differ: if the last bit of each pixel changes, mobilenetv1enhance's output does by
    8e-6 of its largest value. `least` is 2e-3 for TPS and STN_ON, since PaddleOCR's grid has an error of 2e-5
    (tests/modeling/test_transforms.py).
    """
    found = np.asarray(found)
    assert found.shape == reference.shape
    np.testing.assert_allclose(found, reference, rtol=0, atol=max(least, 3e-5 * np.abs(reference).max()))
