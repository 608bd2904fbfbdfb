"""Load the weights of a run's model, and record official ones."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from paddle import nn

from ppocr_ext.charset import Charset
from ppocr_ext.check.sub_models import ALLOW_UNTRAINED, UNTRAINED, untrained
from ppocr_ext.checkpoint.checkpoints import Checkpoint
from ppocr_ext.checkpoint.contents import checkpoint_line
from ppocr_ext.checkpoint.official_weights import digest_of, fetch, is_official, table
from ppocr_ext.checkpoint.weight_match import WeightMatch, match_weights
from ppocr_ext.checkpoint.weights import load_weights
from ppocr_ext.config import Config, load, read_old_charset
from ppocr_ext.config.global_keys import shown
from ppocr_ext.errors import ConfigError, WeightsError
from ppocr_ext.messages import LOG, did_you_mean, is_misspelling, near_match
from ppocr_ext.modeling import DistillationModel
from ppocr_ext.run.context import RunContext

_KEY = "Global.official_weights"

Records = Mapping[str, Mapping[str, Any]]


def require_recorded(config: Config, path: str | Path) -> None:
    """Compare the official weights called ``path`` with the digest that the config has of them, if any.

    Raises:
        ConfigError: the record has another form.
        WeightsError: the digest is another one, or the weights cannot be downloaded.
    """
    name = str(path)
    record = _records(config).get(name)
    if record is None or not is_official(name):
        return
    file = fetch(table()[name])
    found = digest_of(table()[name])
    if found != record["sha256"]:
        raise WeightsError(
            f"{file}: the digest is {found}, but the run of this config loaded {name} with {record['sha256']} "
            f"({config.where(_KEY)}). Fix: put the file with that digest there, or take {_KEY} out of the config.",
            code="digest_mismatch",
        )


def official_records(config: Config, loaded: Iterable[str], checkpoint: Path | None) -> Records:
    """Return digest, address and source of the official weights that a run uses, by name.

    A resumed run keeps the records of its first start, whose weights it need not load again.

    Args:
        config: of the run.
        loaded: names and paths that weights were loaded from.
        checkpoint: prefix of the checkpoint that the run is resumed from, if any.
    """
    records = {
        name: {
            "sha256": digest_of(table()[name]),
            "address": table()[name].address,
            "source": table()[name].source,
        }
        for name in loaded
        if is_official(name)
    }
    before = dict(_records(config))
    if checkpoint is not None and (file := checkpoint.parent / "config.yml").is_file():
        with suppress(ConfigError):  # a file of somebody else's: it has no record
            before |= _records(load([file]))
    kept = {name: dict(before[name]) for name in before.keys() & _named(config)}
    return dict(sorted({**kept, **records}.items()))


def _records(config: Config) -> Records:
    """Return what the config records.

    Raises:
        ConfigError: it is not a mapping of names to digests.
    """
    given = config.at(_KEY, default=None) or {}
    if not isinstance(given, Mapping) or not all(
        isinstance(each, Mapping) and isinstance(each.get("sha256"), str) for each in given.values()
    ):
        raise ConfigError(
            f"{config.where(_KEY)}: {_KEY}: found {shown(given)}, expected `sha256` by name, as a run writes it. Fix: "
            f"remove the key.",
            code="bad_value",
        )
    return given


def _named(config: Config) -> set[str]:
    """Return the values of the config that name weights."""
    models = config.at("Architecture.Models", default=None) or {}
    paths = ["Global.pretrained_model", *(f"Architecture.Models.{name}.pretrained" for name in models)]
    return {str(value) for value in (config.at(path, default=None) for path in paths) if value}


def load_model_weights(
    model: nn.Layer, context: RunContext, *, needed: tuple[str, ...] | None
) -> dict[str | None, str]:
    """Fill ``model`` from the checkpoint or ``Global.pretrained_model``, and sub-models from their own files.

    Args:
        model: the networks.
        context: of the run; its checkpoint, if any, goes before ``pretrained_model``.
        needed: sub-models that must have weights; others may lack them. None: all.

    Returns:
        The path or the official name of the weights of each sub-model that got some; the sub-model is None for a
        model without sub-models.

    Raises:
        WeightsError: see :func:`ppocr_ext.checkpoint.weights.load_weights`; or a frozen sub-model has no weights, or
            they do not know all characters of the dictionary.
        CharsetError: the dictionary of the weights cannot be read.
    """
    checkpoint = None if context.checkpoint is None else context.checkpoint.prefix
    first = context.config.settings.pretrained_model
    if not isinstance(model, DistillationModel):
        path = checkpoint or first
        if not path:
            return {}
        part = None if checkpoint else "Architecture"
        _load(context, model, path, part, first_prefix=f"{context.options.weights_of}.")
        return {None: str(path)}
    targets = sorted(model.model_name_list, key=lambda name: name in model.frozen)  # trained ones first
    covered: dict[str | None, str] = {}
    # a checkpoint holds what was trained; a teacher that came with the first weights comes from there again
    for path in dict.fromkeys((checkpoint, first)):
        if not path or (path != checkpoint and checkpoint is not None and not _lacks(covered, model, needed)):
            continue
        found = _covered_models(model, path, targets) - covered.keys()
        if found:
            only = tuple(f"{name}." for name in model.model_name_list if name in found)
            match = _load(context, model, path, None, only=only, target_models=targets)
            for name in sorted(model.frozen & found):
                _refuse_noise(match.restricted((f"{name}.",)), name, context.charset)
        elif path == checkpoint or checkpoint is None:
            _load(context, model, path, None, target_models=targets)  # says what does not fit
        covered |= dict.fromkeys(found, str(path))
    for name in model.model_name_list:
        if (
            name not in covered
            and (needed is None or name in needed)
            and _load_sub_model(model, name, context)
        ):
            covered[name] = str(model.pretrained[name])
    return covered


def _load(
    context: RunContext, network: nn.Layer, path: str | Path, part: str | None, **options: Any
) -> WeightMatch:
    """Load the weights at ``path`` into ``network``, whose section of the config is ``part``, if it has its own."""
    require_recorded(context.config, path)
    if not is_official(str(path)):
        LOG.info("%s", checkpoint_line(path))
    old, is_assumed = _dictionary_of(context, str(path), part)
    return load_weights(
        network,
        path,
        partial=context.config.settings.pretrained_partial,
        charset=context.charset,
        old_charset=old,
        old_is_assumed=is_assumed,
        **options,
    )


def _dictionary_of(context: RunContext, path: str, part: str | None) -> tuple[Charset | None, bool]:
    """Return the dictionary of the weights at ``path``, as given or of official weights, and whether it is assumed.

    It is None if nobody says it. It is assumed for official weights whose own dictionary is unknown: that of
    their official config may have another class count.

    Raises:
        CharsetError: the dictionary cannot be read.
    """
    key = f"{part}.pretrained_dict"
    given = context.config.at(key, default=None) if part else None
    if given:
        where = f"{context.config.where(key)}: {key}"
        return read_old_charset(given, context.config, context.host.find_file, where), False
    if context.old_charset is not None or not is_official(path):
        return context.old_charset, False
    entry = table()[path]
    listed = entry.dictionary or entry.config_dictionary
    charset = read_old_charset(listed, context.config, context.host.find_file, path)
    return charset, entry.dictionary is None


def _refuse_noise(match: WeightMatch, name: str, charset: Charset) -> None:
    """Refuse rows with initial values in the frozen sub-model ``name``.

    Raises:
        WeightsError: the dictionary has characters that its weights do not know.
    """
    rows = match.carried
    if rows is not None and rows.new:
        raise WeightsError(
            f"{match.source}: {len(rows.new):,} characters of {charset.path} are not in {rows.old.path}, the "
            f"dictionary of these weights: {rows.new_characters()}.\n"
            f"  {name} is frozen, so their rows would stay noise.\n"
            f"Fix: take these characters out of the dictionary, or train the teacher with this dictionary first.",
            code="teacher_lacks_characters",
        )


def _lacks(covered: Container[str | None], model: DistillationModel, needed: tuple[str, ...] | None) -> bool:
    """Return True if a sub-model that needs weights has neither weights yet nor a file of its own."""
    names = model.model_name_list if needed is None else needed
    return any(name not in covered and not model.pretrained.get(name) for name in names)


def _covered_models(model: DistillationModel, path: str | Path, targets: Sequence[str]) -> set[str | None]:
    """Return the sub-models that have entries in the file at ``path``.

    Raises:
        WeightsError: the file has none of a sub-model, and a prefix that misspells its name.
    """
    checkpoint = Checkpoint(path)
    shapes = {name: tuple(t.shape) for name, t in model.state_dict().items()}
    match = match_weights(checkpoint.weights_file(), checkpoint.weights(), shapes, target_models=targets)
    present = {*match.matched, *match.wrong_shape}
    found: set[str | None] = {
        name for name in model.model_name_list if any(n.startswith(f"{name}.") for n in present)
    }
    lacking = [name for name in model.model_name_list if name not in found]
    for part in sorted({name.partition(".")[0] for name in match.unexpected if "." in name}):
        if is_misspelling(part, lacking):
            meant = near_match(part, lacking)
            raise WeightsError(
                f"{match.source}: its entries {part}.… are of no sub-model of this config.{did_you_mean(meant)}\n"
                f"{meant} would start from noise. Fix: use one name in Architecture.Models and in the file.",
                code="misspelt_prefix",
            )
    return found


def _load_sub_model(model: DistillationModel, name: str, context: RunContext) -> bool:
    path = model.pretrained.get(name)
    part = f"Architecture.Models.{name}"
    if path:
        try:
            match = _load(context, getattr(model, name), path, part, first_prefix=f"{name}.")
            if name in model.frozen:
                _refuse_noise(match, name, context.charset)
        except WeightsError as fault:
            raise WeightsError(f"{part}.pretrained: {fault}", code=fault.code) from fault
    elif name in model.frozen and context.trains:
        if not context.config.settings.allow_untrained_teacher:
            raise WeightsError(f"{part}.pretrained: {untrained(name)}", code=UNTRAINED)
        LOG.warning("%s is frozen and has no weights: it teaches noise (Global.%s).", name, ALLOW_UNTRAINED)
    return bool(path)
