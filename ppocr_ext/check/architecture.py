"""Check the keys and components of ``Architecture``: one recogniser, or the sub-models of a distillation."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ppocr_ext.base.parts import (
    BRANCH_OF_HEAD,
    BRANCH_ROWS,
    CTC_DECODER,
    CTC_HEAD,
    HEAD_DECODERS,
    INFERENCE_MODEL,
    MULTI_HEAD,
    SPECIALS,
    TAUGHT_ALGORITHMS,
)
from ppocr_ext.check.config_check import UNUSED, ConfigCheck
from ppocr_ext.check.findings import KeyPath
from ppocr_ext.config import named_items
from ppocr_ext.config.derive import model_paths
from ppocr_ext.config.global_keys import shown
from ppocr_ext.config.node import PlaceKind, dotted
from ppocr_ext.messages import did_you_mean, near_match
from ppocr_ext.modeling import BaseModel, DistillationModel
from ppocr_ext.modeling.backbones import SVTRNet
from ppocr_ext.modeling.heads import CTCHead, InferenceModel, MultiHead, SARHead
from ppocr_ext.modeling.heads.multi_head import CTC_BRANCH, NRTR_BRANCH
from ppocr_ext.modeling.models import MODEL_KEYS
from ppocr_ext.modeling.necks import ENCODERS, SequenceEncoder
from ppocr_ext.registry import (
    ARCHITECTURES,
    BACKBONES,
    HEADS,
    NECKS,
    TRANSFORMS,
    Component,
    ComponentKeys,
    Registry,
)

_PARTS: dict[str, Registry] = {"Transform": TRANSFORMS, "Backbone": BACKBONES, "Neck": NECKS, "Head": HEADS}
_EXAMPLES = {
    "Backbone": "`Backbone: {name: SVTRv2, …}`",
    "Head": "`Head: {name: MultiHead, head_list: […]}`",
}
_OF_SEVERAL = ("name", "model_type", "algorithm", "Models")
_ALGORITHM = (
    "PaddleOCR's loop reads it. With a MultiHead it is SVTR_LCNet, with several sub-models Distillation"
)
_BRANCH_KEYS: dict[str, Component] = {
    "CTCHead": CTC_BRANCH,
    "NRTRHead": NRTR_BRANCH,
    "SARHead": SARHead,
}
# The decoders that read the output of a head.
_DECODERS = {
    **{head: {decoder} for head, decoder in HEAD_DECODERS.items()},
    **dict.fromkeys((MULTI_HEAD, INFERENCE_MODEL), {CTC_DECODER}),
    CTC_HEAD: {CTC_DECODER, "ViTSTRLabelDecode"},
}
_DEFAULT_LENGTH = 25  # PaddleOCR's default, in Global and in an NRTRHead
_GIVEN = ("in_channels", "out_channels", "out_channels_list")  # the program computes these values


def check_architecture(check: ConfigCheck) -> None:
    """Check all keys and names below ``Architecture``."""
    options = check.mapping("Architecture")
    if not options:
        return
    if options.get("algorithm") is None:
        check.missing(("Architecture", "algorithm"), _ALGORITHM)
    component = check.component(ARCHITECTURES, options.get("name") or "BaseModel", ("Architecture", "name"))
    if component is DistillationModel:
        _check_sub_models(check, options)
    elif component is BaseModel and "Models" in options:
        check.error(
            ("Architecture", "Models"),
            "sub_model_mismatch",
            "several sub-models need `Architecture.name: DistillationModel`.",
        )
    elif component is BaseModel:
        _check_model(check, ("Architecture",))
    _check_branches(check)
    _check_decoder(check)


def _check_sub_models(check: ConfigCheck, options: Mapping[Any, Any]) -> None:
    """Check the sub-models of a DistillationModel; its options are those of ``Architecture``."""
    check.section(("Architecture",), _OF_SEVERAL)
    models = check.mapping("Architecture", "Models")
    if not models:
        check.missing(("Architecture", "Models"), "at least one sub-model")
    for name in models:
        path = ("Architecture", "Models", str(name))
        hint = did_you_mean(near_match(str(name), [str(other) for other in models if other != name]))
        place = check.place(path)
        # such an option misspells the name of the sub-model; an option that gives a whole sub-model does not
        if place.kind is PlaceKind.OPTION and len(place.target) > len(path):
            check.error(
                path,
                "unknown_sub_model",
                f"the files have no such sub-model.{hint} `-o +{dotted(path)}…=…` makes one.",
            )
        elif not any(check.mapping(*path).get(part) for part in _PARTS):
            check.error(path, "missing_part", f"the sub-model has none of {', '.join(_PARTS)}.{hint}")
        else:
            _check_model(check, path)
            if options.get("algorithm") == "Distillation" and check.at(*path, "algorithm") is None:
                check.missing((*path, "algorithm"), _ALGORITHM)


def _check_model(check: ConfigCheck, path: KeyPath) -> None:
    """Check one recogniser: its flags and its parts."""
    check.check_keys(path, MODEL_KEYS, check.mapping(*path))
    for flag in ("freeze_params", "return_all_feats"):
        check.check_kind((*path, flag), check.at(*path, flag), "truth")
    for part, registry in _PARTS.items():
        where = (*path, part)
        options = check.mapping(*where)
        if not options:
            # a sub-model needs no head if losses read its features
            without_head = path != ("Architecture",) and check.at(*path, "return_all_feats") is True
            alone = check.at(*path, "Head", "name") == INFERENCE_MODEL
            needed = part == "Backbone" and not alone or part == "Head" and not without_head
            if needed and check.at(*where) in (None, {}):
                check.error(
                    where,
                    "missing_part",
                    f"the model has no {part}. Fix: give it one, such as {_EXAMPLES[part]}.",
                )
            continue
        component = check.component(registry, options.get("name"), (*where, "name"))
        if component is MultiHead:
            _check_multi_head(check, where)
        elif component is SequenceEncoder:
            _check_encoder(check, where, "encoder_type", ("name",))
        elif component is not None:
            before = len(check.issues)
            check.check_keys(where, component, options, injected=_GIVEN, extra=("name",))
            _join_unused(check, where, before)
        if component is InferenceModel:
            _check_inference_model(check, path)
    if check.at(*path, "Backbone", "name") == SVTRNet.__name__:
        _check_mixers(check, (*path, "Backbone"))
        if check.at(*path, "Head", "name") == MULTI_HEAD:
            _check_tokens(check, (*path, "Backbone"), (*path, "Head"))


def _join_unused(check: ConfigCheck, path: KeyPath, before: int) -> None:
    """Make one issue of the unused keys that the check of a part has found; a fork reads such keys."""
    found = check.issues[before:]
    unused = [issue for issue in found if issue.code == "unused_key" and issue.message == UNUSED]
    if len(unused) > 1:
        keys = ", ".join(issue.path.rpartition(".")[2] for issue in unused)
        check.issues[before:] = [issue for issue in found if issue not in unused]
        check.warning(path, "unused_key", f"{keys} are not used. A fork that reads them has another network.")


def _check_inference_model(check: ConfigCheck, path: KeyPath) -> None:
    """Check that an inference model teaches, and is all that its sub-model has."""
    others = [part for part in _PARTS if part != "Head" and check.at(*path, part)]
    if path == ("Architecture",) or check.at(*path, "freeze_params") is not True or others:
        check.error(
            (*path, "Head", "name"),
            "not_a_teacher",
            f"an inference model is a frozen teacher, alone in its sub-model (found "
            f"{', '.join(others) or 'no teacher'}). Fix: a sub-model with `freeze_params: true` and this Head only; "
            f"`ppocr-ext predict` reads with an inference model, `init --base` trains one.",
        )


def _of_svtrnet(check: ConfigCheck, backbone: KeyPath, *keys: str) -> list[Any]:
    """Return the values of the keys of an SVTRNet, or their defaults."""
    defaults = inspect.signature(SVTRNet).parameters
    return [check.at(*backbone, key, default=defaults[key].default) for key in keys]


def _check_mixers(check: ConfigCheck, backbone: KeyPath) -> None:
    """Warn of mixers after the last block of an SVTRNet; PaddleOCR ignores them, and refuses too few."""
    depth, mixers = _of_svtrnet(check, backbone, "depth", "mixer")
    with suppress(TypeError):  # a list of another form, which the dry step reports
        if len(mixers) > (blocks := sum(depth)):
            text = f"found {len(mixers)} mixers for {blocks} blocks (depth); the first {blocks} are used."
            check.warning((*backbone, "mixer"), "length_mismatch", text)


def _check_tokens(check: ConfigCheck, backbone: KeyPath, head: KeyPath) -> None:
    """Check that a MultiHead pools the output of an SVTRNet if that is tokens, and only then."""
    returns_tokens = check.at(*backbone, "last_stage") is False
    if returns_tokens != (check.at(*head, "use_pool") is True):
        check.error(
            (*head, "use_pool"),
            "token_mismatch",
            "a MultiHead has to pool the tokens that SVTRNet returns with `last_stage: false`, and only these. Fix: "
            f"{'add `use_pool: true`' if returns_tokens else 'remove `use_pool`'} below {dotted(head)}.",
        )
    widths, features = _of_svtrnet(check, backbone, "embed_dim", "out_channels")
    if returns_tokens and isinstance(widths, tuple) and widths and features != widths[-1]:
        check.error(
            (*backbone, "out_channels"),
            "token_mismatch",
            f"found {shown(features)}, but a token of SVTRNet has {shown(widths[-1])} features, the "
            f"last of embed_dim. Fix: `out_channels: {shown(widths[-1])}` below {dotted(backbone)}.",
        )


def _check_multi_head(check: ConfigCheck, path: KeyPath) -> None:
    """Check the options of a MultiHead and of its branches."""
    extra = ("name", "out_channels_list")
    check.check_keys(path, MultiHead, check.mapping(*path), injected=_GIVEN, extra=extra)
    listed = (*path, "head_list")
    if "head_list" in check.mapping(*path) and check.at(*listed) in (None, ()):
        check.error(
            listed, "empty_value", "is empty. Fix: list the heads, `- CTCHead: {…}`, `- NRTRHead: {…}`."
        )
    names = []
    for name, where in check.items(*listed):
        names.append(name)
        if name not in _BRANCH_KEYS:
            check.error(
                where,
                "unsupported_component",
                f"{name} cannot be a branch.{did_you_mean(near_match(name, _BRANCH_KEYS))} Fix: use one of "
                f"{', '.join(_BRANCH_KEYS)}.",
            )
            continue
        check.check_keys(where, _BRANCH_KEYS[name], check.mapping(*where), injected=_GIVEN)
        if name == CTC_HEAD:
            if check.mapping(*where, "Neck"):
                _check_encoder(check, (*where, "Neck"), "name")
            check.check_keys((*where, "Head"), CTCHead, check.mapping(*where, "Head"), injected=_GIVEN)
    if names and CTC_HEAD not in names:
        check.error(
            listed,
            "missing_branch",
            f"found {', '.join(names)}, expected a {CTC_HEAD} among the heads.",
        )


def _check_branches(check: ConfigCheck) -> None:
    """Check ``algorithm`` and the length of NRTR's output against the branches of MultiHeads."""
    branches = {
        path: {BRANCH_OF_HEAD.get(head) for head, _ in named_items(check.config, *path, "Head", "head_list")}
        for path in model_paths(check.config)
    }
    if not any(branches.values()):
        return
    taught = [path for path, names in branches.items() if names & {"gtc", "sar"}]
    algorithms = [check.at(*path, "algorithm") for path in (*taught, *branches)]
    known = TAUGHT_ALGORITHMS.intersection(map(str, algorithms))
    # an algorithm that is missing has been reported
    if check.role == "train" and taught and algorithms[0] and not known:
        check.error(
            (*taught[0], "algorithm"),
            "algorithm_mismatch",
            f"PaddleOCR's loop gives the network no labels with {algorithms[0]!r}, but NRTRHead and SARHead need them. "
            f"Fix: write SVTR_LCNet.",
        )
    for path in (path for path, names in branches.items() if "gtc" in names):
        _check_length(check, (*path, "Head", "head_list", BRANCH_ROWS["gtc"].head, "max_text_length"))


