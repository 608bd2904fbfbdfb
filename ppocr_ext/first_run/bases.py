"""The network that a first run begins with: a run of the user's, official weights, or a small network from nothing."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from ppocr_ext.base.parts import kind_of
from ppocr_ext.charset import Charset
from ppocr_ext.checkpoint.official_weights import OfficialWeights, config_of, table
from ppocr_ext.checkpoint.weight_sources import ReleasedSource, find_source
from ppocr_ext.config import Config, load, resolve_charset
from ppocr_ext.errors import DataError, PPOCRExtError
from ppocr_ext.host.locate import locate_host
from ppocr_ext.inference.released import ReleasedModel
from ppocr_ext.io.resources import config_root, find_config, find_file, shipped_dictionaries
from ppocr_ext.limits import read_text
from ppocr_ext.messages import setting
from ppocr_ext.text_direction import client_direction

_DISTILL = "configs/lines/distill.yml"
_NEWEST = ("v6", "v5", "v4", "v3", "v2")  # generations of PP-OCR
_SMALL = ("_mobile_rec", "_small_rec", "_tiny_rec")
DICTIONARY = "Global.character_dict_path"


@dataclass(frozen=True)
class Base:
    """What a first run is laid over.

    Attributes:
        name: what messages call it.
        files: the configs that ``_BASE_`` of the written config names.
        config: these configs as they are loaded: one recogniser, or a distillation.
        weights: ``Global.pretrained_model``; None if there are no weights, or each sub-model has its own.
        charset: the dictionary of the weights; None if there are no weights.
        sections: ``Architecture``, and ``Loss`` if it is another one too, if no file has them.
        missing: official weights that are not on this machine.
        is_released: the weights are an inference model, which reads lines of any width.
        teacher: the dictionary of the teacher of a distillation.
        is_trained: the weights are those of a run that began with none, so the rate of the config is one for that.
    """

    name: str
    files: tuple[str, ...]
    config: Config
    weights: str | None = None
    charset: Charset | None = None
    sections: Mapping[str, Any] | None = None
    missing: tuple[str, ...] = ()
    is_released: bool = False
    teacher: Charset | None = None
    is_trained: bool = False

    @property
    def is_from_nothing(self) -> bool:
        """True if what is trained has no weights."""
        if self.config.at("Architecture.Models", None) is None:
            return self.weights is None
        return self.config.at("Architecture.Models.Student.pretrained", None) is None


SMALL = "small"  # name of the network of a student from nothing


def small_base(file: str = "teacher.yml", size: str = "0.85 M") -> Base:
    """Return the network of a file in ``configs/lines``, as large as one of the quickstart's, without weights."""
    name = f"configs/lines/{file}"
    return Base(f"a small SVTRv2 of {size} parameters, from nothing", (name,), load(find_config(name)))


def open_base(name: str, out: Path) -> Base:
    """Return the base that ``--base`` names.

    Args:
        name: of official weights, the path of a released model, the folder of a run, a checkpoint beside the
            ``config.yml`` of its run, a published file of official weights, or ``small`` for a small network from
            nothing.
        out: the folder of the config that is written.

    Raises:
        PPOCRExtError: there is nothing of this name, or it cannot be used.
    """
    if name == SMALL:
        return small_base("student.yml", "0.32 M")
    source = find_source(name)
    if isinstance(source, ReleasedSource):
        return _released_base(source)
    if source is not None:
        return _official_base(source, source.name)
    from ppocr_ext.run.recogniser import recogniser_config, single_recogniser  # imports Paddle

    path = Path(name)
    folder = path if path.is_dir() else path.parent
    prefix = name.removesuffix(".pdparams")
    entry = table().get(Path(prefix).name.removesuffix("_pretrained"))  # as published files are named
    if entry is not None and Path(f"{prefix}.pdparams").is_file() and not (folder / "config.yml").is_file():
        return _official_base(entry, prefix)
    is_given = path.is_dir() or Path(f"{prefix}.pdparams").is_file()
    if not is_given or not (folder / "config.yml").is_file():
        raise DataError(
            f"{name}: neither official weights, nor a released inference model, nor a run, nor a checkpoint with the "
            "config.yml of its run. Fix: give one, or a name of `ppocr-ext weights list`; of an export, its run.",
            code="no_run",
        )
    config = recogniser_config(folder, [] if path.is_dir() else [setting("Global.checkpoints", prefix)])
    single, sub_model = single_recogniser(config, None)
    weights = str(single.settings.checkpoints or single.settings.pretrained_model)
    charset = resolve_charset(config, _find_file)
    is_trained = config.settings.pretrained_model is None
    if sub_model is None:
        file = os.path.relpath((folder / "config.yml").resolve(), out.resolve())
        return Base(f"the run {name}", (file,), config, weights, charset, is_trained=is_trained)
    return Base(
        f"{sub_model} of the run {name}",
        **_over("configs/quickstart/single.yml", _plain_network(single.at("Architecture")), config),
        weights=weights,
        charset=charset,
        is_trained=True,
    )


