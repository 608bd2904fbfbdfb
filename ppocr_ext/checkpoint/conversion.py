"""Turn a released inference model into weights of the network that trains, with ``fused: true``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paddle

from ppocr_ext.base.parts import MULTI_HEAD
from ppocr_ext.charset import Charset
from ppocr_ext.checkpoint.files import tensors_to_bytes
from ppocr_ext.checkpoint.official_weights import config_of, not_writable, table
from ppocr_ext.config import Config, load
from ppocr_ext.config.derive import with_class_counts
from ppocr_ext.data.preprocessing import read_preprocessing
from ppocr_ext.errors import MissingPackageError, WeightsError
from ppocr_ext.inference.comparison import distance, text_inputs
from ppocr_ext.inference.formats import ExportedEngine
from ppocr_ext.inference.graph_units import read_units
from ppocr_ext.inference.released import ReleasedModel
from ppocr_ext.io.atomic import write_bytes, write_text
from ppocr_ext.io.resources import cache_folder, config_root
from ppocr_ext.limits import json_object, read_at_most
from ppocr_ext.messages import LOG
from ppocr_ext.modeling import build_model
from ppocr_ext.modeling.backbones.conv_parts import FrameBackbone
from ppocr_ext.modeling.restore import Match, Unit, fill, match_units
from ppocr_ext.registry import BACKBONES

_SAME = 1e-3  # the largest difference of probabilities; those of docs/results.md differed by 8e-6 at most
_MAX_FACTS = 1000  # bytes of the description of a conversion
_FORMAT = 1  # of the files of conversions; a change converts again


@dataclass(frozen=True)
class Conversion:
    """A released model in the form that trains.

    Attributes:
        file: the ``.pdparams``, of a network with a CTC head alone and ``fused: true``.
        config: the shipped config of the network, such as ``pp-ocr/v6_small.yml``.
        classes: CTC classes, with the blank.
        difference: the largest difference of its probabilities from those of the model; None if it was not compared.
    """

    file: Path
    config: str
    classes: int
    difference: float | None


def ctc_alone(architecture: Config) -> dict[str, Any]:
    """Return a section ``Architecture`` for the weights of a released inference model.

    Such a model has no branches that only guide the training of CTC. With ``use_guide`` in the neck only those train
    the backbone, so it is switched off. Convolutions are in one piece, and there is a frame for 8 pixels.

    Args:
        architecture: of one recogniser, with a CTC head or a MultiHead.
    """
    plain: dict[str, Any] = architecture.thaw()
    if plain["Head"]["name"] == MULTI_HEAD:
        plain["Head"]["head_list"] = [each for each in plain["Head"]["head_list"] if "CTCHead" in each]
        for entry in plain["Head"]["head_list"]:
            neck = entry["CTCHead"].get("Neck") or {}
            if "use_guide" in neck:
                neck["use_guide"] = False
    backbone = BACKBONES.get(plain["Backbone"]["name"])
    if isinstance(backbone, type) and issubclass(backbone, FrameBackbone):
        plain["Backbone"]["train_frames"] = "width"
    return {**plain, "fused": True}


def conversion_of(model: ReleasedModel, *, trusted: bool = False) -> Conversion:
    """Return the weights of a released model in the form that trains, from the cache folder if they are there.

    Args:
        model: its files.
        trusted: run a model that is not known, to compare its outputs with those of the network.

    Raises:
        WeightsError: the files are damaged, the cache folder cannot be written to, the model is of a network that this
            package does not have, or the network computes other outputs, now or in an earlier comparison.
    """
    file = cache_folder("weights") / "converted" / f"{model.digest}.{_FORMAT}.pdparams"
    facts = file.with_suffix(".json")
    runs = trusted or model.is_known
    try:
        result: Conversion | None = Conversion(file, **json_object(read_at_most(facts, _MAX_FACTS)))
    except (OSError, ValueError, TypeError):  # not there, or damaged
        result = None
    if result is None or not file.is_file() or (runs and result.difference is None):
        try:
            result = _convert(model, file, runs)
            write_text(
                facts, json.dumps({key: value for key, value in vars(result).items() if key != "file"})
            )
        except OSError as error:
            raise not_writable(file.parent, error) from error
    if (result.difference or 0) > _SAME:
        raise WeightsError(
            f"{model.graph}: with its weights, the network computes other probabilities than the model (difference "
            f"{result.difference:.1e}, at most {_SAME:.0e} is expected). Fix: get graph and weights of one download.",
            code="other_network",
        )
    return result


def _convert(model: ReleasedModel, file: Path, runs: bool) -> Conversion:
    """Write the weights of a released model to ``file``; if ``runs``, compare its outputs with the network's.

    Raises:
        WeightsError: as :func:`conversion_of`.
    """
    units = read_units(model.graph, model.weights)
    linear = next((unit for unit in reversed(units) if unit.kind == "linear"), None)
    if linear is None:
        raise WeightsError(
            f"{model.graph} has no classifier, so it is not a text recogniser. Fix: give a model such as "
            "PP-OCRv6_small_rec.",
            code="not_a_recogniser",
        )
    classes = linear.kernel.shape[1]
    name, network, match = _matching_network(model, units, classes)
    filled = set(fill(match.pairs))
    difference = _difference(model, network, _image_shape(load(config_root() / name))) if runs else None
    state = {
        # no output depends on the others, which official weights have
        key: tensor if key in filled else paddle.zeros_like(tensor)
        for key, tensor in network.state_dict().items()
    }
    write_bytes(file, tensors_to_bytes(state))
    LOG.info("%s: %d entries of %s, %s classes", model.source, len(filled), name, f"{classes:,}")
    return Conversion(file, name, classes, difference)


def _matching_network(
    model: ReleasedModel, units: list[Unit], classes: int
) -> tuple[str, paddle.nn.Layer, Match]:
    """Return the shipped config whose network has these units, the network and the match.

    If the name of the model is known, its config alone is tried, else those of all single recognisers.

    Raises:
        WeightsError: there is none; the message names the first layer of the nearest one that does not fit.
    """
    nearest, problem = -1, ""
    known = config_of(model.name or "")
    names = [known] if known is not None else map(config_of, table())
    for name in filter(None, dict.fromkeys(names)):
        config = load(config_root() / name)
        counted = with_class_counts(config, Charset(tuple(map(str, range(classes - 1)))))
        network = build_model(ctc_alone(counted.at("Architecture")))
        match = match_units(network, units, _image_shape(config))
        if not match.problem:
            return name, network, match
        if len(match.pairs) > nearest:
            nearest, problem = len(match.pairs), f"{name}: {match.problem}"
    raise WeightsError(
        f"{model.graph} is none of the networks that can be trained here. The nearest is {problem}.\n"
        "Fix: give the inference model of a recogniser in docs/weights.md, graph and weights of one download.",
        code="other_network",
    )


def _image_shape(config: Config) -> tuple[int, int, int]:
    """Return [C, H, W] of the images of a shipped config in evaluation."""
    steps = read_preprocessing(config, "Eval")
    assert steps is not None  # shipped configs resize their images
    return steps.sizes[0]


@paddle.no_grad()
def _difference(
    model: ReleasedModel, network: paddle.nn.Layer, image_shape: tuple[int, int, int]
) -> float | None:
    """Return the largest difference of probabilities of model and network from drawn text; None without an engine."""
    try:
        engine = ExportedEngine(model.form, model.graph, files=model.files)
    except MissingPackageError as error:
        LOG.warning("%s cannot be run: %s", model.source, error)
        return None
    images = text_inputs((2, *image_shape))
    difference = distance(engine.probabilities(images), network(paddle.to_tensor(images)).numpy())
    LOG.info("%s: the largest difference of probabilities is %.1e", model.source, difference)
    return difference
