"""Load the weights of a run's model, record official ones, and check that frozen teachers can read ``Train``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from paddle import Tensor, nn
from rapidfuzz.distance import Levenshtein

from ppocr_ext.base.parts import BRANCH_ROWS
from ppocr_ext.charset import Charset
from ppocr_ext.check.sub_models import ALLOW_UNTRAINED, UNTRAINED, untrained
from ppocr_ext.checkpoint.checkpoints import Checkpoint
from ppocr_ext.checkpoint.contents import checkpoint_line
from ppocr_ext.checkpoint.weight_match import WeightMatch, match_weights
from ppocr_ext.checkpoint.weight_sources import ReleasedSource, find_source
from ppocr_ext.checkpoint.weights import load_weights
from ppocr_ext.config import Config, load, read_old_charset
from ppocr_ext.config.derive import named_weights
from ppocr_ext.config.global_keys import shown
from ppocr_ext.errors import ConfigError, WeightsError, error_below
from ppocr_ext.messages import LOG, did_you_mean, is_misspelling, near_match
from ppocr_ext.modeling import DistillationModel
from ppocr_ext.modeling.head_request import HeadRequest
from ppocr_ext.modeling.heads import CTCHead, Transformer
from ppocr_ext.run.context import RunContext
from ppocr_ext.run.inference_models import inference_models
from ppocr_ext.run.one_batch import one_batch
from ppocr_ext.text_direction import LEFT_TO_RIGHT

LINES = 64
_FEWEST = 8  # different labels; with fewer, chance decides
_SURE = 2.0  # margin above chance in standard deviations, for LINES samples; smaller for fewer samples
_FEW_RIGHT = 0.2  # of the samples; such a teacher may still help: docs/results.md
_SINGLE_HEADS = {CTCHead: {"ctc"}, Transformer: {"gtc"}}
_KEY = "Global.official_weights"

Records = Mapping[str, Mapping[str, Any]]


def require_recorded(config: Config, path: str | Path) -> None:
    """Compare the official weights ``path`` with their digest in the config, if it has one.

    Raises:
        ConfigError: the record in the config is not valid.
        WeightsError: the digests differ, or the weights cannot be downloaded.
    """
    name = str(path)
    record = _records(config).get(name)
    if record is None or (source := find_source(name)) is None:
        return
    file = source.model.graph if isinstance(source, ReleasedSource) else source.fetch()
    if source.digest != record["sha256"]:
        raise WeightsError(
            f"{file}: the digest is {source.digest} ({source.place}), but the run of this config loaded {name} with "
            f"{record['sha256']} ({record.get('source')}; {config.where(_KEY)}). Fix: put the file with that digest "
            f"there, or take {_KEY} out of the config.",
            code="digest_mismatch",
        )


def official_records(config: Config, loaded: Iterable[str], checkpoint: Checkpoint | None) -> Records:
    """Return digest and source of the official weights and released models that a run uses, by name.

    A resumed run keeps the records of its first start.

    Args:
        config: the config of the run.
        loaded: names and paths of the loaded weights.
        checkpoint: the checkpoint to resume, if any.
    """
    records = {name: source.record for name in loaded if (source := find_source(name)) is not None}
    before = dict(_records(config))
    if checkpoint is not None and (file := checkpoint.prefix.with_name("config.yml")).is_file():
        with suppress(ConfigError):  # the file may be somebody else's
            before |= _records(load([file]))
    kept = {
        name: dict(before[name]) for name in before.keys() & set(map(str, named_weights(config).values()))
    }
    return dict(sorted({**kept, **records}.items()))


def _records(config: Config) -> Records:
    """Return the official weights that the config records.

    Raises:
        ConfigError: the value is not a mapping of names to digests.
    """
    records = config.at(_KEY, default=None) or {}
    if not isinstance(records, Mapping) or not all(
        isinstance(each, Mapping) and isinstance(each.get("sha256"), str) for each in records.values()
    ):
        raise ConfigError(
            f"{config.where(_KEY)}: {_KEY}: found {shown(records)}, expected `sha256` by name, as a run writes it. "
            f"Fix: remove the key.",
            code="bad_value",
        )
    return records


def load_model_weights(
    model: nn.Layer, context: RunContext, *, needed: tuple[str, ...] | None, assign: bool = True
) -> dict[str | None, str]:
    """Load weights from the checkpoint or ``Global.pretrained_model``, and sub-models from their own files.

    Args:
        model: the networks.
        context: the context of the run; its checkpoint, if any, takes precedence over ``pretrained_model``.
        needed: sub-models that must have weights; None for all.
        assign: False compares the weights only; the networks do not change.

    Returns:
        The path or the official name of the weights of each loaded sub-model; the key is None for a model without
        sub-models.

    Raises:
        WeightsError: the weights cannot be loaded (:func:`ppocr_ext.checkpoint.weights.load_weights`), or a frozen
            sub-model has no weights, or its weights lack characters of the dictionary.
        CharsetError: the dictionary of the weights cannot be read.

        Their ``key`` is that of the weights.
    """
    load_part = partial(load_network, context, assign=assign)
    if not isinstance(model, DistillationModel):
        return _load_single_model(model, context, load_part)
    checkpoint = None if context.checkpoint is None else context.checkpoint.prefix
    first = context.config.settings.pretrained_model
    inference = inference_models(model)
    covered: dict[str | None, str] = {
        name: str(own_path(context, name)) for name, head in inference.items() if head.compute is not None
    }
    for own_file in covered.values():
        require_recorded(context.config, own_file)
    own = [name for name in model.model_name_list if name not in inference]
    targets = sorted(own, key=lambda name: name in model.frozen)  # trained ones first
    names = own if needed is None else needed
    # A checkpoint has only the trained sub-models, so a teacher is loaded from the first weights again.
    for path in [each for each in dict.fromkeys((checkpoint, first)) if each]:
        whole = "checkpoints" if path == checkpoint else "pretrained_model"
        is_second = checkpoint is not None and path != checkpoint
        if is_second and all(name in covered or own_path(context, name) for name in names):
            continue
        with error_below("Global", whole):
            contained = _covered_models(model, path, targets) - covered.keys()
            if contained:
                only = tuple(f"{name}." for name in own if name in contained)
                match = load_part(model, path, None, only=only, target_models=targets)
                for name in sorted(model.frozen & contained):
                    _refuse_noise(match.restricted((f"{name}.",)), name, context.charset)
            elif not is_second:
                # Raises an error that says what does not fit.
                load_part(model, path, None, target_models=targets)
        covered |= dict.fromkeys(contained, str(path))
    for name in [each for each in own if needed is None or each in needed]:
        if name not in covered and _load_sub_model(model, name, context, load_part):
            covered[name] = str(own_path(context, name))
    return covered


def _load_single_model(
    model: nn.Layer, context: RunContext, load_part: Callable[..., WeightMatch]
) -> dict[str | None, str]:
    checkpoint = context.checkpoint
    path = context.config.settings.pretrained_model if checkpoint is None else checkpoint.prefix
    if not path:
        return {}
    with error_below("Global", "checkpoints" if checkpoint else "pretrained_model"):
        part = None if checkpoint else "Architecture"
        load_part(model, path, part, first_prefix=f"{context.options.weights_of}.")
    return {None: str(path)}


def own_path(context: RunContext, name: str) -> str | None:
    """Return the path or the name of a sub-model's own weights; None if it has none."""
    return context.config.at(("Architecture", "Models", name, "pretrained"), None)