def open_distillation(teacher: str, student: str, out: Path, trusted: bool = False) -> Base:
    """Return the base that ``--distill TEACHER STUDENT`` names.

    Args:
        teacher: the network that teaches, named as in :func:`open_base`. An inference model teaches as it is.
        student: the network that is taught, named in the same way.
        out: the folder of the config that is written.
        trusted: True runs an inference model that we do not know.

    Raises:
        PPOCRExtError: one of them cannot be used.
    """
    taught = open_base(student, out)
    source = find_source(teacher)
    if isinstance(source, ReleasedSource):
        teaching = _inference_model(source, trusted)
        known = taught.charset  # each model has its own dictionary
    else:
        teaching = open_base(teacher, out)
        # a student from nothing reads the labels' characters, and the teacher's other classes are left out
        known = taught.charset if student == SMALL else teaching.charset
    title = f"{taught.name}, taught by {teaching.name}"
    missing = (*teaching.missing, *taught.missing)
    for file in sorted(config_root().glob("*/distill_*.yml")):  # official pairs have their own losses
        config = load(file)
        pair = [config.at(f"Architecture.Models.{each}.pretrained", None) for each in ("Teacher", "Student")]
        if pair == [teacher, student]:
            return Base(
                title,
                (f"configs/{file.relative_to(config_root())}",),
                config,
                charset=known,
                missing=missing,
                teacher=teaching.charset,
            )
    models = {}
    for name, part, is_frozen in (("Teacher", teaching, True), ("Student", taught, False)):
        own = {"pretrained": part.weights, "freeze_params": is_frozen, "return_all_feats": True}
        if part.charset is not None and part.charset.path is not None:
            own["pretrained_dict"] = str(part.charset.path)
        models[name] = {**own, **_plain_network(part.config.at("Architecture"))}
    network = {
        "model_type": "rec",
        "name": "DistillationModel",
        "algorithm": "Distillation",
        "Models": models,
    }
    return Base(
        title,
        **_over(_DISTILL, network, teaching.config),
        charset=known,
        missing=missing,
        is_trained=taught.is_trained,
        teacher=teaching.charset,
    )


class Cover(NamedTuple):
    """An official model of a small network.

    Attributes:
        name: the name that ``--base`` takes.
        share: the share of the characters that it knows, from 0 to 1.
        source: where its weights are.
    """

    name: str
    share: float
    source: OfficialWeights | ReleasedSource


def covering_weights(characters: Iterable[str]) -> list[Cover]:
    """Return official models of small networks whose dictionary is known, the best first.

    Before others come those with all characters, then those on this machine, then newer generations, then fewer
    classes.
    """
    wanted = set(characters) - {" "}
    covers = []
    for name, entry in table().items():
        source = find_source(name) if name.endswith(_SMALL) and config_of(name) else None
        file = _find_file(entry.dictionary or "")
        if isinstance(source, ReleasedSource):
            known = set(source.model.characters or ())
        elif source is not None and file is not None:
            known = set(read_text(file).splitlines())
        else:
            continue
        covers.append(Cover(name, len(wanted & known) / max(1, len(wanted)), source))

    def rank(cover: Cover) -> tuple[float, bool, int, bool, int]:
        generation = next(number for number, each in enumerate(_NEWEST) if f"OCR{each}" in cover.name)
        # the Greek dictionary has all Latin letters too, and fewer classes than the English one
        is_english = cover.name.startswith("en_")
        return -cover.share, not cover.source.is_here, generation, not is_english, table()[cover.name].classes

    return sorted(covers, key=rank)


def _official_base(entry: OfficialWeights, weights: str) -> Base:
    """Return the base of official weights, called ``weights`` in the config."""
    config_name = config_of(entry.name)
    if entry.dictionary is None or config_name is None:
        raise DataError(
            f"{entry.name}: its dictionary is not published, so no config can be written for it. Fix: take a name of "
            "`ppocr-ext weights list` with a dictionary, or the released inference model, which has its dictionary.",
            code="unknown_dictionary",
        )
    config = load(config_root() / config_name).with_values(
        {DICTIONARY: entry.dictionary, "Global.pretrained_model": weights}
    )
    return Base(
        entry.name,
        (f"configs/{config_name}",),
        config,
        weights,
        resolve_charset(config, _find_file),
        missing=() if weights != entry.name or entry.is_here else (entry.name,),
    )


