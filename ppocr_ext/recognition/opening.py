"""Open what a recogniser is given: a run, a config, an exported folder or an ONNX file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from ppocr_ext.charset import Charset
from ppocr_ext.config import Config
from ppocr_ext.engine.runners import GRAPH, ONNX, WEIGHTS
from ppocr_ext.errors import ConfigError, DataError, MissingPackageError, WeightsError
from ppocr_ext.recognition.ctc_text import best_classes
from ppocr_ext.recognition.engines import Engine, NetworkEngine, NrtrEngine, OnnxEngine, PaddleEngine
from ppocr_ext.recognition.exported import MODEL_FILE, Exported, described_by_metadata, read_exported
from ppocr_ext.recognition.resize import WidthPolicy

EngineName = Literal["network", "onnx", "paddle"]
ENGINES: tuple[EngineName, ...] = get_args(EngineName)


@dataclass(frozen=True)
class RecognizerParts:
    """What a :class:`Recognizer` reads with.

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
        """Return the best class of each frame (of NRTR: the class of each character) and its probability, [B, T].

        Args:
            inputs: prepared images, float32 [B, 3, H, W].

        Raises:
            WeightsError: the engine's classes are not those of the dictionary.
            ModelError: an NRTR decoder returns something else than its characters.
        """
        if isinstance(self.engine, NrtrEngine):
            return self.engine.decode(inputs)
        return best_classes(self.probabilities(inputs))

    def probabilities(self, inputs: np.ndarray) -> np.ndarray:
        """Return what the engine of a CTC recogniser computes: float32 [B, T, C].

        Args:
            inputs: prepared images, float32 [B, 3, H, W].

        Raises:
            WeightsError: the engine's classes are not those of the dictionary.
        """
        found = self.engine.probabilities(inputs)
        if found.shape[2] != self.charset.ctc_classes:
            raise WeightsError(
                f"the model has {found.shape[2]} classes, but {self.charset.name} needs {self.charset.ctc_classes}, "
                f"the blank included. Fix: give the dictionary of its training.",
                code="charset_mismatch",
            )
        return found


Source = str | PathLike[str] | Config | RecognizerParts


@dataclass(frozen=True, kw_only=True)
class OpenOptions:
    """How a recogniser is opened; the attributes are those of :class:`ppocr_ext.recognition.recognizer.Recognizer`."""

    engine: EngineName | None = None
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
            ConfigError: there is no such engine or device, or not a number of threads.
        """
        for name, value, choices in (
            ("engine", self.engine, ENGINES),
            ("device", self.device, ("cpu", "gpu")),
        ):
            if value is not None and value not in choices:
                raise ConfigError(f"{name}: {value!r} is not among {', '.join(choices)}.", code="bad_value")
        if self.threads is not None and self.threads < 1:
            raise ConfigError(f"threads: {self.threads} is not a number of at least 1.", code="bad_value")

    @property
    def of_training(self) -> list[str]:
        """The options that were given and that only a run or a config takes."""
        given = {
            "engine network": self.engine == "network",
            "device gpu": self.device == "gpu",
            "-o": self.options,
            "--model": self.model,
            "--host": self.host_path,
            "--old-dict": self.old_dictionary,
        }
        return [name for name, value in given.items() if value]


def open_parts(source: Source, options: OpenOptions) -> RecognizerParts:
    """Return what a recogniser reads with.

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
                "options belong to a config file or a run. Fix: set them where the config is read: "
                "ppocr_ext.config.load(file, options).",
                code="unsupported_option",
            )
        return _of_config(source, "a config", options)
    path = Path(fspath(source))
    if not is_exported(path):
        return _of_run(path, options)
    if options.of_training:
        raise ConfigError(
            f"{path} is an exported model, which takes none of {', '.join(options.of_training)}. Fix: leave it out, or "
            f"give the folder of the run in place of the export.",
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
            f"{path} is one file of several. Fix: give its folder; a checkpoint other than the best one of a run is "
            f"chosen with -o Global.checkpoints=PATH.",
            code="not_a_recogniser",
        )
    from ppocr_ext.run.recogniser import recogniser_config  # imports Paddle

    return _of_config(recogniser_config(path, options.options), str(path), options)


