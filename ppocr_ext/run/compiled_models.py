"""Compile the frozen networks of a training, and the networks of ``eval`` and ``export-center``."""

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
# Settings that need the layers of the networks, which a compiled one does not run.
_WATCHED = ("to_static", "detect_anomaly")


def compile_frozen(
    context: RunContext, model: nn.Layer, samples: int, *, prepare: bool = True
) -> dict[str, CompiledNetwork]:
    """Compile the frozen sub-models that a loss reads (``Global.teacher_engine``).

    Compiled networks compute in ``Global.teacher_dtype`` if the processor supports it. With ``auto``, a resumed run
    takes the engines and types that its checkpoint records. If it has to take others, it warns, since they give other
    numbers.

    Args:
        context: the context of the run.
        model: with its weights.
        samples: number of samples that this process reads in the whole run. For a few, nothing is compiled.
        prepare: make the graphs now; False makes them with the first images.

    Returns:
        The compiled networks by the name of the sub-model, to be called in its place.
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
    if (frozen or not isinstance(model, BaseModel | DistillationModel)) and _is_wanted(
        context, model, "teacher_engine", samples
    ):
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
        now = engine_names(compiled) or {}
        # Older checkpoints record "auto" without the engine, so any engine fits them.
        known = {
            name: now.get(name, label) if label.startswith(AUTO) else label for name, label in before.items()
        }
        if known != now:
            LOG.warning(
                "%s: engines of the frozen networks were %s and are %s now. The resumed run is not bit for bit equal "
                "to an uninterrupted one. To compute as before: Global.teacher_engine and Global.teacher_dtype.",
                checkpoint.prefix,
                known or NETWORK,
                now or NETWORK,
            )
    return compiled


def _engine_to_take(asked: str, recorded: str, dtype: str) -> tuple[str, str]:
    """Return engine and type.

    With ``auto`` these are those of the checkpoint, if the engine is installed. Its record has no type for float32.
    """
    if asked != AUTO:
        return asked, dtype
    kept, _, kind = recorded.partition(" ")
    kind = kind if dtype == BFLOAT16 and kind else dtype
    if kept in (PADDLE, *other_engines(kind)):
        return kept, kind
    return asked, dtype


def engine_names(engines: Mapping[str, CompiledNetwork]) -> dict[str, str] | None:
    """Return engine and type of each compiled sub-model, without the type float32; None if no sub-model is compiled.

    A sub-model that has fallen back to its own network counts as not compiled.
    """
    return {name: engine.label for name, engine in engines.items() if engine.engine != NETWORK} or None


def model_to_evaluate(
    context: RunContext, model: nn.Layer, samples: int, request: HeadRequest | None = None
) -> nn.Layer | CompiledNetwork:
    """Return the model for an evaluation, with compiled networks if that saves time (``Global.eval_engine``).

    Args:
        context: the context of an evaluation.
        model: with its weights.
        samples: number of samples to evaluate.
        request: the request of a single network; None for its CTC branch, which the host reads.
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


def _is_wanted(context: RunContext, network: nn.Layer, key: str, samples: int) -> bool:
    """Return True if the engine ``Global.KEY`` shall compute this number of samples.

    If a named engine cannot, the log of process 0 says why.
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
    if not isinstance(network, BaseModel | DistillationModel):
        reasons.append(f"the network is a {type(network).__name__} that this package does not compile")
    if reasons and engine != AUTO and context.is_first:
        LOG.warning("Global.%s: %s is not used, the network itself computes: %s.", key, engine, reasons[0])
    return not reasons


def _compile(
    network: nn.Layer,
    request: HeadRequest,
    config: Config,
    mode: str | None,
    name: str,
    **options: Any,
) -> CompiledNetwork:
    """Compile a network for the image heights of the section ``mode``; other heights are compiled when they come.

    The other options are those of :class:`CompiledNetwork`.
    """
    engine = CompiledNetwork(network, request, name=name, **options)
    preprocessing = None if mode is None else read_preprocessing(config, mode)
    sizes = () if preprocessing is None else preprocessing.sizes
    for shape in {size[:2]: size for size in sizes}.values():
        engine.prepare(shape)
    return engine
