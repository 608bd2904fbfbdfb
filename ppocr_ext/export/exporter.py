"""Export one recogniser: write all its files, compare them with the network, then publish the folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from ppocr_ext.charset import Charset
from ppocr_ext.config import Config
from ppocr_ext.config.global_keys import DEVICES
from ppocr_ext.errors import CharsetError, ConfigError, ModelError
from ppocr_ext.export.card import CARD_FILE, Description, write_card
from ppocr_ext.export.clients import choose_name
from ppocr_ext.export.verify import (
    Comparison,
    Picture,
    compare,
    eval_images,
    open_forms,
)
from ppocr_ext.inference.comparison import drawn_images
from ppocr_ext.inference.formats import (
    CHARACTERS,
    FORMATS,
    INFERENCE_YML,
    MODEL_FILE,
    MODEL_FILES,
    POLICY,
    Format,
)
from ppocr_ext.inference.graph import Reader, only_width, write_reader
from ppocr_ext.inference.runners import NetworkEngine
from ppocr_ext.io.atomic import atomic_folder, require_own, write_text
from ppocr_ext.messages import LOG
from ppocr_ext.recognition.exported import CHARSET_FILE
from ppocr_ext.recognition.images import WidthPolicy
from ppocr_ext.recognition.opening import RecognizerParts
from ppocr_ext.run.recogniser import TrainedRecogniser, load_recogniser

BOTH = "both"  # value of --format for all rows of FORMATS
# All files that an export may write. model.json comes last, since it has the digests of the others.
FILES = (*MODEL_FILES, INFERENCE_YML, CHARSET_FILE, CARD_FILE, MODEL_FILE)
_EVAL_IMAGES = 4  # number of images of Eval that are compared, besides the drawn ones


@dataclass(frozen=True)
class ExportedModel:
    """A published export.

    Attributes:
        folder: the folder with the files.
        description: the description of the model.
        sizes: bytes of each file.
    """

    folder: Path
    description: Description
    sizes: Mapping[str, int]


def export_trained(
    config: Config,
    output: Path,
    *,
    host_path: str | None = None,
    model: str | None = None,
    old_dictionary: str | None = None,
    **options: Any,
) -> ExportedModel:
    """Load a recogniser on the CPU and export it; the device of its training does not matter.

    Args:
        config: as loaded, of one model or of a distillation, with its weights.
        output: the folder.
        host_path, model, old_dictionary: see :func:`ppocr_ext.run.recogniser.load_recogniser`.
        options: the other arguments of :func:`export_recogniser`.

    Raises:
        PPOCRExtError: see :func:`export_recogniser`.
    """
    trained = load_on_cpu(config, host_path=host_path, model=model, old_dictionary=old_dictionary)
    return export_recogniser(config, trained, output, **options)


def load_on_cpu(config: Config, **choices: Any) -> TrainedRecogniser:
    """Load a recogniser on the CPU, without the devices of its config.

    Args:
        config: as loaded, of one model or of a distillation, with its weights.
        choices: the other arguments of :func:`ppocr_ext.run.recogniser.load_recogniser`.
    """
    devices = (f"Global.use_{kind}" for kind in DEVICES)
    config = config.with_values({key: False for key in devices if config.at(key, default=None)})
    return load_recogniser(config, **choices)


def export_recogniser(
    config: Config,
    trained: TrainedRecogniser,
    output: Path,
    *,
    format: str = BOTH,
    width: int | None = None,
    model_name: str | None = None,
    force: bool = False,
) -> ExportedModel:
    """Write the files of a recogniser, compare each engine with the network, and publish the folder.

    Args:
        config: the config of the training, with all sub-models.
        trained: the recogniser.
        output: the folder.
        format: a name in ``FORMATS``, or ``"both"`` for all of them.
        width: the only width that the graph takes, pixels; None for all that the network takes.
        model_name: the name for PaddleOCR's 3.x client; None to use :func:`ppocr_ext.export.clients.choose_name`.
        force: accept a folder that is not empty.

    Raises:
        PPOCRExtError: a file cannot be written, or computes other numbers than the network. Then the folder does not
            change.
    """
    policy = WidthPolicy.from_config(trained.config)
    width = only_width(trained.network, policy.image_shape) if width is None else width
    policy = policy_of_width(policy, width)
    charset = trained.charset
    name = choose_name(config, trained.sub_model, charset, model_name)
    chosen = [form for key, form in FORMATS.items() if format in (key, BOTH)]
    for form in chosen:
        form.require_packages()
    parts = RecognizerParts(NetworkEngine(trained.network), policy, charset)
    drawn = drawn_images(charset.characters, policy.image_shape[1])
    if force:
        require_own(output, FILES, MODEL_FILE)
    with atomic_folder(output, FILES, force=force) as folder:
        graph = _write_forms(folder, trained, name, policy, width, chosen)
        pictures = [Picture(each) for each in (*eval_images(trained.config, _EVAL_IMAGES), *drawn)]
        comparisons = _of_forms(chosen, compare_files(folder, parts, pictures, width is None), folder)
        description = Description(
            config=config,
            trained=trained,
            parameters=graph.parameters,
            model_name=name,
            policy=policy,
            width=width,
            comparisons=comparisons,
        )
        write_card(folder, output.resolve().name, description, sizes_of(folder))
        description.write(folder, list(sizes_of(folder)))
        sizes = sizes_of(folder)
    return ExportedModel(output, description, sizes)


def _write_forms(
    folder: Path,
    trained: TrainedRecogniser,
    name: str,
    policy: WidthPolicy,
    width: int | None,
    chosen: Sequence[Format],
) -> Reader:
    """Write the graph, the dictionary, ``inference.yml`` and the other forms; return the facts of the graph."""
    charset = trained.charset
    metadata = onnx_metadata(charset, policy) if any(form.write for form in chosen) else {}
    graph = write_reader(trained.network, folder, policy.image_shape, width)
    write_charset(folder / CHARSET_FILE, charset, graph.classes)
    write_inference_yml(folder / INFERENCE_YML, name, policy.image_shape, policy.color, charset.characters)
    for form in chosen:
        if form.write is not None:
            form.write(folder, metadata)
    return graph


def _of_forms(chosen: Sequence[Format], comparisons: Sequence[Comparison], folder: Path) -> list[Comparison]:
    """Return the comparisons of the forms that are exported, and remove the files of the others."""
    for file in set(MODEL_FILES).difference(*(form.files for form in chosen)):
        (folder / file).unlink(missing_ok=True)
    return [each for each in comparisons if any(each.name in form.openers for form in chosen)]


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
            f"--width {width}: this model squashes each image to {trained} pixels (`padding: false`) and reads no "
            f"other width. Fix: --width {trained}, or leave it out.",
            code="bad_width",
        )
    if policy.kind == "squash":
        return policy
    LOG.warning(
        "width %d: the graph fails on other widths, and longer images are squeezed. The client of PaddleOCR 3.x "
        "widens its input, so it cannot read long images with this model.",
        width,
    )
    return replace(policy, kind="pad", image_shape=(3, height, width))


def compare_files(
    folder: Path, trained: RecognizerParts, pictures: Sequence[Picture], any_width: bool
) -> list[Comparison]:
    """Compare the written files with the network, as ``ppocr-ext verify`` does.

    Args:
        folder: has the files of an export.
        trained: the network with its width policy and its dictionary.
        pictures: a few images.
        any_width: the graph should take every width.

    Returns:
        One comparison for each form.

    Raises:
        ModelError: a file computes other numbers, or its engine fails.
        WeightsError: a file cannot be opened.
    """
    forms, failed = open_forms(folder, trained.policy, trained.charset.direction)
    if failed:
        raise next(iter(failed.values()))
    _, *comparisons = compare("trained network", trained, forms, (), pictures, any_width)
    for comparison in comparisons:
        if comparison.faults:
            faults = "".join(f"\n  {fault}" for fault in comparison.faults)
            raise ModelError(
                f"The written model differs from the network by more than rounding explains ({comparison}), so "
                f"nothing is published. Fix: export again; if it differs again, report it with the config: Paddle or "
                f"the converter cannot express this network.{faults}",
                code="export_differs",
            )
    return comparisons


def sizes_of(folder: Path) -> dict[str, int]:
    """Return the bytes of each file of an export."""
    return {name: (folder / name).stat().st_size for name in FILES if (folder / name).is_file()}


def write_charset(path: Path, charset: Charset, classes: int) -> None:
    """Write one line for each class but the blank, in UTF-8, with the space if ``use_space_char`` adds it.

    Args:
        path: the file.
        charset: the dictionary of the model.
        classes: the number of classes of the network's CTC output, the blank included.

    Raises:
        ModelError: the network has another number of classes.
        CharsetError: a reader would get another list, since a character has a line break.
    """
    if classes != charset.ctc_classes:
        raise ModelError(
            f"The network has {classes} classes, but {charset.name} needs {charset.ctc_classes}: its "
            f"{len(charset.characters)} characters and the blank. Fix: give the dictionary of the weights.",
            code="class_mismatch",
        )
    write_text(path, "".join(f"{character}\n" for character in charset.characters))
    read_back = tuple(path.read_bytes().decode("utf-8").removesuffix("\n").split("\n"))
    if read_back != charset.characters or any(line != line.strip("\r") for line in read_back):
        raise CharsetError(
            f"{charset.name}: a character contains a line break, so programs would read {path.name} wrongly. Fix: "
            f"remove it from the dictionary, and train with the new one (--old-dict carries weights over).",
            code="bad_dictionary",
        )


def onnx_metadata(charset: Charset, policy: WidthPolicy) -> dict[str, str]:
    """Return the metadata of ``inference.onnx``, with which it can be read without the other files.

    The dictionary has RapidOCR's key and format: lines, which RapidOCR splits by ``splitlines()``.

    Raises:
        CharsetError: ``splitlines()`` would give another list.
    """
    text = "\n".join(charset.characters)
    lines = text.splitlines()
    if lines == list(charset.characters):
        policy_text = json.dumps({**policy.to_json(), "text_direction": charset.direction})
        return {CHARACTERS: text, POLICY: policy_text}
    breaks = [character for character in charset.characters if character.splitlines() != [character]]
    named = ", ".join("an empty line" if not c else "+".join(f"U+{ord(u):04X}" for u in c) for c in breaks)
    raise CharsetError(
        f"{charset.name}: RapidOCR would split the dictionary into {len(lines)} characters (expected "
        f"{len(charset.characters)}), since it has {named}. Fix: export with --format paddle, or remove it from the "
        f"dictionary.",
        code="bad_dictionary",
    )


def write_inference_yml(
    path: Path, model_name: str, image_shape: Sequence[int], color: str, characters: Sequence[str]
) -> None:
    """Write ``inference.yml``, read it as the client does, and compare.

    Args:
        path: the file.
        model_name: one of :data:`ppocr_ext.export.clients.CLIENT_NAMES`.
        image_shape: [channels, height, width].
        color: order of the channels, ``"BGR"`` or ``"RGB"``.
        characters: the character of each class but the blank.

    Raises:
        CharsetError: YAML cannot hold a character.
    """
    expected = {
        "Global": {"model_name": model_name},
        "PreProcess": {
            "transform_ops": [
                {"DecodeImage": {"channel_first": False, "img_mode": color}},
                {"RecResizeImg": {"image_shape": list(image_shape)}},
                {"KeepKeys": {"keep_keys": ["image"]}},
            ]
        },
        "PostProcess": {"name": "CTCLabelDecode", "character_dict": list(characters)},
    }
    write_text(path, _text(model_name, image_shape, color, characters))
    if yaml.safe_load(path.read_bytes()) != expected:
        raise CharsetError(
            f"{path.name}: the client would read another dictionary. Fix: remove control characters from the "
            f"dictionary.",
            code="bad_dictionary",
        )


def _text(model_name: str, image_shape: Sequence[int], color: str, characters: Sequence[str]) -> str:
    """Return the YAML: every character in double quotes; unprintable ones are escaped."""
    lines = [
        "Global:",
        f"  model_name: {model_name}",
        "PreProcess:",
        "  transform_ops:",
        "  - DecodeImage:",
        "      channel_first: false",
        f"      img_mode: {color}",
        "  - RecResizeImg:",
        f"      image_shape: [{', '.join(map(str, image_shape))}]",
        "  - KeepKeys:",
        "      keep_keys: [image]",
        "PostProcess:",
        "  name: CTCLabelDecode",
        "  character_dict:",
        *(f"  - {quoted(character)}" for character in characters),
    ]
    return "\n".join(lines) + "\n"


def quoted(text: str) -> str:
    """Return ``text`` as a double-quoted scalar of YAML."""
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(letter: str) -> str:
    if letter in '"\\':
        return f"\\{letter}"
    if letter.isprintable():
        return letter
    code = ord(letter)
    return f"\\u{code:04X}" if code <= 0xFFFF else f"\\U{code:08X}"