def load_network(
    context: RunContext, network: nn.Layer, path: str | Path, part: str | None, **options: Any
) -> WeightMatch:
    """Load the weights at ``path`` into ``network``; ``part`` is the config section of their ``pretrained_dict``.

    ``options`` are those of :func:`ppocr_ext.checkpoint.weights.load_weights`, which says what is raised.
    """
    require_recorded(context.config, path)
    if find_source(str(path)) is None:
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
    """Return the dictionary of the weights at ``path`` (None if it is unknown), and whether it is a guess.

    A released model has its dictionary. For official weights with an unknown dictionary, that of their official config
    is taken as a guess.

    Raises:
        CharsetError: the dictionary cannot be read.
    """
    key = f"{part}.pretrained_dict"
    dictionary = context.config.at(key, default=None) if part else None
    if dictionary:
        where = f"{context.config.where(key)}: {key}"
        return read_old_charset(dictionary, context.config, context.host.find_file, where), False
    source = find_source(path)
    if context.old_charset is not None or source is None:
        return context.old_charset, False
    if isinstance(source, ReleasedSource):
        return source.charset(), False
    listed = source.dictionary or source.config_dictionary
    charset = read_old_charset(listed, context.config, context.host.find_file, path)
    return charset, source.dictionary is None


def _refuse_noise(match: WeightMatch, name: str, charset: Charset) -> None:
    """Check that the weights of the frozen sub-model ``name`` have all characters of the dictionary.

    Raises:
        WeightsError: some are missing, so their rows would keep random initial values.
    """
    rows = match.carried
    if rows is not None and rows.new:
        raise WeightsError(
            f"{match.source}: {len(rows.new):,} characters of {charset.path} are not in {rows.old.name}, the "
            f"dictionary of these weights: {rows.new_characters()}.\n"
            f"  {name} is frozen, so their rows would stay random.\n"
            f"Fix: remove these characters from the dictionary, or train the teacher with this dictionary first.",
            code="teacher_lacks_characters",
        )


