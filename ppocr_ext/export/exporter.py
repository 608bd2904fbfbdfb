"""Export one recogniser: write all its files, compare them with the network, and only then publish the folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from ppocr_ext.config import Config
from ppocr_ext.config.global_keys import DEVICES
from ppocr_ext.engine.runners import GRAPH, ONNX, WEIGHTS
from ppocr_ext.errors import ConfigError
from ppocr_ext.export.card import CARD_FILE, write_card
from ppocr_ext.export.description import Description, describe, write_model_json
from ppocr_ext.export.dictionary_files import onnx_metadata, write_charset
from ppocr_ext.export.graph import write_graph
from ppocr_ext.export.inference_yml import INFERENCE_YML, write_inference_yml
from ppocr_ext.export.model_names import choose_name
from ppocr_ext.export.onnx_file import require_converter, write_onnx
from ppocr_ext.export.policy_accuracy import accuracy_by_policy
from ppocr_ext.export.sample_images import drawn_images, eval_images
from ppocr_ext.export.vectors import VECTORS_FILE, write_vectors
from ppocr_ext.export.verify import Comparison, Picture, compare, require_equal
from ppocr_ext.export.verify_readers import dictionary_faults, open_readers
from ppocr_ext.io.atomic import atomic_folder
from ppocr_ext.messages import LOG
from ppocr_ext.recognition.engines import NetworkEngine
from ppocr_ext.recognition.exported import CHARSET_FILE, MODEL_FILE
from ppocr_ext.recognition.opening import RecognizerParts
from ppocr_ext.recognition.resize import WidthPolicy
from ppocr_ext.run.recogniser import TrainedRecogniser, load_recogniser

Format = Literal["paddle", "onnx", "both"]
# all that an export may write; model.json is the last, and has the digests of the others
FILES = (GRAPH, WEIGHTS, INFERENCE_YML, ONNX, CHARSET_FILE, VECTORS_FILE, CARD_FILE, MODEL_FILE)
_COMPARED = 4  # images of Eval, besides the drawn ones


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """How a recogniser is exported.

    Attributes:
        output: the folder.
        format: files for Paddle Inference, for ONNX Runtime, or both.
        width: the only width that the graph takes, pixels; None: every width.
        model_name: under which PaddleOCR's 3.x client loads it; None: see
            :func:`ppocr_ext.export.model_names.choose_name`.
        force: accept a folder that is not empty.
        data: a label file to evaluate the width policies on, if any.
    """

    output: Path
    format: Format = "both"
    width: int | None = None
    model_name: str | None = None
    force: bool = False
    data: Path | None = None


@dataclass(frozen=True)
class ExportedModel:
    """What was written.

    Attributes:
        folder: where to.
        description: of the model.
        sizes: bytes of each file.
        comparisons: of each file with the network.
    """

    folder: Path
    description: Description
    sizes: Mapping[str, int]
    comparisons: Sequence[Comparison]


def export_trained(config: Config, options: ExportOptions, **choices: Any) -> ExportedModel:
    """Load a recogniser on the CPU, whatever device it was trained on, and export it.

    Args:
        config: as loaded, of one model or of a distillation, with its weights.
        options: how to export it.
        choices: the arguments of :func:`ppocr_ext.run.recogniser.load_recogniser`: ``host_path``, ``model``,
            ``old_dictionary``.

    Raises:
        PPOCRExtError: see :func:`export_recogniser`.
    """
    return export_recogniser(config, load_on_cpu(config, **choices), options)


def load_on_cpu(config: Config, **choices: Any) -> TrainedRecogniser:
    """Load a recogniser on the CPU, whatever its config says of devices.

    Args:
        config: as loaded, of one model or of a distillation, with its weights.
        choices: the other arguments of :func:`ppocr_ext.run.recogniser.load_recogniser`.
    """
    devices = (f"Global.use_{kind}" for kind in DEVICES)
    config = config.with_values({key: False for key in devices if config.at(key, default=None)})
    return load_recogniser(config, **choices)


def export_recogniser(config: Config, trained: TrainedRecogniser, options: ExportOptions) -> ExportedModel:
    """Write the files of a recogniser, compare each engine with the network, and publish the folder.

    Args:
        config: of the training, with all sub-models.
        trained: the recogniser.
        options: how to export it.

    Raises:
        PPOCRExtError: something cannot be written, or computes something else than the network; the folder is then
            as it was before.
    """
    policy = policy_of_width(WidthPolicy.from_config(trained.config), options.width)
    charset, width = trained.charset, options.width
    name = choose_name(config, trained.sub_model, charset, options.model_name)
    metadata = None
    if options.format != "paddle":
        require_converter()
        metadata = onnx_metadata(charset, policy)
    parts = RecognizerParts(NetworkEngine(trained.network), policy, charset)
    drawn = drawn_images(charset, policy.image_shape[1])
    with atomic_folder(options.output, FILES, force=options.force) as folder:
        graph = write_graph(trained.network, folder, policy.image_shape, width)
        write_charset(folder / CHARSET_FILE, charset, graph.classes)
        yml = folder / INFERENCE_YML
        write_inference_yml(yml, name, policy.image_shape, policy.color, charset.characters)
        if metadata is not None:
            write_onnx(folder, metadata)
        pictures = [*map(Picture, eval_images(trained.config, _COMPARED)), *map(Picture, drawn)]
        comparisons = compare_files(folder, parts, pictures, any_width=width is None)
        if options.format == "onnx":
            for file in (GRAPH, WEIGHTS):
                (folder / file).unlink()
        write_vectors(folder / VECTORS_FILE, drawn, parts)
        accuracy: dict[str, float] = {}
        if options.data is not None:
            accuracy = accuracy_by_policy(parts, options.data, width)
        choices = {"model_name": name, "policy": policy, "width": width, "accuracy": accuracy}
        description = describe(config, trained, graph.parameters, **choices)
        write_card(folder, options.output.resolve().name, description, sizes_of(folder))
        write_model_json(folder, description, list(sizes_of(folder)))
        sizes = sizes_of(folder)
    return ExportedModel(options.output, description, sizes, comparisons)


def policy_of_width(policy: WidthPolicy, width: int | None) -> WidthPolicy:
    """Return the policy of a graph that takes only one width; ``policy`` if it takes every width.

    Raises:
        ConfigError: the model squashes images to another width.
    """
    if width is None:
        return policy
    _, height, trained = policy.image_shape
    if policy.kind == "squash":
        if width != trained:
            raise ConfigError(
                f"--width {width}: this model squashes each image to {trained} pixels (`padding: false`), and reads "
                f"no other width. Fix: --width {trained}, or leave it out.",
                code="bad_width",
            )
        return policy
    LOG.warning(
        "--width %d: the graph fails on every other width, and longer images are squeezed. The client of PaddleOCR 3.x "
        "widens its input, so it cannot use this model for them.",
        width,
    )
    return replace(policy, kind="pad", image_shape=(3, height, width))


def compare_files(
    folder: Path, trained: RecognizerParts, pictures: Sequence[Picture], any_width: bool
) -> list[Comparison]:
    """Compare what was written with the network, as ``ppocr-ext verify`` does.

    Args:
        folder: has the files of an export.
        trained: the network with its width policy and its dictionary.
        pictures: a few images.
        any_width: the graph should take every width.

    Returns:
        One comparison for each form.

    Raises:
        ModelError: a file computes something else, or its engine fails.
        WeightsError: a file cannot be opened.
    """
    readers, failed = open_readers(folder, trained.policy, trained.reorder)
    if failed:
        raise next(iter(failed.values()))
    comparisons = []
    for reader in readers:
        comparison = compare(trained, reader, pictures, any_width)
        comparison.add_faults(dictionary_faults(trained.charset, reader))
        require_equal(comparison)
        comparisons.append(comparison)
    return comparisons


def sizes_of(folder: Path) -> dict[str, int]:
    """Return the bytes of each file of an export."""
    return {name: (folder / name).stat().st_size for name in FILES if (folder / name).is_file()}
