"""Find inference models that somebody released, and read what their files say; nothing of a model is run here.

released_models.json has the models that we have tried, in packages that ``pip`` installs.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import yaml

from ppocr_ext.charset import Charset
from ppocr_ext.errors import CharsetError, DataError, PPOCRExtError, WeightsError
from ppocr_ext.inference.formats import CHARACTERS, INFERENCE_YML, MODEL_FILE, POLICY
from ppocr_ext.inference.graph_file import MAX_MODEL_BYTES, read_tensors
from ppocr_ext.inference.runners import GRAPH
from ppocr_ext.io.protobuf import fields, walk
from ppocr_ext.io.resources import find_dictionary, package_folder
from ppocr_ext.limits import MAX_CONFIG_BYTES, read_at_most
from ppocr_ext.messages import LOG

CLIENT_CACHE = "PADDLE_PDX_CACHE_HOME"  # the variable of the paddleocr 3 client
# The transforms that the paddleocr 3 client accepts in inference.yml.
_TRANSFORMS = ("DecodeImage", "RecResizeImg", "MultiLabelEncode", "KeepKeys")
# The messages inside those of ONNX that lead to metadata and tensors. Control flow has graphs inside.
_ONNX = {
    ("model", 7): "graph",
    ("model", 14): "metadata",
    ("model", 20): "training",
    ("model", 25): "function",
    ("training", 1): "graph",
    ("training", 2): "graph",
    ("function", 7): "node",
    ("function", 11): "attribute",
    ("graph", 1): "node",
    ("graph", 5): "tensor",
    ("graph", 15): "sparse",
    ("node", 5): "attribute",
    **dict.fromkeys((("attribute", 5), ("attribute", 10)), "tensor"),
    **dict.fromkeys((("attribute", 6), ("attribute", 11)), "graph"),
    **dict.fromkeys((("attribute", 22), ("attribute", 23)), "sparse"),
    **dict.fromkeys((("sparse", 1), ("sparse", 2)), "tensor"),
}
_COPY = "Fix: copy or download the files again, all of one model."


@dataclass(frozen=True, kw_only=True)
class ReleasedPackage:
    """A row of the table: a model in a package.

    Attributes:
        package: name of the package, for ``pip``.
        version: the version whose files we have tried.
        licence: what the package states.
        path: path of the model in the package, a folder or an ONNX file.
        name: PaddleOCR's name of the model.
        dictionary: path of its dictionary in the package; None if the files of the model state it.
        sha256: SHA-256 of graph and weights by file name.
    """

    package: str
    version: str
    licence: str
    path: str
    name: str
    dictionary: str | None
    sha256: Mapping[str, str]

    @property
    def folder(self) -> Path | None:
        """The folder of the installed package, in any version; None if it is not installed."""
        return package_folder(self.package.replace("-", "_"))

    @property
    def label(self) -> str:
        """Package, version and licence, for people."""
        return f"{self.package} {self.version} ({self.licence})"


def released_packages() -> tuple[ReleasedPackage, ...]:
    """Return the rows of the table."""
    file = Path(__file__).with_name("released_models.json")
    return tuple(ReleasedPackage(**row) for row in json.loads(read_at_most(file, MAX_CONFIG_BYTES)))


@dataclass(frozen=True, kw_only=True)
class ReleasedModel:
    """An inference model that somebody released, as its files describe it. Nothing of it has run.

    Attributes:
        form: a key of :data:`ppocr_ext.inference.formats.FORMATS`, ``"onnx"`` or ``"paddle"``.
        graph: ``inference.json``, ``inference.pdmodel`` or an ONNX file.
        weights: the ``.pdiparams`` file; None for ONNX.
        name: PaddleOCR's name of the model, from the table or from ``inference.yml``; None if it is unknown.
        source: where it is from, for people: ``"rapidocr 3.10.0 (Apache-2.0)"``, or the path.
        characters: the dictionary as the files state it, without blank and without an added space; None if unknown.
        dictionary_from: where the dictionary is from, for people.
        image_shape: (3, height, width); clients widen the input for longer images.
        color: order of the channels.
        preprocessing_from: where ``image_shape`` and ``color`` are from, for people.
        is_known: True if the digests of all its files are in the table.
        digests: SHA-256 of graph and weights by file name.
    """

    form: Literal["onnx", "paddle"]
    graph: Path
    weights: Path | None
    name: str | None
    source: str
    characters: tuple[str, ...] | None
    dictionary_from: str
    image_shape: tuple[int, int, int]
    color: Literal["BGR", "RGB"]
    preprocessing_from: str
    is_known: bool
    digests: Mapping[str, str]

    @property
    def files(self) -> list[Path]:
        """The graph, and the weights if they are a file of their own."""
        return [self.graph, *([self.weights] if self.weights else [])]

    @cached_property
    def digest(self) -> str:
        """One SHA-256 of all files: the identity of the model, wherever its files are."""
        return hashlib.sha256("\n".join(self.digests.values()).encode()).hexdigest()

    def require_known(self, option: str) -> None:
        """Refuse to run a model of a digest that is not in the table; ``option`` is what its user can give.

        Raises:
            WeightsError: the model is not known.
        """
        if not self.is_known:
            raise WeightsError(
                f"{self.graph}: its digest is not in our table (`ppocr-ext weights list`), and a model is a program. "
                f"Fix: {option} if you trust its source.",
                code="unknown_model",
            )

    def charset(self, classes: int) -> Charset:
        """Return the dictionary of a network with ``classes`` classes: the lines, and a space if it has one class more.

        The clients of PaddleOCR and RapidOCR add the space too.

        Raises:
            CharsetError: the model states no dictionary, or another number of classes is expected.
        """
        if self.characters is None:
            raise CharsetError(
                f"{self.graph}: its dictionary is not known ({self.dictionary_from}). Fix: give the one that it was "
                f"trained with: --dict FILE (`Recognizer`: dictionary=FILE; of weights: --old-dict FILE).",
                code="missing_dictionary",
            )
        lines = len(self.characters)
        if classes not in (lines + 1, lines + 2):
            raise CharsetError(
                f"{self.graph} has {classes:,} classes, but its dictionary ({self.dictionary_from}) has {lines:,} "
                f"lines (expected {lines + 1:,} classes with the blank, or {lines + 2:,} with a space too). Fix: give "
                f"the dictionary that it was trained with: --dict FILE. To read fewer characters: `ppocr-ext export "
                f"{self.graph} --characters 0-9 --output DIR`, then predict with DIR.",
                code="class_count",
            )
        use_space = classes == lines + 2
        return Charset((*self.characters, " ") if use_space else self.characters, use_space)


def find_released(
    value: str | Path, dictionary: str | PathLike[str] | None = None, *, by_name: bool = False
) -> ReleasedModel | None:
    """Return the released model at a path; None if there is none, or only one that ``ppocr-ext export`` wrote.

    Args:
        value: a folder, an ONNX file, a graph or weights of Paddle, or the path of the last two without its ending.
        dictionary: file of the dictionary, or ``ppocr/utils/dict/NAME`` of PaddleOCR; None for what the model states.
        by_name: if nothing is at the path, look for a model on this machine with this name of PaddleOCR's, such as
            ``PP-OCRv6_small_rec``.

    Raises:
        WeightsError: files are missing, damaged, or belong to several models.
        DataError: ``inference.yml`` cannot be used.
        CharsetError: the file ``dictionary`` cannot be used.
    """
    graph = _find_graph(Path(value))
    if graph is None:
        return _find_by_name(str(value), dictionary) if by_name else None
    weights = None if graph.suffix == ".onnx" else graph.with_suffix(".pdiparams")
    if weights is not None and not weights.is_file():
        raise WeightsError(
            f"there is no file {weights}, the weights of {graph}. {_COPY}", code="missing_file"
        )
    try:
        contents = {file: read_at_most(file, MAX_MODEL_BYTES) for file in (graph, weights) if file}
        digests = {file.name: hashlib.sha256(content).hexdigest() for file, content in contents.items()}
        # Whatever the files are called now.
        row = next(
            (row for row in released_packages() if {*digests.values()} <= {*row.sha256.values()}), None
        )
        metadata = _onnx_metadata(graph, contents[graph]) if weights is None else {}
        if weights is not None and row is None:
            for _ in read_tensors(contents[weights]):
                pass  # Paddle runs a truncated file without a word
    except (OSError, ValueError, TypeError) as error:
        raise WeightsError(
            f"{weights or graph} is damaged or of another kind ({error}). {_COPY}", code="damaged_file"
        ) from error
    if POLICY in metadata:
        return None
    model = ReleasedModel(
        form="onnx" if weights is None else "paddle",
        graph=graph,
        weights=weights,
        name=row.name if row else None,
        source=row.label if row else str(graph.parent if weights else graph),
        characters=None,
        dictionary_from=f"there is neither a key {CHARACTERS!r} in its metadata nor an {INFERENCE_YML}",
        image_shape=(3, 48, 320),  # of all recognisers since PP-OCRv3
        color="BGR",
        preprocessing_from="the clients of PaddleOCR and RapidOCR",
        is_known=row is not None,
        digests=digests,
    )
    yml = next(
        (file for file in (graph.with_suffix(".yml"), graph.with_name(INFERENCE_YML)) if file.is_file()), None
    )
    model = model if yml is None else _with_yml(model, yml)
    return _with_dictionary(model, metadata.get(CHARACTERS), dictionary, row)


def _find_by_name(name: str, dictionary: str | PathLike[str] | None) -> ReleasedModel | None:
    """Return the first released model of this machine that has PaddleOCR's name ``name``.

    The cache of the paddleocr 3 client comes first (``$PADDLE_PDX_CACHE_HOME``, by default ``~/.paddlex``), then
    installed packages of the table, which are not imported.
    """
    cache = Path(os.environ.get(CLIENT_CACHE) or "~/.paddlex").expanduser() / "official_models"
    installed = [row.folder / row.path for row in released_packages() if row.name == name and row.folder]
    # For its other engine the client keeps the ONNX form in a folder of its own.
    cached = [cache / name, cache / f"{name}_onnx"] if Path(name).name == name else []
    for place in filter(Path.exists, [*cached, *installed]):
        try:
            model = find_released(place, dictionary)
        except PPOCRExtError as error:  # such as a download that broke off
            LOG.warning("not used: %s", error)
            continue
        if model is not None:
            return replace(model, name=model.name or name)
    return None


def _find_graph(path: Path) -> Path | None:
    """Return the graph of the only model at ``path``; None if an export wrote it, there is none, or only in a run.

    Raises:
        WeightsError: there are several, or the weights have no graph.
    """
    if ((path if path.is_dir() else path.parent) / MODEL_FILE).is_file() or (
        # the folder of a run, whatever else lies in it
        (path / "config.yml").is_file() and any(path.glob("*.pdparams"))
    ):
        return None
    prefix = str(path).removesuffix(".pdiparams")
    listed = (
        sorted(path.iterdir())
        if path.is_dir()
        else [path, *(Path(f"{prefix}{ending}") for ending in (".json", ".pdmodel"))]
    )
    graphs = [
        each
        for each in listed
        if each.is_file()
        and (
            each.suffix in (".onnx", ".pdmodel")
            or each.name == GRAPH
            or (each.suffix == ".json" and each.with_suffix(".pdiparams").is_file())
        )
    ]
    if len(graphs) > 1:
        raise WeightsError(
            f"{path} has {len(graphs)} models ({', '.join(each.name for each in graphs)}). Fix: give the file of one.",
            code="several_models",
        )
    orphan = next((each for each in listed if each.suffix == ".pdiparams" and each.is_file()), None)
    if orphan is not None and not graphs:
        raise WeightsError(
            f"{orphan} has no graph beside it (expected {orphan.stem}.json or {orphan.stem}.pdmodel). {_COPY}",
            code="missing_file",
        )
    return next(iter(graphs), None)


def _onnx_metadata(file: Path, content: bytes) -> dict[str, str]:
    """Return the texts that an ONNX file has by key.

    Raises:
        ValueError, TypeError: it is truncated, has too many fields, or is not ONNX.
        WeightsError: its weights are in other files, which its digest does not cover.
    """
    found = walk(memoryview(content), "model", _ONNX)
    places = [place for place, _ in found]
    if ("tensor", 13) in places:
        raise WeightsError(
            f"{file} keeps its weights in other files. Fix: put them into one file: "
            f"`onnx.save(onnx.load({file.name!r}), 'one.onnx')`.",
            code="external_data",
        )
    if places.count(("model", 7)) != 1:
        raise ValueError("it has no graph")
    entries: list[dict[int, Any]] = [
        dict(fields(value))
        for place, value in found
        if place == ("model", 14) and isinstance(value, memoryview)
    ]
    return {str(each[1], "utf-8"): str(each[2], "utf-8") for each in entries if each.keys() >= {1, 2}}


def _with_yml(model: ReleasedModel, file: Path) -> ReleasedModel:
    """Return the model with what an ``inference.yml`` says, as the paddleocr 3 client reads it.

    Raises:
        DataError: the file cannot be read, describes no recogniser, or images that are prepared in another way.
        WeightsError: it names another model than the one whose digests the files have.
    """
    content = _read_yml(file)
    try:
        steps = {
            name: options for step in content["PreProcess"]["transform_ops"] for name, options in step.items()
        }
        decoder, characters = content["PostProcess"]["name"], content["PostProcess"].get("character_dict")
        name = content.get("Global", {}).get("model_name", "")
        shape = tuple(int(size) for size in steps.get("RecResizeImg", {}).get("image_shape", ()))
        color = (steps.get("DecodeImage") or {"img_mode": "RGB"})["img_mode"]
        if not all(isinstance(each, str) for each in (decoder, name, color)):  # nested aliases have no end
            raise TypeError("found a list or a mapping, expected a text")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _bad_yml(
            file,
            "it is the config of a training: rename it or move it away"
            if "Architecture" in (content or ())
            else f"{type(error).__name__}: {error}",
        ) from error
    if decoder != "CTCLabelDecode":
        raise DataError(
            f"{file}: {name or 'this model'} is not a CTC recogniser (PostProcess.name: {decoder}, expected "
            f"CTCLabelDecode). Fix: give a recogniser of text lines, such as PP-OCRv6_small_rec.",
            code="not_a_recogniser",
        )
    other = [step for step in steps if step not in _TRANSFORMS]
    if other or color not in ("BGR", "RGB") or len(shape) != 3 or shape[0] != 3 or min(shape) < 1:
        raise DataError(
            f"{file}: images cannot be prepared like this (found {', '.join(other) or f'{color}, {list(shape)}'}; "
            f"expected {', '.join(_TRANSFORMS)}, BGR or RGB, 3 channels). Fix: read it with the client that it is for.",
            code="unsupported_preprocessing",
        )
    if model.name and name and name != model.name:
        raise WeightsError(
            f"{file} is of {name}, but the files beside it are those of {model.name}, {model.source}. {_COPY}",
            code="other_model",
        )
    if characters is not None and not (
        isinstance(characters, list) and all(isinstance(each, str) for each in characters)
    ):
        raise _bad_yml(file, "PostProcess.character_dict is no list of characters")
    return replace(
        model,
        name=model.name or name or None,
        characters=None if characters is None else tuple(characters),
        dictionary_from=f"{file.name} has no PostProcess.character_dict" if characters is None else file.name,
        image_shape=(3, shape[1], shape[2]),
        color=color,
        preprocessing_from=file.name,
    )


def _read_yml(file: Path) -> Any:
    """Return the content of a YAML file with every value as text: in a dictionary, ``0`` and ``~`` are characters."""
    try:
        text = read_at_most(file, MAX_CONFIG_BYTES).decode("utf-8")
        return yaml.load(text, getattr(yaml, "CBaseLoader", yaml.BaseLoader))  # noqa: S506 - texts, lists, mappings
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        raise _bad_yml(file, str(error)) from error


def _bad_yml(file: Path, reason: str) -> DataError:
    return DataError(
        f"{file}: not the {INFERENCE_YML} of a recogniser ({reason}). {_COPY}", code="bad_content"
    )


def _with_dictionary(
    model: ReleasedModel,
    in_metadata: str | None,
    given: str | PathLike[str] | None,
    row: ReleasedPackage | None,
) -> ReleasedModel:
    """Return the model with its dictionary: the given file, else its metadata, its ``inference.yml``, its package."""
    file = None if given is None else find_dictionary(Path(given)) or Path(given)
    if file is None and in_metadata is not None:
        lines = in_metadata.removesuffix("\n").split("\n")
        return replace(
            model, characters=tuple(line.strip("\r") for line in lines), dictionary_from="the metadata"
        )
    if file is None and model.characters is None and row is not None and row.dictionary is not None:
        # The package may be unpacked somewhere, or installed elsewhere than the model.
        roots = (
            model.graph.parents[min(len(Path(row.path).parts), len(model.graph.parents) - 1)],
            row.folder,
        )
        file = next(
            (root / row.dictionary for root in roots if root and (root / row.dictionary).is_file()), None
        )
    if file is None:
        return model
    characters = Charset.from_file(file, lenient=True).characters
    return replace(model, characters=characters, dictionary_from=str(given or file.name))
