"""Export one recogniser: write all its files, compare them with the network, and only then publish the folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
from tqdm import tqdm

from ppocr_ext.config import Config
from ppocr_ext.config.global_keys import DEVICES
from ppocr_ext.data.label_file import read_label_file
from ppocr_ext.errors import ConfigError, DataError, ModelError
from ppocr_ext.export.card import CARD_FILE, Description, describe, write_card
from ppocr_ext.export.clients import CLIENT_WIDTH, choose_name
from ppocr_ext.export.files import (
    INFERENCE_YML,
    VECTORS_FILE,
    onnx_metadata,
    write_charset,
    write_inference_yml,
    write_vectors,
)
from ppocr_ext.export.verify import (
    Comparison,
    Picture,
    compare,
    eval_images,
    open_forms,
)
from ppocr_ext.inference.comparison import drawn_images
from ppocr_ext.inference.formats import FORMATS, MODEL_FILES
from ppocr_ext.inference.graph import write_reader
from ppocr_ext.inference.runners import NetworkEngine
from ppocr_ext.io.atomic import atomic_folder
from ppocr_ext.messages import LOG
from ppocr_ext.recognition.ctc_text import read
from ppocr_ext.recognition.images import read_image
from ppocr_ext.recognition.opening import CHARSET_FILE, MODEL_FILE, RecognizerParts
from ppocr_ext.recognition.resize import Kind, WidthPolicy
from ppocr_ext.run.recogniser import TrainedRecogniser, load_recogniser

BOTH = "both"  # all forms
# all that an export may write; model.json is the last, and has the digests of the others
FILES = (*MODEL_FILES, INFERENCE_YML, CHARSET_FILE, VECTORS_FILE, CARD_FILE, MODEL_FILE)
_COMPARED = 4  # images of Eval, besides the drawn ones


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """How a recogniser is exported.

    Attributes:
        output: the folder.
        format: a name in ``FORMATS``, or ``"both"`` for all of them.
        width: the only width that the graph takes, pixels; None: every width.
        model_name: under which PaddleOCR's 3.x client loads it; None: see
            :func:`ppocr_ext.export.clients.choose_name`.
        force: accept a folder that is not empty.
        data: a label file to evaluate the width policies on, if any.
    """

    output: Path
    format: str = BOTH
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
    chosen = [form for key, form in FORMATS.items() if options.format in (key, BOTH)]
    for form in chosen:
        form.require_packages()
    metadata = onnx_metadata(charset, policy) if any(form.write for form in chosen) else {}
    parts = RecognizerParts(NetworkEngine(trained.network), policy, charset)
    drawn = drawn_images(charset.characters, policy.image_shape[1])
    with atomic_folder(options.output, FILES, force=options.force) as folder:
        graph = write_reader(trained.network, folder, policy.image_shape, width)
        write_charset(folder / CHARSET_FILE, charset, graph.classes)
        yml = folder / INFERENCE_YML
        write_inference_yml(yml, name, policy.image_shape, policy.color, charset.characters)
        for form in chosen:
            if form.write is not None:
                form.write(folder, metadata)
        pictures = [*map(Picture, eval_images(trained.config, _COMPARED)), *map(Picture, drawn)]
        comparisons = compare_files(folder, parts, pictures, any_width=width is None)
        for file in MODEL_FILES:
            if all(file not in form.files for form in chosen):
                (folder / file).unlink(missing_ok=True)
        write_vectors(folder / VECTORS_FILE, drawn, parts)
        accuracy = accuracy_by_policy(parts, options.data, width) if options.data else {}
        choices = {"model_name": name, "policy": policy, "width": width, "accuracy": accuracy}
        description = describe(config, trained, graph.parameters, **choices)
        write_card(folder, options.output.resolve().name, description, sizes_of(folder))
        description.write(folder, list(sizes_of(folder)))
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
    if policy.kind == "squash" and width != trained:
        raise ConfigError(
            f"--width {width}: this model squashes each image to {trained} pixels (`padding: false`), and reads "
            f"no other width. Fix: --width {trained}, or leave it out.",
            code="bad_width",
        )
    if policy.kind == "squash":
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
    forms, failed = open_forms(folder, trained.policy, trained.reorder)
    if failed:
        raise next(iter(failed.values()))
    _, *comparisons = compare("trained network", trained, forms, (), pictures, any_width)
    for found in comparisons:
        if found.agrees():
            continue
        pair = f" It reads {found.texts[0][1]!r} for {found.texts[0][0]!r}." if found.texts else ""
        steps = "".join(f"\n  {fault}" for fault in found.faults)
        raise ModelError(
            f"What was written does not compute what the network computes ({found}), so nothing is published.{pair} "
            f"Fix: export again; if it stays so, report it with the config: Paddle or the converter cannot express "
            f"this network.{steps}",
            code="export_differs",
        )
    return comparisons


def sizes_of(folder: Path) -> dict[str, int]:
    """Return the bytes of each file of an export."""
    return {name: (folder / name).stat().st_size for name in FILES if (folder / name).is_file()}


def accuracy_by_policy(
    parts: RecognizerParts, label_file: Path, width: int | None = None
) -> dict[str, float]:
    """Return the share of samples whose text equals the label, by width policy.

    Args:
        parts: the model, the policy that it was trained with, and its dictionary.
        label_file: ``image<TAB>label`` lines; images are relative to its folder.
        width: the only width that the model takes; None: every width.

    Raises:
        DataError: the file has no sample, or an image cannot be read.
        WeightsError: the engine's classes are not those of the dictionary.
    """
    kinds: list[Kind] = [kind for kind in get_args(Kind) if width is None or kind != "widen"]
    policies = [
        replace(parts.policy, kind=kind, max_width=CLIENT_WIDTH if kind == "widen" else None)
        for kind in kinds
    ]
    right, count = dict.fromkeys(kinds, 0), 0
    for image, label in tqdm(_samples(label_file), desc="width policies", unit=" images", disable=None):
        count += 1
        for each in policies:  # one image at a time: a batch needs one width
            found = parts.probabilities(each.prepare(image)[None])[0]
            right[each.kind] += read(found, parts.charset, reorder=parts.reorder).text == label
    if not count:
        raise DataError(f"{label_file} has no sample. Fix: write `image<TAB>label` lines.", code="no_samples")
    return {kind: correct / count for kind, correct in right.items()}


def _samples(label_file: Path) -> Iterator[tuple[np.ndarray, str]]:
    for line in read_label_file(label_file):
        if line.issue is not None:
            raise DataError(f"{label_file}:{line.number}: {line.issue}", code="bad_line")
        yield read_image(label_file.parent / line.images[0]), line.label