def _of_config(config: Config, name: str, options: OpenOptions) -> RecognizerParts:
    """Return the parts of a trained network."""
    from ppocr_ext.run.recogniser import decoded_by_nrtr, load_recogniser  # imports Paddle

    by_nrtr = decoded_by_nrtr(config)
    if by_nrtr and options.engine in ("onnx", "paddle"):
        raise ConfigError(
            f"engine: {options.engine} reads only with CTC, but {name} has an NRTR decoder. Fix: leave the engine "
            f"out.",
            code="unsupported_engine",
        )
    if options.engine == "onnx":
        raise ConfigError(
            f"engine: {options.engine} reads exported models, but {name} is not one. Fix: export it with `ppocr-ext "
            f"export`, or leave the engine out.",
            code="unsupported_engine",
        )
    if options.threads is not None and options.engine != "paddle":
        fix = "" if by_nrtr else "export it with `ppocr-ext export`, give --engine paddle, or "
        raise ConfigError(
            f"threads are those of the engines onnx and paddle, but {name} is read by its network. Fix: {fix}leave "
            f"them out.",
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
    if options.engine == "paddle":
        from ppocr_ext.engine.compiled import compile_network

        network = compile_network(network, network.eval_request, threads=options.threads)
    return RecognizerParts((NrtrEngine if by_nrtr else NetworkEngine)(network), policy, trained.charset)


def _of_export(exported: Exported, options: OpenOptions) -> RecognizerParts:
    """Return the parts of an exported folder, with the first engine that has its files and is installed.

    Raises:
        MissingPackageError: no engine is installed.
        WeightsError: a file is missing or is not the one that was exported.
    """
    candidates: dict[EngineName, tuple[str, ...]] = {"onnx": (ONNX,), "paddle": (GRAPH, WEIGHTS)}
    missing: MissingPackageError | None = None
    for name, files in candidates.items():
        if options.engine != name and (options.engine is not None or not exported.has(*files)):
            continue
        exported.check(*files)
        try:
            folder, threads = exported.folder, options.threads
            engine = (
                OnnxEngine(folder / ONNX, threads=threads)
                if name == "onnx"
                else PaddleEngine(folder, threads=threads)
            )
        except MissingPackageError as error:
            missing = missing or error
        else:
            return RecognizerParts(engine, exported.policy, exported.charset, exported.reorder)
    if missing is not None:
        raise missing
    raise WeightsError(
        f"{exported.folder}: {MODEL_FILE} lists neither {ONNX} nor {GRAPH}. Fix: export the model again.",
        code="missing_file",
    )


def _of_onnx(file: Path, options: OpenOptions) -> RecognizerParts:
    """Return the parts of an ONNX file, described by the ``model.json`` beside it or by its own metadata.

    Raises:
        WeightsError: it is alone, and is not to be trusted.
    """
    if options.engine == "paddle":
        raise ConfigError(
            f"engine: paddle does not read {file}. Fix: give its folder, or leave the engine out.",
            code="unsupported_engine",
        )
    if file.name == ONNX and (file.parent / MODEL_FILE).is_file():
        return _of_export(read_exported(file.parent), replace(options, engine="onnx"))
    if not options.trust_model and file.is_file():
        raise WeightsError(
            f"{file}: no {MODEL_FILE} beside it has its digest, and a model is a program. Fix: give the whole exported "
            f"folder, or --trust-model (`Recognizer`: trust_model=True) if you trust it.",
            code="unknown_model",
        )
    return onnx_parts(file, options.threads)


def onnx_parts(file: Path, threads: int | None = None) -> RecognizerParts:
    """Return the parts of an ONNX file, described by its own metadata.

    Raises:
        PPOCRExtError: it cannot be opened, or has no description.
    """
    engine = OnnxEngine(file, threads=threads)
    exported = described_by_metadata(file, engine.metadata)
    return RecognizerParts(engine, exported.policy, exported.charset, exported.reorder)
