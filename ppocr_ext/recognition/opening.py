"""Open a recogniser from a run, a config, an exported folder or an ONNX file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ppocr_ext.charset import Charset
from ppocr_ext.config import Config
from ppocr_ext.config.global_keys import NETWORK, PADDLE
from ppocr_ext.errors import ConfigError, DataError, MissingPackageError, WeightsError
from ppocr_ext.inference.formats import CHARACTERS, FORMATS, MODEL_FILE, POLICY, ExportedEngine
from ppocr_ext.inference.runners import ONNX, Engine, NetworkEngine, NrtrEngine
from ppocr_ext.io.resources import file_digest
from ppocr_ext.limits import MAX_DICTIONARY_BYTES, read_at_most
from ppocr_ext.recognition.ctc_text import best_classes
from ppocr_ext.recognition.images import WidthPolicy

ENGINES = (NETWORK, *FORMATS)  # the network itself, and the forms of an exported model
CHARSET_FILE = "charset.txt"
FORMAT = 1  # version of model.json
_ONNX = "onnx"  # the form that one file can hold
_EXPORT = "Fix: give a folder or an ONNX file that `ppocr-ext export` wrote; export the model again if it is damaged."


@dataclass(frozen=True)
class RecognizerParts:
    """The parts of a :class:`Recognizer`.

    Attributes:
        engine: computes the probabilities of CTC, or the characters of an NRTR decoder.
        policy: prepares the images.
        charset: the dictionary.
        reorder: see :func:`ppocr_ext.recognition.ctc_text.read`.
    """

    engine: Engine
    policy: WidthPolicy
    charset: Charset
    reorder: bool | None = None

    def best(self, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the best class of each frame and its probability, [B, T]; for NRTR those of each character.

        Args:
            inputs: prepared images, float32 [B, 3, H, W].

        Raises:
            WeightsError: the engine's classes are not those of the dictionary.
            ModelError: the head returns no NRTR characters.
        """
        if isinstance(self.engine, NrtrEngine):
            return self.engine.decode(inputs)
        return best_classes(self.probabilities(inputs))

    def probabilities(self, inputs: np.ndarray) -> np.ndarray:
        """Return the probabilities of a CTC recogniser: float32 [B, T, C].

        Args:
            inputs: prepared images, float32 [B, 3, H, W].

        Raises:
            WeightsError: the engine's classes are not those of the dictionary.
        """
        probabilities = self.engine.probabilities(inputs)
        if probabilities.shape[2] != self.charset.ctc_classes:
            raise WeightsError(
                f"the model has {probabilities.shape[2]} classes, but {self.charset.name} and the blank are "
                f"{self.charset.ctc_classes}. Fix: give the dictionary that it was trained with.",
                code="charset_mismatch",
            )
        return probabilities


Source = str | PathLike[str] | Config | RecognizerParts