def _check_decoder(check: ConfigCheck) -> None:
    """Check that the decoder reads the output of a head; heads that are not known may have any."""
    decoder = str(check.at("PostProcess", "name") or "")
    of_one = decoder.removeprefix("Distillation")
    heads = {str(check.at(*path, "Head", "name")) for path in model_paths(check.config)} - {"None"}
    fitting = {decoder for head in heads for decoder in _DECODERS.get(head, ())}
    if of_one in SPECIALS and fitting and of_one not in fitting and heads <= _DECODERS.keys():
        multi = " in evaluation; `eval --head gtc` evaluates the NRTR branch" if MULTI_HEAD in heads else ""
        check.error(
            ("PostProcess", "name"),
            "decoder_mismatch",
            f"{decoder} does not read the output of {', '.join(sorted(heads))}{multi}. Fix: use "
            f"{decoder.replace(of_one, min(fitting))}.",
        )


def _check_length(check: ConfigCheck, path: KeyPath) -> None:
    """Check that NRTR decodes the longest label. Its output has ``max_text_length`` symbols, one of them ``<s>``."""
    longest = check.at("Global", "max_text_length", default=_DEFAULT_LENGTH)
    decoded = check.at(*path) or _DEFAULT_LENGTH
    if isinstance(longest, int) and isinstance(decoded, int) and decoded < longest - 1:
        check.warning(  # it learns from longer labels too, and only `eval --head gtc` decodes it
            path,
            "text_length_mismatch",
            f"the NRTR branch decodes up to {decoded - 1} characters (found {decoded}), but labels have up to "
            f"{longest - 2} (Global.max_text_length: {longest}). Fix: remove this key, and {longest} is used.",
        )


def _check_encoder(check: ConfigCheck, path: KeyPath, key: str, extra: tuple[str, ...] = ()) -> None:
    """Check the options of the sequence encoder that ``key`` names; ``reshape`` takes none."""
    options = {k: v for k, v in check.mapping(*path).items() if k != key and k not in extra}
    encoder = check.at(*path, key)
    known = " or ".join(ENCODERS)
    if isinstance(encoder, str) and encoder in ENCODERS:
        component = ENCODERS[encoder] or ComponentKeys(frozenset())
        check.check_keys(path, component, options, injected=_GIVEN, extra=(key, *extra))
    elif encoder is None:
        check.missing((*path, key), known)
    elif key == "name" or NECKS.of_host("SequenceEncoder") is None:  # build_neck asks the host too
        hint = did_you_mean(near_match(str(encoder), ENCODERS))
        hint += "" if key == "name" else " Fix: `--host DIR` with a checkout that has it."
        check.error((*path, key), "unknown_component", f"found {encoder!r}, expected {known}.{hint}")