def _covered_models(model: DistillationModel, path: str | Path, targets: Sequence[str]) -> set[str | None]:
    """Return the sub-models that have entries in the file at ``path``.

    Raises:
        WeightsError: a sub-model has no entry, but the file has a prefix that misspells its name.
    """
    checkpoint = Checkpoint(path)
    shapes = {name: tuple(t.shape) for name, t in model.state_dict().items()}
    match = match_weights(checkpoint.weights_file(), checkpoint.weights(), shapes, target_models=targets)
    present = {*match.matched, *match.wrong_shape}
    contained: set[str | None] = {name for name in targets if any(n.startswith(f"{name}.") for n in present)}
    lacking = [name for name in targets if name not in contained]
    for part in sorted({name.partition(".")[0] for name in match.unexpected if "." in name}):
        if is_misspelling(part, lacking):
            meant = near_match(part, lacking)
            raise WeightsError(
                f"{match.source}: its entries {part}.… belong to no sub-model of this config.{did_you_mean(meant)}\n"
                f"{meant} would start from random weights. Fix: use one name in Architecture.Models and in the file.",
                code="misspelt_prefix",
            )
    return contained


def _load_sub_model(
    model: DistillationModel, name: str, context: RunContext, load_part: Callable[..., WeightMatch]
) -> bool:
    path = own_path(context, name)
    part = f"Architecture.Models.{name}"
    if path:
        try:
            match = load_part(getattr(model, name), path, part, first_prefix=f"{name}.")
            if name in model.frozen:
                _refuse_noise(match, name, context.charset)
        except WeightsError as fault:
            key = tuple(f"{part}.pretrained".split("."))
            raise WeightsError(f"{part}.pretrained: {fault}", code=fault.code, key=key) from fault
    elif name in model.frozen and context.trains:
        if not context.config.settings.allow_untrained_teacher:
            raise WeightsError(f"{part}.pretrained: {untrained(name)}", code=UNTRAINED)
        LOG.warning("%s is frozen and has no weights: it teaches noise (Global.%s).", name, ALLOW_UNTRAINED)
    return bool(path)


def require_reading(context: RunContext, model: nn.Layer, names: Sequence[str | None]) -> None:
    """Check that weights read samples of ``Train`` better than by chance: those of frozen teachers, or of one network.

    They read :data:`LINES` samples without augmentation, with CTC and NRTR. Only process 0 does this, and not in a
    resumed run. Networks and random generators do not change. A network without these branches is not checked, nor are
    fewer than :data:`_FEWEST` different labels. A teacher that reads few of them right is warned of, and one network
    whose texts have the right length alone: it may learn.

    Args:
        context: the context of a training.
        model: the networks with their weights, not wrapped.
        names: the names of the teachers; None for a model without sub-models.

    Raises:
        WeightsError: the texts of a teacher are not nearer to their labels than to the labels of other samples.
    """
    config = context.components
    if not names or not context.is_first or context.checkpoint or config.settings.allow_untrained_teacher:
        return
    wide = config.with_values(
        {
            key: LINES
            for key in ("Train.loader.batch_size_per_card", "Train.sampler.first_bs")
            if config.at(key, None)
        }
    )
    batch = one_batch(replace(context, components=wide), model, LINES)
    for name in names if len(set(batch.texts)) >= _FEWEST else ():
        network = model if name is None else model.models[name]
        network.eval()
        branches = getattr(network.head, "branches", _SINGLE_HEADS.get(type(network.head), set()))
        texts = {
            branch: _texts(context, network, batch.images, branch)
            for branch in sorted({"ctc", "gtc"} & set(branches))
        }
        model.train()  # frozen teachers stay as they are
        _judge(name, texts, batch.texts)


