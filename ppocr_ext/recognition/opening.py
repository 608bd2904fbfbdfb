"""Open a recogniser from a run, a config, an exported folder, an ONNX file or a released model."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ppocr_ext.charset import Charset
from ppocr_ext.checkpoint.official_weights import table
from ppocr_ext.config import Config
from ppocr_ext.config.global_keys import NETWORK, PADDLE
from ppocr_ext.errors import ConfigError, DataError, MissingPackageError, WeightsError
from ppocr_ext.inference.formats import CHARACTERS, FORMATS, MODEL_FILE, POLICY, ExportedEngine
from ppocr_ext.inference.released import ReleasedModel, find_released, released_packages
from ppocr_ext.inference.runners import ONNX, Engine, NetworkEngine, NrtrEngine
from ppocr_ext.limits import MAX_INPUT_WIDTH
from ppocr_ext.metrics import build_metric, comparison_of
from ppocr_ext.recognition.ctc_text import best_classes, label_losses
from ppocr_ext.recognition.exported import Exported, exported_direction, read_exported
from ppocr_ext.recognition.images import WidthPolicy
from ppocr_ext.text_direction import client_direction

ENGINES = (NETWORK, *FORMATS)  # the network itself, and the forms of an exported model
_ONNX = "onnx"  # the form that one file can hold


@dataclass(frozen=True)
class RecognizerParts:
    """The parts of a :class:`Recognizer`.

    Attributes:
        engine: computes the probabilities of CTC, or the characters of an NRTR decoder.
        policy: prepares the images.
        charset: the dictionary.
        origin: for a released model, where it, its dictionary and its preprocessing are from, in a sentence.
        ignored: characters that are read as nothing: their probability is added to that of the blank.
        is_right: says if a text equals its label: for a run as its ``Metric`` does, else all of both.
    """

    engine: Engine
    policy: WidthPolicy
    charset: Charset
    origin: str = ""
    ignored: str = ""
    is_right: Callable[[str, str], bool] = str.__eq__

    def best(
        self, inputs: np.ndarray, labels: Sequence[Sequence[int] | None]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the best class of each frame and its probability, [B, T]; for NRTR those of each character.

        The third array has the loss of each label (:func:`label_losses`), [B]; NaN for NRTR.

        Args:
            inputs: prepared images, float32 [B, 3, H, W].
            labels: class ids of the label of each; None if there is none to judge.

        Raises:
            WeightsError: the engine's classes are not those of the dictionary, or a probability is not a number.
            ModelError: the head returns no NRTR characters.
        """
        if isinstance(self.engine, NrtrEngine):
            return *self.engine.decode(inputs), np.full(len(inputs), np.nan)
        probabilities = self.probabilities(inputs)
        ids, best = best_classes(probabilities)
        if not np.isfinite(
            best
        ).all():  # a NaN is the best of its frame, and would read as class 0, the blank
            raise WeightsError(
                "the outputs of the model have NaN or Inf, so its weights are damaged. Fix: copy the model again, or "
                "take an earlier checkpoint.",
                code="not_finite",
            )
        return ids, best, label_losses(probabilities, labels)

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
        if ids := [number for number, each in enumerate(self.charset.ctc_symbols) if each in self.ignored]:
            probabilities = probabilities.copy()  # an engine may own the array
            probabilities[..., 0] += probabilities[..., ids].sum(axis=-1)
            probabilities[..., ids] = 0
        return probabilities


Source = str | PathLike[str] | Config | ReleasedModel | RecognizerParts


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
    dictionary: str | PathLike[str] | None = None
    trust_model: bool = False
    images: int = 0

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

    def refuse_training(self, name: str, what: str) -> None:
        """Check that no option is given that only a trained network takes.

        Args:
            name: the model, for the message.
            what: its kind: ``"an exported model"``.

        Raises:
            ConfigError: one is given.
        """
        values = {
            "engine network": self.engine == "network",
            "device gpu": self.device == "gpu",
            "-o": self.options,
            "--model": self.model,
            "--host": self.host_path,
            "--old-dict": self.old_dictionary,
        }
        if given := [option for option, value in values.items() if value]:
            raise ConfigError(
                f"{name} is {what}, which does not take {', '.join(given)}. Fix: leave it out, or give the folder of "
                f"the run.",
                code="unsupported_option",
            )


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
    if isinstance(source, str | PathLike):
        source = find_model(source, options.dictionary)
    if isinstance(source, ReleasedModel):
        options.refuse_training(source.source, "a released model")
        return _of_released(source, options)
    if options.dictionary is not None:
        raise ConfigError(
            f"{'a config' if isinstance(source, Config) else source} has its own dictionary. Fix: leave --dict out; "
            f"--old-dict names the dictionary of weights.",
            code="unsupported_option",
        )
    if isinstance(source, Config):
        if options.options:
            raise ConfigError(
                "options cannot change a config that is loaded already. Fix: give them to "
                "ppocr_ext.config.load(file, options).",
                code="unsupported_option",
            )
        return _of_config(source, "a config", options)
    if not is_exported(source):
        return _of_run(source, options)
    options.refuse_training(str(source), "an exported model")
    return (
        _of_onnx(source, options) if source.suffix == ".onnx" else _of_export(read_exported(source), options)
    )


