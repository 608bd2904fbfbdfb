"""Inference models to measure, written in a process of its own: teacher, student, and the forms of the student."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import paddle
from paddle import nn
from paddle.static import InputSpec

from benchmarks.infer import PEER, STUDENT, TEACHER, UNFOLDED
from benchmarks.peer import imported, take_weights
from benchmarks.sizes import SIZES, networks_of
from ppocr_ext.inference.formats import write_onnx
from ppocr_ext.inference.graph import IMAGES, write_reader
from ppocr_ext.modeling import build_model
from ppocr_ext.modeling.features import classifier_of, ctc_head_of

_SHARPNESS = (
    60.0  # factor of the classifier: with random weights all classes would be almost equally probable
)


def prepare(folder: str, size: str, root: str | None) -> dict[str, Any]:
    """Write an inference model of each network, for Paddle Inference and for ONNX Runtime.

    Args:
        folder: an existing one; each network gets a folder in it.
        size: ``"tiny"`` or ``"full"``.
        root: a PaddleOCR checkout, whose network of the student is written too; or None.

    Returns:
        ``folders``: of each network, by its name; ``setting``: a few words on them.

    Raises:
        HostError: it is no checkout that can be imported, or its student has other parameters.
    """
    (height, width), (config, charset) = SIZES[size][1], networks_of(size)
    architecture = config.at("Architecture").thaw()
    paddle.seed(0)
    model = build_model(architecture)
    for network in (model.Teacher, model.Student):
        _make_lively(network)
    forms = {TEACHER: model.Teacher}
    if root is not None:
        forms[PEER] = _peer_student(Path(root), architecture["Models"]["Student"], model.Student)
    forms |= {UNFOLDED: model.Student, STUDENT: model.Student}
    folders = {}
    for number, (form, network) in enumerate(forms.items()):
        place = Path(folder) / str(number)
        place.mkdir()
        if form in (TEACHER, STUDENT):
            write_reader(network, place, (3, height, width))
        else:
            _write_as_it_is(network, place, height)
        write_onnx(place, {})
        folders[form] = str(place)
    return {"folders": folders, "setting": f"{size}: {height}x{width}, {charset.ctc_classes} classes"}


def _make_lively(network: nn.Layer) -> None:
    """Let each layer count: BatchNorms start with zeros where a branch should do nothing at first."""
    for value in network.state_dict().values():
        if not bool(value.any()):
            value.set_value(paddle.uniform(value.shape, min=0.05, max=0.2))
    classifier = classifier_of(ctc_head_of(network)).weight
    classifier.set_value(classifier * _SHARPNESS)


def _peer_student(root: Path, architecture: dict[str, Any], ours: nn.Layer) -> nn.Layer:
    (architectures,) = imported(root, "modeling.architectures")
    left_out = ("pretrained", "freeze_params")
    network = architectures.build_model({k: v for k, v in architecture.items() if k not in left_out})
    take_weights(network, ours.state_dict())
    return network


def _write_as_it_is(network: nn.Layer, folder: Path, height: int) -> None:
    """Write a network as PaddleOCR's export does: in evaluation, branches and BatchNorms as they are trained."""
    network = copy.deepcopy(network)  # Paddle replaces `forward` of what it compiles
    network.return_all_feats = False
    network.eval()
    spec = InputSpec([None, 3, height, None], "float32", name=IMAGES)
    paddle.jit.save(
        paddle.jit.to_static(network, input_spec=[spec], full_graph=True), str(folder / "inference")
    )