def _judge(name: str | None, texts: Mapping[str, Sequence[str]], labels: Sequence[str]) -> None:
    """Log how a network reads, by the texts of each branch; see :func:`require_reading`.

    Raises:
        WeightsError: a teacher reads no better than by chance.
    """
    scores = {branch: likeness(read, labels) for branch, read in texts.items()}
    text = "; ".join(
        f"{branch} {own:.2f}, by chance {chance:.2f}" for branch, (own, chance) in scores.items()
    )
    count = len(labels)
    LOG.info(
        "%s reads %d samples of Train; likeness to their labels: %s",
        name or "Global.pretrained_model",
        count,
        text,
    )
    is_noise = bool(scores) and all(own <= chance for own, chance in scores.values())
    # without spaces, as most metrics compare them
    pairs = [
        [(text.replace(" ", ""), label.replace(" ", "")) for text, label in zip(read, labels, strict=True)]
        for read in texts.values()
    ]
    right = max((sum(text == label for text, label in each) for each in pairs), default=count)
    long = max((sum(len(text) == len(label) for text, label in each) for each in pairs), default=0)
    if name is None and is_noise and 2 * long > count:
        LOG.warning(
            "Global.pretrained_model: %d of %d texts have the length of their label, but not its characters. The "
            "weights have probably another dictionary, or its lines in another order. Fix: give theirs with "
            "--old-dict, or as Global.character_dict_path",
            long,
            count,
        )
    elif name is not None and is_noise:
        raise WeightsError(
            f"{name} is frozen, but cannot read Train: its texts of {count} samples are not nearer to "
            f"their labels than to others (likeness: {text}).\n  Probable causes: a dictionary in another order "
            f"than its own, a wrong file, another image size or normalisation.\n"
            f"Fix: correct that; to train anyway: -o Global.{ALLOW_UNTRAINED}=true.",
            code="teacher_cannot_read",
        )
    elif name is not None and right < _FEW_RIGHT * count:
        LOG.warning(
            "%s reads %d of %d samples of Train right, and would teach its errors too. Fix: train it on such lines "
            "first, if you can",
            name,
            right,
            count,
        )


def _texts(context: RunContext, teacher: nn.Layer, images: Tensor, branch: str) -> list[str]:
    """Return the texts of images [B, C, H, W], by a branch of a frozen network and the host's decoder."""
    request = HeadRequest(frozenset({branch}), probabilities=True, decode=True, as_dict=False)
    output = teacher(images, None, request)
    # in the order of the image, as the labels of a batch are
    context = replace(context, charset=replace(context.charset, direction=LEFT_TO_RIGHT))
    results = context.decoder({"name": BRANCH_ROWS[branch].decoder})(
        output["head_out"] if isinstance(output, dict) else output
    )
    return [str(result[0]) for result in results]


def likeness(texts: Sequence[str], labels: Sequence[str]) -> tuple[float, float]:
    """Return the mean likeness (1 - normalised edit distance) of texts to their labels, and the likeness by chance.

    The latter is the mean over all shifts of the labels among the samples, plus a margin. A shifted label gets the
    length of the label that it replaces: it is cut, or continued by the next labels. So a right length does not count.
    """
    count = len(texts)
    stream = "".join(labels) * 2
    starts = [0, *accumulate(map(len, labels))]
    means = []
    for shift in range(count):
        others = [
            stream[start : start + len(label)]
            for start, label in zip(starts[shift:count] + starts[:shift], labels, strict=True)
        ]
        means.append(float(np.mean(list(map(Levenshtein.normalized_similarity, texts, others)))))
    chance = float(np.mean(means[1:]) + _SURE * min(1.0, count / LINES) * np.std(means[1:]))
    return means[0], min(0.5, chance)  # a greater likeness means that the texts were read
