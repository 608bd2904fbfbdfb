"""Small predictions and batches, drawn by name."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import paddle
from parity import array

from ppocr_ext.losses import build_loss

PAIRS = [["Student", "Teacher"]]
CLASSES = 6
DECODER_CLASSES = 9


def draw(name: str, shape: Sequence[int], scale: float = 2.0) -> np.ndarray:
    return array(name, shape, seed=7, scale=scale)


def tensor(values: np.ndarray, trained: bool = False) -> paddle.Tensor:
    made = paddle.to_tensor(values)
    made.stop_gradient = not trained
    return made


def outputs(
    lines: int = 3, frames: int = 5, positions: int = 4, teacher_frames: int | None = None
) -> dict[str, dict[str, np.ndarray]]:
    """Logits by sub-model and head."""
    of_teacher = frames if teacher_frames is None else teacher_frames
    return {
        "Student": {
            "ctc": draw("student ctc", [lines, frames, CLASSES]),
            "gtc": draw("student gtc", [lines, positions, DECODER_CLASSES]),
        },
        "Teacher": {
            "ctc": draw("teacher ctc", [lines, of_teacher, CLASSES]),
            "gtc": draw("teacher gtc", [lines, positions, DECODER_CLASSES]),
        },
    }


def predictions(
    values: dict[str, dict[str, np.ndarray]], trained: Sequence[str] = ("Student",)
) -> dict[str, dict[str, dict[str, paddle.Tensor]]]:
    """As a DistillationModel gives them."""
    return {
        model: {"head_out": {head: tensor(logits, model in trained) for head, logits in heads.items()}}
        for model, heads in values.items()
    }


def labels(lengths: Sequence[int], longest: int) -> tuple[np.ndarray, np.ndarray]:
    """CTC labels [B, longest], and NRTR labels [B, longest + 2] with <s> = 2, </s> = 3 around them."""
    ctc = np.zeros([len(lengths), longest], "int64")
    gtc = np.zeros([len(lengths), longest + 2], "int64")
    for line, length in enumerate(lengths):
        characters = [1 + (line + 2 * place) % (CLASSES - 1) for place in range(length)]
        ctc[line, :length] = characters
        gtc[line, : length + 2] = [2, *(3 + character for character in characters), 3]
    return ctc, gtc


def batch(
    lengths: Sequence[int] = (3, 1, 2), longest: int = 6, valid_ratio: Sequence[float] | None = None
) -> list[paddle.Tensor]:
    """[image, label_ctc, label_gtc, length, valid_ratio]; the last only if it is given."""
    ctc, gtc = labels(lengths, longest)
    listed = [np.zeros([len(lengths), 3, 8, 16], "float32"), ctc, gtc, np.array(lengths, "int64")]
    if valid_ratio is not None:
        listed.append(np.array(valid_ratio, "float64"))
    return [paddle.to_tensor(entry) for entry in listed]


def pair_loss(name: str, head: str, **options: Any) -> Any:
    given = {"key": "head_out", "multi_head": True, "dis_head": head, "model_name_pairs": PAIRS, **options}
    if name == "CTCFrameKDLoss":
        del given["dis_head"]
    return build_loss({"name": name, **given})