def find_model(
    source: str | PathLike[str], dictionary: str | PathLike[str] | None = None
) -> Path | ReleasedModel:
    """Return the released model that ``source`` names by its path or by PaddleOCR's name; else the path.

    Args:
        source: a path, or a name such as ``PP-OCRv6_small_rec`` of a model on this machine.
        dictionary: for a released model, the file of its dictionary; None for what it states.

    Raises:
        PPOCRExtError: the files of the model cannot be used, or the name is PaddleOCR's and no such model is here.
    """
    path = Path(fspath(source))
    model = find_released(path, dictionary, by_name=not path.exists())
    if model is None and not path.exists():
        packages = [row.package for row in released_packages() if row.name == str(path)]
        if packages or str(path) in table():
            raise WeightsError(
                f"{path}: no such released model is on this machine. Fix: "
                f"{f'pip install {packages[0]}, or ' if packages else ''}let the paddleocr 3 client download it, or "
                f"give its folder or ONNX file.",
                code="missing_file",
            )
    return model or path


def is_exported(path: Path) -> bool:
    """Return True for a folder or an ONNX file that ``ppocr-ext export`` wrote; False for a run or a config."""
    return path.suffix == ".onnx" or (path / MODEL_FILE).is_file()


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
    elif options.engine is None and trained.device == "cpu" and config.settings.eval_engine != NETWORK:
        from ppocr_ext.run.compiled_models import faster_network

        engine, request = config.settings.eval_engine, network.eval_request
        network = faster_network(network, request, config, "Eval", name, options.images, engine=engine)
    metric = build_metric(config.at("Metric")) if config.at("Metric", None) else None
    return RecognizerParts(
        (NrtrEngine if by_nrtr else NetworkEngine)(network),
        policy,
        trained.charset,
        is_right=comparison_of(metric),
    )


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
            return RecognizerParts(engine, exported.policy, exported.charset)
    raise missing or WeightsError(
        f"{exported.folder}: {MODEL_FILE} lists no form of the model (expected {' or '.join(FORMATS)}). Fix: export "
        f"the model again.",
        code="missing_file",
    )


def _of_released(model: ReleasedModel, options: OpenOptions) -> RecognizerParts:
    """Return the parts of a released model. Images are prepared as its clients prepare them.

    Raises:
        WeightsError: its digests are not known and ``trust_model`` is not set, or it is no recogniser.
        CharsetError: its dictionary is not known, or does not fit.
    """
    if options.engine not in (None, model.form):
        raise ConfigError(
            f"engine: {options.engine} cannot read {model.graph}. Fix: leave the engine out.",
            code="unsupported_engine",
        )
    if not options.trust_model:
        model.require_known("--trust-model (`Recognizer`: trust_model=True)")
    engine = ExportedEngine(model.form, model.graph, files=model.files, threads=options.threads)
    rows, columns, classes, widens = engine.try_sizes(model.image_shape)
    # PaddleOCR's clients turn the texts of its Arabic models.
    charset = replace(model.charset(classes), direction=client_direction(model.name))
    # The client of paddleocr has this limit; RapidOCR has none.
    limit = MAX_INPUT_WIDTH if widens else None
    policy = WidthPolicy("widen" if widens else "pad", (3, rows, columns), model.color, limit)
    origin = (
        f"model: {model.name or model.graph.name}, {model.source}; dictionary: {len(charset.characters):,} characters, "
        f"from {model.dictionary_from}{', and a space' if charset.use_space else ''}; images: {model.color}, {rows} x "
        f"{columns}{f' to {limit}' if limit else ''}, aspect ratio kept, from {model.preprocessing_from}"
    )
    return RecognizerParts(engine, policy, charset, origin)


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
    characters = tuple(engine.metadata[CHARACTERS].split("\n"))
    return RecognizerParts(engine, policy, Charset(characters, direction=exported_direction(content)))