def _released_base(source: ReleasedSource) -> Base:
    """Return the base of an inference model: its network with a CTC head alone, which is all that it has.

    All images have one size, that of the lines: lines of one kind need no other heights.
    """
    from ppocr_ext.checkpoint.conversion import ctc_alone  # imports Paddle

    shipped = source.conversion.config
    charset = replace(source.charset(), direction=client_direction(source.model.name))
    config = load(config_root() / shipped)
    sections = {"Architecture": ctc_alone(config.at("Architecture"))}
    if config.at("Loss.loss_config_list", None) is not None:
        sections["Loss"] = {**config.at("Loss").thaw(), "loss_config_list": [{"CTCLoss": {}}]}
    for listed in (config.at(DICTIONARY), *shipped_dictionaries().values()):
        file = _find_file(listed)
        if file is not None and Charset.from_file(file, lenient=True).characters == source.model.characters:
            charset = replace(charset, path=Path(listed))
            break
    of_train, of_eval = (_prepared_for(source.model, config, mode) for mode in ("Train", "Eval"))
    resize = [step for step in of_eval if kind_of(next(iter(step))) == "resize"]
    *others, keep_keys = [step for step in of_train if step not in resize]
    values = {
        **sections,
        "Train.sampler": None,
        "Train.dataset.name": "SimpleDataSet",
        "Train.dataset.transforms": [*others, *resize, keep_keys],
        DICTIONARY: None if charset.path is None else str(charset.path),
        "Global.pretrained_model": source.value,
    }
    return Base(
        f"{source.model.name or source.value}, {source.place}",
        (f"configs/{shipped}",),
        config.with_values(values),
        source.value,
        charset,
        sections,
        is_released=True,
    )


def _prepared_for(model: ReleasedModel, config: Config, mode: str) -> list[dict[str, Any]]:
    """Return the transforms of a mode with the size and the colors of a released model."""
    steps = [step.thaw() for step in config.at(f"{mode}.dataset.transforms")]
    for step in steps:
        for name, options in step.items():
            if name == "DecodeImage":
                options["img_mode"] = model.color
            elif kind_of(name) == "resize":
                options["image_shape"] = list(model.image_shape)
    return steps


def _inference_model(source: ReleasedSource, trusted: bool) -> Base:
    """Return an inference model that teaches as it is.

    Raises:
        WeightsError: we do not know the model, and the user does not trust it.
        CharsetError: its dictionary is not known.
    """
    model = source.model
    if not trusted:
        model.require_known("--trust-model")
    head = {"name": "InferenceModel"} | ({} if model.is_known else {"sha256": model.digest})
    config = load(find_config(_DISTILL))
    values = {
        "Architecture": {"model_type": "rec", "algorithm": "CTC", "Head": head},
        "Eval.dataset.transforms": _prepared_for(model, config, "Eval"),
    }
    return Base(
        f"{model.name or source.value}, {source.place}",
        (),
        config.with_values(values),
        source.value,
        model.charset(len(model.characters or ()) + 2),
    )


def _find_file(path: str | Path) -> Path | None:
    """Return a file as the host finds it, without Paddle."""
    try:
        root = locate_host().root
    except PPOCRExtError:  # what needs the host says so
        root = Path()
    return find_file(path, root)


def _over(file: str, network: dict[str, Any], config: Config) -> dict[str, Any]:
    """Return fields of a base: a network over a shipped file, with the images and the dictionary of ``config``."""
    keys = (DICTIONARY, "Global.use_space_char", "Global.text_direction", "Global.turn_tall_images")
    of_run = {"Eval": config.at("Eval"), **{key: config.at(key, None) for key in keys}}
    return {
        "files": (file,),
        "config": load(find_config(file)).with_values({"Architecture": network, **of_run}),
        "sections": {"Architecture": network},
    }


def _plain_network(network: Config) -> dict[str, Any]:
    """Return the section ``Architecture`` of one recogniser, without weights and without lengths of its old labels."""
    own = ("pretrained", "pretrained_dict", "freeze_params", "return_all_feats")
    plain = {key: value for key, value in network.thaw().items() if key not in own}
    for entry in plain.get("Head", {}).get("head_list", ()):
        for options in filter(None, entry.values()):
            options.pop("max_text_length", None)  # filled in from Global
    return plain