@dataclass(frozen=True, kw_only=True)
class OpenOptions:
    """How a recogniser is opened; the attributes are those of :class:`ppocr_ext.recognition.recognizer.Recognizer`."""

    engine: str | None = None
    threads: int | None = None
    device: Literal["cpu", "gpu"] | None = None
    options: Sequence[str] = ()
    model: str | None = None
    host_path: str | None = None
    old_dictionary: str | None = None
    trust_model: bool = False

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ConfigError: there is no such engine or device, or ``threads`` is less than 1.
        """
        for name, value, choices in (
            ("engine", self.engine, ENGINES),
            ("device", self.device, ("cpu", "gpu")),
        ):
            if value is not None and value not in choices:
                raise ConfigError(
                    f"{name} is {value!r}, but must be one of {', '.join(choices)}.", code="bad_value"
                )
        if self.threads is not None and self.threads < 1:
            raise ConfigError(f"threads is {self.threads}, but must be at least 1.", code="bad_value")

    @property
    def of_training(self) -> list[str]:
        """Return the names of the given options that an exported model does not take."""
        values = {
            "engine network": self.engine == "network",
            "device gpu": self.device == "gpu",
            "-o": self.options,
            "--model": self.model,
            "--host": self.host_path,
            "--old-dict": self.old_dictionary,
        }
        return [name for name, value in values.items() if value]


def open_parts(source: Source, options: OpenOptions) -> RecognizerParts:
    """Return the parts of a recogniser.

    Args:
        source: see :class:`ppocr_ext.recognition.recognizer.Recognizer`.
        options: how to open it.

    Raises:
        PPOCRExtError: it cannot be opened; the message says what to change.
    """
    if isinstance(source, RecognizerParts):
        return source
    if isinstance(source, Config):
        if options.options:
            raise ConfigError(
                "options cannot change a config that is loaded already. Fix: give them to "
                "ppocr_ext.config.load(file, options).",
                code="unsupported_option",
            )
        return _of_config(source, "a config", options)
    path = Path(fspath(source))
    if not is_exported(path):
        return _of_run(path, options)
    if options.of_training:
        raise ConfigError(
            f"{path} is an exported model, which does not take {', '.join(options.of_training)}. Fix: leave it out, or "
            f"give the folder of the run.",
            code="unsupported_option",
        )
    return _of_onnx(path, options) if _is_onnx(path) else _of_export(read_exported(path), options)


def is_exported(path: Path) -> bool:
    """Return True for a folder or an ONNX file that ``ppocr-ext export`` wrote; False for a run or a config."""
    return _is_onnx(path) or (path / MODEL_FILE).is_file()


def _is_onnx(path: Path) -> bool:
    return path.suffix == ".onnx"


def _of_run(path: Path, options: OpenOptions) -> RecognizerParts:
    """Return the parts of a run folder or a config file."""
    if not path.exists() and path.suffix not in (".yml", ".yaml"):
        raise DataError(
            f"{path}: no such file or folder. Fix: give the folder of a run, a config file, or a folder or ONNX file "
            f"that `ppocr-ext export` wrote.",
            code="missing_file",
        )
    if path.suffix in (".pdparams", ".pdiparams", ".json"):
        raise DataError(
            f"{path} is one file of several. Fix: give its folder; to read with a checkpoint other than the best one, "
            f"add -o Global.checkpoints=PATH.",
            code="not_a_recogniser",
        )
    from ppocr_ext.run.recogniser import recogniser_config  # imports Paddle

    return _of_config(recogniser_config(path, options.options), str(path), options)


def _of_config(config: Config, name: str, options: OpenOptions) -> RecognizerParts:
    """Return the parts of a trained network."""
    from ppocr_ext.run.recogniser import decoded_by_nrtr, load_recogniser  # imports Paddle

    by_nrtr = decoded_by_nrtr(config)
    if options.engine not in (None, NETWORK) and (by_nrtr or options.engine != PADDLE):
        reason = "is decoded by NRTR" if by_nrtr else "is not exported (`ppocr-ext export`)"
        raise ConfigError(
            f"engine: {options.engine} cannot read {name}, which {reason}. Fix: leave the engine out.",
            code="unsupported_engine",
        )
    if options.threads is not None and options.engine != PADDLE:
        raise ConfigError(
            f"threads can be set for the engines onnx and paddle only, but {name} is read by its network. Fix: leave "
            f"threads out{'' if by_nrtr else ', or give --engine paddle'}.",
            code="unsupported_option",
        )
    if options.device is not None:
        config = config.with_values({"Global.use_gpu": options.device == "gpu"})
    policy = WidthPolicy.from_config(config)
    trained = load_recogniser(
        config,
        host_path=options.host_path,
        model=options.model,
        old_dictionary=options.old_dictionary,
        nrtr=True,
    )
    network = trained.network
    if options.engine == PADDLE:
        from ppocr_ext.inference.compiled import CompiledNetwork

        network = CompiledNetwork(network, network.eval_request, threads=options.threads)
    return RecognizerParts((NrtrEngine if by_nrtr else NetworkEngine)(network), policy, trained.charset)


def _of_export(exported: Exported, options: OpenOptions) -> RecognizerParts:
    """Return the parts of an exported folder, with the first engine that has its files and is installed.

    Raises:
        MissingPackageError: no engine is installed.
        WeightsError: a file is missing or is not the one that was exported.
    """
    names = (
        [options.engine]
        if options.engine
        else [name for name, form in FORMATS.items() if exported.has(*form.files)]
    )
    missing: MissingPackageError | None = None
    for name in names:
        exported.check(*FORMATS[name].files)
        try:
            engine = ExportedEngine(name, exported.folder, threads=options.threads)
        except MissingPackageError as error:
            missing = missing or error
        else:
            return RecognizerParts(engine, exported.policy, exported.charset, exported.reorder)
    raise missing or WeightsError(
        f"{exported.folder}: {MODEL_FILE} lists no form of the model (expected {' or '.join(FORMATS)}). Fix: export "
        f"the model again.",
        code="missing_file",
    )


def _of_onnx(file: Path, options: OpenOptions) -> RecognizerParts:
    """Return the parts of an ONNX file, described by the ``model.json`` beside it or by its own metadata.

    Raises:
        WeightsError: no ``model.json`` is beside it, and ``trust_model`` is not set.
    """
    if options.engine == PADDLE:
        raise ConfigError(
            f"engine: paddle cannot read {file}. Fix: give its folder, or leave the engine out.",
            code="unsupported_engine",
        )
    if file.name == ONNX and (file.parent / MODEL_FILE).is_file():
        return _of_export(read_exported(file.parent), replace(options, engine=_ONNX))
    if not options.trust_model and file.is_file():
        raise WeightsError(
            f"{file}: no {MODEL_FILE} beside it has its digest, and a model is a program. Fix: give the whole exported "
            f"folder, or --trust-model (`Recognizer`: trust_model=True) if you trust it.",
            code="unknown_model",
        )
    return parts_of_metadata(_ONNX, file, threads=options.threads)


def parts_of_metadata(form: str, place: Path, **options: Any) -> RecognizerParts:
    """Return the parts of an exported file, described by its own metadata.

    Args:
        form: the name of its form in ``FORMATS``.
        place: the file, or its folder.
        options: the other arguments of :class:`ppocr_ext.inference.formats.ExportedEngine`.

    Raises:
        WeightsError: it cannot be opened, or has no dictionary or no width policy.
        DataError: the width policy is damaged.
    """
    engine = ExportedEngine(form, place, **options)
    for key, what in ((CHARACTERS, "dictionary"), (POLICY, "width policy")):
        if key not in engine.metadata:
            raise WeightsError(
                f"{place} has no {what} (no {key!r} in its metadata), so `ppocr-ext export` did not write it. Fix: "
                f"give a file that it wrote, with the {MODEL_FILE} beside it.",
                code="not_exported",
            )
    try:
        content = json.loads(engine.metadata[POLICY])
    except ValueError:
        content = None
    policy = WidthPolicy.from_json(content, str(place))
    charset = Charset(tuple(engine.metadata[CHARACTERS].split("\n")))
    return RecognizerParts(engine, policy, charset, content.get("reorder") is True)


@dataclass(frozen=True)
class Exported:
    """An exported recogniser, as its files describe it.

    Attributes:
        folder: the folder with the files.
        policy: how images are prepared.
        charset: the dictionary.
        reorder: whether to reverse the text, as PaddleOCR does for Arabic.
        files: SHA-256 of each file, by its name.
        width: the only width that the graph takes; None for every width.
        weights_digest: SHA-256 of the exported weights; None if it is not known.
        sub_model: name of the exported sub-model of a distillation, if any.
    """

    folder: Path
    policy: WidthPolicy
    charset: Charset
    reorder: bool
    files: Mapping[str, str]
    width: int | None = None
    weights_digest: str | None = None
    sub_model: str | None = None

    def has(self, *names: str) -> bool:
        """Return True if the export has all these files."""
        return self.files.keys() >= set(names)

    def check(self, *names: str) -> None:
        """Compare files with the digests that were taken when they were exported.

        Raises:
            WeightsError: a file is missing, or its digest differs.
        """
        for name in names:
            file = self.folder / name
            if not file.is_file():
                raise WeightsError(f"there is no file {file}. {_EXPORT}", code="missing_file")
            if file_digest(file) != self.files.get(name):
                raise WeightsError(
                    f"{file} is not the exported file: its digest differs from {MODEL_FILE}, so it is truncated or was "
                    f"replaced. Fix: copy the folder again, or export the model again; `verify --trust-model` runs it "
                    f"nevertheless.",
                    code="digest_mismatch",
                )


def read_exported(folder: Path) -> Exported:
    """Read ``model.json`` and ``charset.txt`` of a folder.

    Raises:
        DataError: a file is missing, damaged, or has another format.
        WeightsError: the dictionary is not the one that was exported.
    """
    file = folder / MODEL_FILE
    content = _content(file)
    try:
        if content["format"] != FORMAT:
            raise DataError(
                f"{file}: the format is {content['format']!r}, but this version of ppocr-ext reads {FORMAT}. Fix: pip "
                f"install -U ppocr-ext, or export the model again.",
                code="unsupported_format",
            )
        classes = content["classes"]
        source = content.get("source") or {}
        unknown = (content.get("dictionary") or {}).get("unknown_symbol")
        # The file has a line for each class but the blank.
        characters = _content(folder / CHARSET_FILE).removesuffix("\n").split("\n")
        exported = Exported(
            folder,
            WidthPolicy.from_json(content["width_policy"], str(file)),
            Charset(tuple(characters)).with_unknown_symbol(str(unknown or "")),
            content.get("reorder") is True,
            {str(name): str(entry["sha256"]) for name, entry in content["files"].items()},
            content["width"] if isinstance(content.get("width"), int) else None,
            source.get("digest"),
            source.get("sub_model"),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{file}: not a description of an exported recogniser ({type(error).__name__}: {error}). {_EXPORT}",
            code="bad_content",
        ) from error
    exported.check(CHARSET_FILE)
    if classes != exported.charset.ctc_classes:
        raise DataError(
            f"{folder / CHARSET_FILE} has {len(characters)} lines, but {MODEL_FILE} has {classes} classes with the "
            f"blank. {_EXPORT}",
            code="class_count",
        )
    return exported


def _content(file: Path) -> Any:
    """Return the text of a file, or the content of a JSON file."""
    try:
        text = read_at_most(file, MAX_DICTIONARY_BYTES).decode("utf-8")
        return json.loads(text) if file.suffix == ".json" else text
    except (OSError, ValueError) as error:
        raise DataError(
            f"{file} cannot be read: {getattr(error, 'strerror', None) or error}. {_EXPORT}",
            code="unreadable_file",
        ) from error
