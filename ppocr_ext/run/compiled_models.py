"""Compile or fuse the frozen networks of a training, and the networks of ``eval`` and ``export-center``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from paddle import nn

from ppocr_ext.config import Config
from ppocr_ext.config.global_keys import AUTO, BFLOAT16, FLOAT32, NETWORK, PADDLE
from ppocr_ext.data.preprocessing import read_preprocessing
from ppocr_ext.inference.compiled import CompiledNetwork
from ppocr_ext.inference.runners import other_engines
from ppocr_ext.messages import LOG
from ppocr_ext.modeling import BaseModel, DistillationModel
from ppocr_ext.modeling.backbones.conv_parts import fused_network
from ppocr_ext.modeling.head_request import HeadRequest
from ppocr_ext.modeling.heads import InferenceModel
from ppocr_ext.run.context import RunContext

# Multiply-adds of all samples: for fewer, compiling takes longer than it saves. For networks of 10 million to 7
# billion for a sample, both take as long at 20 to 250 billion.
LEAST_WORK = 100e9
# Settings that need the layers of the networks, which a compiled one does not run.
_WATCHED = ("to_static", "detect_anomaly")


def compile_frozen(
    context: RunContext, model: nn.Layer, samples: int, *, prepare: bool = True
) -> dict[str, nn.Layer | CompiledNetwork]:
    """Compile the frozen sub-models that a loss reads (``Global.teacher_engine``), or fuse their convolutions.

    Compiled networks compute in ``Global.teacher_dtype`` if the processor supports it. With ``auto``, a resumed run
    takes the engines and types that its checkpoint records. If it has to take others, it warns, since they give other
    numbers.

    Args:
        context: the context of the run.
        model: with its weights.
        samples: number of samples that this process reads in the whole run. For little work, nothing is compiled.
        prepare: make the graphs now; False makes them with the first images.

    Returns:
        The compiled and the fused networks by the name of the sub-model, to be called in its place.
    """
    config = context.config
    checkpoint = context.checkpoint
    callers = {}
    dtype = config.settings.teacher_dtype
    state = None if checkpoint is None else checkpoint.train_state()
    before = dict((state and state.engines) or {})
    frozen = (
        sorted(model.frozen & model.train_requests.keys()) if isinstance(model, DistillationModel) else []
    )
    if (frozen or not isinstance(model, BaseModel | DistillationModel)) and _is_wanted(
        context, model, "teacher_engine"
    ):
        for name in frozen:
            engine, kind = _engine_to_take(config.settings.teacher_engine, before.get(name, AUTO), dtype)
            callers[name] = faster_network(
                model.models[name],
                model.train_requests[name],
                config,
                "Train",
                name,
                samples,
                prepare=prepare,
                dtype=kind,
                engine=engine,
            )
    compiled = [each for each in callers.values() if isinstance(each, CompiledNetwork)]
    for each in compiled:
        each.asked = dtype
        LOG.info("%s is frozen and compiled: %s (Global.teacher_engine)", each.name, each.label)
    if dtype != FLOAT32 and not compiled:
        LOG.warning(
            "Global.teacher_dtype: no frozen network is compiled, float32 computes them (not %s).", dtype
        )
    if checkpoint is not None:
        _warn_of_other_engines(checkpoint.prefix, before, engine_names(callers) or {})
    return callers


def _warn_of_other_engines(prefix: Path, before: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Warn if the frozen networks of a resumed run are computed otherwise than before, which gives other numbers."""
    # Older checkpoints record "auto" without the engine, so any engine fits them.
    known = {
        name: now.get(name, label) if label.startswith(AUTO) else label for name, label in before.items()
    }
    if known != now:
        LOG.warning(
            "%s: engines of the frozen networks were %s and are %s now. The resumed run is not bit for bit equal "
            "to an uninterrupted one. To compute as before: Global.teacher_engine and Global.teacher_dtype.",
            prefix,
            known or NETWORK,
            now or NETWORK,
        )


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


def engine_names(callers: Mapping[str, nn.Layer | CompiledNetwork]) -> dict[str, str] | None:
    """Return engine and type of each compiled sub-model, without the type float32; None if no sub-model is compiled.

    A sub-model that has fallen back to its own network counts as not compiled.
    """
    compiled = {name: each for name, each in callers.items() if isinstance(each, CompiledNetwork)}
    return {name: each.label for name, each in compiled.items() if each.engine != NETWORK} or None


def model_to_evaluate(
    context: RunContext, model: nn.Layer, samples: int, request: HeadRequest | None = None
) -> nn.Layer | CompiledNetwork:
    """Return the model for an evaluation, compiled if that saves time (``Global.eval_engine``), or else fused.

    Args:
        context: the context of an evaluation.
        model: with its weights.
        samples: number of samples to evaluate.
        request: the request of a single network; None for its CTC branch, which the host reads.
    """
    if not _is_wanted(context, model, "eval_engine"):
        return model
    model.eval()
    engine = context.config.settings.eval_engine
    faster = partial(faster_network, config=context.config, mode="Eval", samples=samples, engine=engine)
    if not isinstance(model, DistillationModel):
        return faster(model, request or model.eval_request, name="the model")
    requests = model.eval_requests.items()
    return model.using(callers={name: faster(model.models[name], own, name=name) for name, own in requests})


def _is_wanted(context: RunContext, network: nn.Layer, key: str) -> bool:
    """Return True if another form of the network than itself may compute (``Global.KEY``).

    If a named engine cannot, the log of process 0 says why.
    """
    settings = context.config.settings
    engine = getattr(settings, key)
    if engine == NETWORK:
        return False
    reasons = [
        f"Global.{each} needs the layers of the network" for each in _WATCHED if getattr(settings, each)
    ]
    if context.device != "cpu":
        reasons.append(f"the run is on {context.device}, and engines compute on a CPU")
    if not isinstance(network, BaseModel | DistillationModel):
        reasons.append(f"the network is a {type(network).__name__} that this package does not compile")
    if reasons and engine != AUTO and context.is_first:
        LOG.warning("Global.%s: %s is not used, the network itself computes: %s.", key, engine, reasons[0])
    return not reasons


def faster_network(
    network: nn.Layer,
    request: HeadRequest,
    config: Config,
    mode: str,
    name: str,
    samples: int,
    *,
    engine: str,
    prepare: bool = True,
    **options: Any,
) -> nn.Layer | CompiledNetwork:
    """Return a compiled network, or a fused one if it cannot be compiled or ``auto`` has little work.

    An inference model is returned as it is.

    The work follows from config, network and data alone, so all processes and a resumed run decide alike.

    Args:
        network: on a CPU, in eval mode, with weights that do not change.
        request: the outputs that are computed.
        config: has the sizes of the images.
        mode: the section whose heights are compiled at once; other heights are compiled when they come.
        name: the name of the network in messages.
        samples: number of samples that will be computed.
        engine: as in ``Global.eval_engine``, but not ``network``.
        prepare: make the graphs now; False makes them with the first images.
        options: the other options of :class:`CompiledNetwork`.
    """
    if isinstance(getattr(network, "head", None), InferenceModel):
        return network
    compiled = CompiledNetwork(network, request, name=name, engine=engine, **options)
    preprocessing = read_preprocessing(config, mode)
    sizes = () if preprocessing is None else preprocessing.sizes
    if engine == AUTO and (
        not samples or (sizes and samples * compiled.multiply_adds(sizes[0]) < LEAST_WORK)
    ):
        return fused_network(network)
    for shape in {size[:2]: size for size in sizes if prepare}.values():
        compiled.prepare(shape)
    return fused_network(network) if compiled.engine == NETWORK else compiled
