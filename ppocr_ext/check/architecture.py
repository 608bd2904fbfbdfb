"""Keys and components of ``Architecture``: one recogniser, or the sub-models of a distillation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ppocr_ext.check.config_check import ConfigCheck, Path
from ppocr_ext.config.node import PlaceKind
from ppocr_ext.messages import did_you_mean
from ppocr_ext.modeling import BaseModel, DistillationModel
from ppocr_ext.modeling.base import model_keys
from ppocr_ext.modeling.heads import CTCHead, MultiHead
from ppocr_ext.modeling.heads.multi import ctc_branch_keys, nrtr_branch_keys
from ppocr_ext.modeling.necks import SequenceEncoder
from ppocr_ext.modeling.necks.sequence import SVTREncoder
from ppocr_ext.registry import ARCHITECTURES, BACKBONES, HEADS, NECKS, TRANSFORMS, Registry, near_match

_PARTS: dict[str, Registry] = {"Transform": TRANSFORMS, "Backbone": BACKBONES, "Neck": NECKS, "Head": HEADS}
_EXAMPLES = {
    "Backbone": "`Backbone: {name: SVTRv2, …}`",
    "Head": "`Head: {name: MultiHead, head_list: […]}`",
}
_OF_SEVERAL = ("name", "model_type", "algorithm", "Models")
_IN_A_CHECKOUT = {"encoder_type": ", or a checkout that has it (`--host DIR`)", "name": ""}
_FITS = ("in_channels", "out_channels", "out_channels_list")  # known once the parts and the dictionary are


def check_architecture(check: ConfigCheck) -> None:
    """All keys and names below ``Architecture``."""
    options = check.mapping("Architecture")
    if not options:
        return
    if options.get("algorithm") is None:
        check.error(
            ("Architecture", "algorithm"),
            "missing_key",
            "is missing; PaddleOCR's loop reads it. For a MultiHead recogniser it is "
            "SVTR_LCNet, for several sub-models Distillation.",
        )
    chosen = check.component(ARCHITECTURES, options.get("name") or "BaseModel", ("Architecture", "name"))
    if chosen is DistillationModel:
        _check_sub_models(check, options)
    elif chosen is BaseModel and "Models" in options:
        check.error(
            ("Architecture", "Models"),
            "sub_model_mismatch",
            "several sub-models need `Architecture.name: DistillationModel`.",
        )
    elif chosen is BaseModel:
        _check_model(check, ("Architecture",))


def _check_sub_models(check: ConfigCheck, options: Mapping[Any, Any]) -> None:
    for key in options:
        if key not in _OF_SEVERAL:
            check.unknown_key(("Architecture", str(key)), _OF_SEVERAL)
    models = check.mapping("Architecture", "Models")
    if not models:
        check.error(
            ("Architecture", "Models"),
            "missing_sub_models",
            "a DistillationModel needs at least one sub-model.",
        )
    for name in models:
        path = ("Architecture", "Models", str(name))
        near = near_match(str(name), [str(other) for other in models if other != name])
        hint = did_you_mean(near)
        place = check.place(path)
        # an option that goes into a sub-model misspells its name; one that gives a whole sub-model does not
        if place.kind is PlaceKind.OPTION and len(place.target) > len(path):
            check.error(
                path,
                "unknown_sub_model",
                f"the files have no such sub-model.{hint} `-o +{'.'.join(path)}…=…` makes one.",
            )
        elif not any(check.mapping(*path).get(part) for part in _PARTS):
            check.error(path, "missing_part", f"the sub-model has none of {', '.join(_PARTS)}.{hint}")
        else:
            _check_model(check, path)
            if options.get("algorithm") == "Distillation" and check.at(*path, "algorithm") is None:
                check.error(
                    path,
                    "missing_key",
                    "algorithm must be given: PaddleOCR's loop reads it. With a MultiHead it is SVTR_LCNet.",
                )


def _check_model(check: ConfigCheck, path: Path) -> None:
    check.check_keys(path, model_keys, check.mapping(*path))
    for flag in ("freeze_params", "return_all_feats"):
        check.refuse_quoted((*path, flag), check.at(*path, flag), "truth")
    for part, registry in _PARTS.items():
        where = (*path, part)
        options = check.mapping(*where)
        if not options:
            if part in _EXAMPLES and check.at(*where) in (None, {}) and _needs(check, path, part):
                check.error(
                    path, "missing_part", f"has no {part}. Give it one, such as {_EXAMPLES[part]}.", part
                )
            continue
        if options.get("name") is None:
            names = ", ".join(registry.names()) or "the host’s"
            check.error(where, "missing_key", f"name must be given: one of {names}.", "name")
            continue
        component = check.component(registry, options["name"], (*where, "name"))
        if component is MultiHead:
            _check_multi_head(check, where)
        elif component is SequenceEncoder:
            _check_encoder(check, where, "encoder_type", ("name",))
        elif component is not None:
            check.check_keys(where, component, check.options(*where), injected=_FITS, extra=("name",))


def _needs(check: ConfigCheck, path: Path, part: str) -> bool:
    """A sub-model may be without a head where losses read its features."""
    return part == "Backbone" or path == ("Architecture",) or check.at(*path, "return_all_feats") is not True


def _check_multi_head(check: ConfigCheck, path: Path) -> None:
    check.check_keys(
        path, MultiHead, check.options(*path), injected=_FITS, extra=("name", "out_channels_list")
    )
    if "head_list" in check.mapping(*path) and check.at(*path, "head_list") in (None, ()):
        check.error(
            (*path, "head_list"),
            "empty_value",
            "is empty; it lists the heads: `- CTCHead: {…}`, `- NRTRHead: {…}`.",
        )
    found = []
    for name, where in check.items(*path, "head_list"):
        found.append(name)
        if name == "CTCHead":
            check.check_keys(where, ctc_branch_keys, check.mapping(*where))
            if check.mapping(*where, "Neck"):
                _check_encoder(check, (*where, "Neck"), "name")
            check.check_keys((*where, "Head"), CTCHead, check.mapping(*where, "Head"), injected=_FITS)
        elif name == "NRTRHead":
            check.check_keys(where, nrtr_branch_keys, check.mapping(*where))
        elif name == "SARHead":
            _check_foreign_branch(check, name, where)
        elif check.component(HEADS, name, where) is not None:
            check.error(
                where,
                "unsupported_component",
                f"{name} cannot be a branch; use CTCHead, NRTRHead or SARHead.",
            )
    if found and "CTCHead" not in found:
        check.error(
            (*path, "head_list"), "missing_branch", f"a MultiHead needs a CTCHead; it has {', '.join(found)}."
        )


def _check_foreign_branch(check: ConfigCheck, name: str, path: Path) -> None:
    component: Callable[..., Any] | None = check.component(HEADS, name, path)
    if component is not None:
        check.check_keys(path, component, check.mapping(*path), injected=_FITS)


def _check_encoder(check: ConfigCheck, path: Path, key: str, extra: tuple[str, ...] = ()) -> None:
    """The options of the sequence encoder that ``key`` names: ``svtr`` takes some, ``reshape`` none."""
    options = {k: v for k, v in check.mapping(*path).items() if k != key and k not in extra}
    encoder = check.at(*path, key)
    if encoder == "svtr":
        check.check_keys(path, SVTREncoder, options, injected=_FITS, extra=(key, *extra))
    elif encoder == "reshape":
        check.check_keys(path, _no_options, options, extra=(key, *extra))
    elif encoder is None:
        check.error(path, "missing_key", f"{key} must be given: svtr or reshape.")
    elif key != "encoder_type" or NECKS.of_host("SequenceEncoder") is None:  # build_neck asks the host too
        check.error(
            (*path, key),
            "unknown_component",
            f"the encoder {encoder!r} is not provided; use 'svtr' or 'reshape'{_IN_A_CHECKOUT[key]}.",
        )


def _no_options() -> None:
    """Keys of the ``reshape`` encoder."""
