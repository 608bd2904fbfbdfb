"""Compile networks of a run: frozen ones in training, and those of ``eval`` and ``export-center``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddle import nn

from ppocr_ext.config import Config
from ppocr_ext.config.global_keys import AUTO, BFLOAT16, FLOAT32, NETWORK, PADDLE
from ppocr_ext.data.preprocessing import read_preprocessing
from ppocr_ext.inference.compiled import CompiledNetwork
from ppocr_ext.inference.runners import other_engines
from ppocr_ext.messages import LOG
from ppocr_ext.modeling import BaseModel, DistillationModel
from ppocr_ext.modeling.head_request import HeadRequest
from ppocr_ext.run.context import RunContext

LEAST_SAMPLES = 512  # for fewer, compiling takes longer than it saves
_WATCHED = ("to_static", "detect_anomaly")  # compile or watch the layers of the networks themselves


def compile_frozen(
    context: RunContext, model: nn.Layer, samples: int, *, prepare: bool = True
) -> dict[str, CompiledNetwork]:
    """Compile the frozen sub-models that a loss reads (``Global.teacher_engine``).

    They compute in ``Global.teacher_dtype`` if they are compiled and the processor has it. A resumed run whose
    checkpoint has other engines or types says so: its numbers differ. With ``auto`` it takes the engines and types of
    its checkpoint.

    Args:
        context: of the run.
        model: with its weights.
        samples: that this process reads in the whole run; of few, nothing is compiled.
        prepare: make the graphs now; else when the first images come, which may be never.

    Returns:
        What was compiled, by the name of the sub-model, to be called in its place.
    """
    config = context.config
    checkpoint = context.checkpoint
    compiled = {}
    dtype = config.settings.teacher_dtype
    asked = config.settings.teacher_engine
    state = None if checkpoint is None else checkpoint.train_state()
    before = dict((state and state.engines) or {})
    frozen = (
        sorted(model.frozen & model.train_requests.keys()) if isinstance(model, DistillationModel) else []
    )
    if (frozen or not _is_ours(model)) and _is_wanted(context, model, "teacher_engine", samples):
        for name in frozen:
            network = model.models[name]
            taken, kind = _engine_to_take(asked, before.get(name, AUTO), dtype)
            engine = _compile(
                network,
                model.train_requests[name],
                config,
                "Train" if prepare else None,
                name,
                dtype=kind,
                engine=taken,
            )
            engine.asked = dtype
            if engine.engine != NETWORK:
                compiled[name] = engine
                LOG.info("%s is frozen and compiled: %s (Global.teacher_engine)", name, engine.label)
    if dtype != FLOAT32 and not compiled:
        LOG.warning(
            "Global.teacher_dtype: no frozen network is compiled, float32 computes them (not %s).", dtype
        )
    if checkpoint is not None:
        _compare_engines(checkpoint.prefix, before, engine_names(compiled) or {})
    return compiled


def _compare_engines(prefix: object, before: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Say that a checkpoint was computed by other engines; ``"auto"`` of an older one is any engine."""
    known = {
        name: now.get(name, label) if label.startswith(AUTO) else label for name, label in before.items()
    }
    if known != now:
        LOG.warning(
            "%s: engines of the frozen networks were %s and are %s now. The resumed run is not equal in every bit "
            "to the unbroken one. To compute as before: Global.teacher_engine and Global.teacher_dtype.",
            prefix,
            known or NETWORK,
            now or NETWORK,
        )


def _engine_to_take(asked: str, recorded: str, dtype: str) -> tuple[str, str]:
    """Return engine and type: with ``auto`` those of a checkpoint, which names no type if float32 was asked for."""
    if asked != AUTO:
        return asked, dtype
    kept, _, kind = recorded.partition(" ")
    kind = kind if dtype == BFLOAT16 and kind else dtype
    if kept in (PADDLE, *other_engines(kind)):
        return kept, kind
    return asked, dtype


def engine_names(engines: Mapping[str, CompiledNetwork]) -> dict[str, str] | None:
    """Return the engine, and its type unless that is float32, of each compiled sub-model; None if there is none.

    One whose own network computes, since something failed in the run, is as if it had not been compiled.
    """
    return {name: engine.label for name, engine in engines.items() if engine.engine != NETWORK} or None


def model_to_evaluate(
    context: RunContext, model: nn.Layer, samples: int, request: HeadRequest | None = None
) -> nn.Layer | CompiledNetwork:
    """Return the model of an evaluation, its networks compiled if that pays (``Global.eval_engine``).

    Args:
        context: of an evaluation.
        model: with its weights.
        samples: that will be evaluated.
        request: that a single network is compiled for; None: what the host reads, its CTC branch.
    """
    if not _is_wanted(context, model, "eval_engine", samples):
        return model
    model.eval()
    engine = context.config.settings.eval_engine
    if not isinstance(model, DistillationModel):
        return _compile(
            model, request or model.eval_request, context.config, "Eval", "the model", engine=engine
        )
    return model.using(
        callers={
            name: _compile(model.models[name], request, context.config, "Eval", name, engine=engine)
            for name, request in model.eval_requests.items()
        }
    )


def _is_ours(network: nn.Layer) -> bool:
    return isinstance(network, BaseModel | DistillationModel)


def _is_wanted(context: RunContext, network: nn.Layer, key: str, samples: int) -> bool:
    """Return True if the engine ``Global.KEY`` is to compute so many samples.

    The log of the first process says why a named engine does not.
    """
    config = context.config
    device = context.device
    engine = getattr(config.settings, key)
    if engine == NETWORK or (engine == AUTO and samples < LEAST_SAMPLES):
        return False
    reasons = [
        f"Global.{each} needs the layers of the network"
        for each in _WATCHED
        if getattr(config.settings, each)
    ]
    if device != "cpu":
        reasons.append(f"the run is on {device}, and engines compute on a CPU")
    if not _is_ours(network):
        reasons.append(f"the network is a {type(network).__name__} that this package does not compile")
    if reasons and engine != AUTO and context.is_first:
        LOG.warning("Global.%s: %s does not compute, the network itself does: %s.", key, engine, reasons[0])
    return not reasons


def _compile(
    network: nn.Layer,
    request: HeadRequest,
    config: Config,
    mode: str | None,
    name: str,
    **options: Any,
) -> CompiledNetwork:
    """Compile a network for the heights of images that the section ``mode`` gives; for others when they come.

    The other options are those of :class:`CompiledNetwork`.
    """
    engine = CompiledNetwork(network, request, name=name, **options)
    prepared = None if mode is None else read_preprocessing(config, mode)
    sizes = () if prepared is None else prepared.sizes
    for shape in {size[:2]: size for size in sizes}.values():
        engine.prepare(shape)
    return engine
