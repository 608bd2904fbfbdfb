"""Configs of networks small enough for unit tests, and inputs for them."""

import copy
from typing import Any

import numpy as np
import paddle

CLASSES = 11
LONGEST = 6

_BACKBONE = {
    "name": "SVTRv2",
    "dims": [16, 32],
    "depths": [1, 2],
    "num_heads": [2, 2],
    "mixer": [["Conv"], ["Conv", "Global"]],
    "sub_k": [[2, 1], [-1, -1]],
    "use_pool": True,
    "drop_path_rate": 0.3,
}
_CTC = {
    "Neck": {"name": "svtr", "dims": 16, "depth": 1, "hidden_dims": 16, "kernel_size": [1, 3]},
    "Head": {"fc_decay": 1e-5},
}
_NRTR = {"nrtr_dim": 32, "num_decoder_layers": 1, "max_text_length": 12}


def recogniser(**changes: Any) -> dict[str, Any]:
    """`Architecture` of a small SVTRv2 with a MultiHead of CTC and NRTR."""
    config = {
        "model_type": "rec",
        "algorithm": "SVTR_LCNet",
        "Transform": None,
        "Backbone": _BACKBONE,
        "Head": {
            "name": "MultiHead",
            "head_list": [{"CTCHead": _CTC}, {"NRTRHead": _NRTR}],
            "out_channels_list": {"CTCLabelDecode": CLASSES, "NRTRLabelDecode": CLASSES + 3},
        },
        "return_all_feats": True,
        **changes,
    }
    return copy.deepcopy(config)


def distillation(**teacher: Any) -> dict[str, Any]:
    """`Architecture` of a frozen teacher and a student."""
    return {
        "name": "DistillationModel",
        "model_type": "rec",
        "algorithm": "Distillation",
        "Models": {
            "Teacher": recogniser(freeze_params=True, pretrained="weights/teacher", **teacher),
            "Student": recogniser(freeze_params=False, pretrained=None),
        },
    }


def images(count: int = 2, height: int = 32, width: int = 64, seed: int = 0) -> paddle.Tensor:
    drawn = np.random.default_rng(seed).standard_normal((count, 3, height, width))
    return paddle.to_tensor(drawn.astype("float32"))


def labels(count: int = 2) -> list[paddle.Tensor]:
    """Labels as PaddleOCR's loader gives them after the image: CTC ids, NRTR ids, lengths, ratios."""
    rng = np.random.default_rng(1)
    ctc = np.zeros((count, 12), "int64")
    nrtr = np.zeros((count, 12), "int64")
    lengths = np.array([LONGEST, *rng.integers(2, LONGEST, count - 1)], "int64")
    for row, length in enumerate(lengths):
        ctc[row, :length] = rng.integers(1, CLASSES, length)
        nrtr[row, : length + 2] = [2, *(ctc[row, :length] + 3), 3]
    ratios = np.ones(count, "float64")
    return [paddle.to_tensor(value) for value in (ctc, nrtr, lengths, ratios)]
