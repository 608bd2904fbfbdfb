"""Keys and components of ``Architecture``: one recogniser, or the sub-models of a distillation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ppocr_ext.check.look import Look, Path
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


def check_architecture(look: Look) -> None:
    """All keys and names below ``Architecture``."""
    options = look.mapping("Architecture")
    if not options:
        return
    if options.get("algorithm") is None:
        look.error(
            ("Architecture", "algorithm"),
            "is missing; PaddleOCR's loop reads it. For a MultiHead recogniser it is "
            "SVTR_LCNet, for several sub-models Distillation.",
        )
    chosen = look.component(ARCHITECTURES, options.get("name") or "BaseModel", ("Architecture", "name"))
    if chosen is DistillationModel:
        _check_sub_models(look, options)
    elif chosen is BaseModel and "Models" in options:
        look.error(
            ("Architecture", "Models"), "several sub-models need `Architecture.name: DistillationModel`."
        )
    elif chosen is BaseModel:
        _check_model(look, ("Architecture",))


def _check_sub_models(look: Look, options: Mapping[Any, Any]) -> None:
    for key in options:
        if key not in _OF_SEVERAL:
            look.unknown_key(("Architecture", str(key)), _OF_SEVERAL)
    models = look.mapping("Architecture", "Models")
    if not models:
        look.error(("Architecture", "Models"), "a DistillationModel needs at least one sub-model.")
    for name in models:
        path = ("Architecture", "Models", str(name))
        near = near_match(str(name), [str(other) for other in models if other != name])
        hint = did_you_mean(near)
        place = look.place(path)
        # an option that goes into a sub-model misspells its name; one that gives a whole sub-model does not
        if place.kind is PlaceKind.OPTION and len(place.target) > len(path):
            look.error(path, f"the files have no such sub-model.{hint} `-o +{'.'.join(path)}…=…` makes one.")
        elif not any(look.mapping(*path).get(part) for part in _PARTS):
            look.error(path, f"the sub-model has none of {', '.join(_PARTS)}.{hint}")
        else:
            _check_model(look, path)
            if options.get("algorithm") == "Distillation" and look.at(*path, "algorithm") is None:
                look.error(
                    path,
                    "algorithm must be given: PaddleOCR's loop reads it. With a MultiHead it is SVTR_LCNet.",
                )


def _check_model(look: Look, path: Path) -> None:
    look.keys(path, model_keys, look.mapping(*path))
    for flag in ("freeze_params", "return_all_feats"):
        look.kind((*path, flag), look.at(*path, flag), "truth")
    for part, registry in _PARTS.items():
        where = (*path, part)
        options = look.mapping(*where)
        if not options:
            if part in _EXAMPLES and look.at(*where) in (None, {}) and _needs(look, path, part):
                look.error(path, f"has no {part}. Give it one, such as {_EXAMPLES[part]}.", part)
            continue
        if options.get("name") is None:
            names = ", ".join(registry.names()) or "the host’s"
            look.error(where, f"name must be given: one of {names}.", "name")
            continue
        component = look.component(registry, options["name"], (*where, "name"))
        if component is MultiHead:
            _check_multi_head(look, where)
        elif component is SequenceEncoder:
            _check_encoder(look, where, "encoder_type", ("name",))
        elif component is not None:
            look.keys(where, component, look.options(*where), injected=_FITS, extra=("name",))


def _needs(look: Look, path: Path, part: str) -> bool:
    """A sub-model may be without a head where losses read its features."""
    return part == "Backbone" or path == ("Architecture",) or look.at(*path, "return_all_feats") is not True


def _check_multi_head(look: Look, path: Path) -> None:
    look.keys(path, MultiHead, look.options(*path), injected=_FITS, extra=("name", "out_channels_list"))
    if "head_list" in look.mapping(*path) and look.at(*path, "head_list") in (None, ()):
        look.error((*path, "head_list"), "is empty; it lists the heads: `- CTCHead: {…}`, `- NRTRHead: {…}`.")
    found = []
    for name, where in look.listed(*path, "head_list"):
        found.append(name)
        if name == "CTCHead":
            look.keys(where, ctc_branch_keys, look.mapping(*where))
            if look.mapping(*where, "Neck"):
                _check_encoder(look, (*where, "Neck"), "name")
            look.keys((*where, "Head"), CTCHead, look.mapping(*where, "Head"), injected=_FITS)
        elif name == "NRTRHead":
            look.keys(where, nrtr_branch_keys, look.mapping(*where))
        elif name == "SARHead":
            _check_foreign_branch(look, name, where)
        elif look.component(HEADS, name, where) is not None:
            look.error(where, f"{name} cannot be a branch; use CTCHead, NRTRHead or SARHead.")
    if found and "CTCHead" not in found:
        look.error((*path, "head_list"), f"a MultiHead needs a CTCHead; it has {', '.join(found)}.")


def _check_foreign_branch(look: Look, name: str, path: Path) -> None:
    component: Callable[..., Any] | None = look.component(HEADS, name, path)
    if component is not None:
        look.keys(path, component, look.mapping(*path), injected=_FITS)


def _check_encoder(look: Look, path: Path, key: str, extra: tuple[str, ...] = ()) -> None:
    """The options of the sequence encoder that ``key`` names: ``svtr`` takes some, ``reshape`` none."""
    options = {k: v for k, v in look.mapping(*path).items() if k != key and k not in extra}
    encoder = look.at(*path, key)
    if encoder == "svtr":
        look.keys(path, SVTREncoder, options, injected=_FITS, extra=(key, *extra))
    elif encoder == "reshape":
        look.keys(path, _no_options, options, extra=(key, *extra))
    elif encoder is None:
        look.error(path, f"{key} must be given: svtr or reshape.")
    elif key != "encoder_type" or NECKS.of_host("SequenceEncoder") is None:  # build_neck asks the host too
        look.error(
            (*path, key),
            f"the encoder {encoder!r} is not provided; use 'svtr' or 'reshape'{_IN_A_CHECKOUT[key]}.",
        )


def _no_options() -> None:
    """Keys of the ``reshape`` encoder."""
