"""Run one step on two samples before a run, so that parts of its config that do not fit are found at once.

The host's own loops run over these samples, stage by stage; docs/architecture.md lists the stages.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import paddle
from paddle import nn
from paddle.utils import unique_name

from ppocr_ext.charset import Charset
from ppocr_ext.check.files import no_log
from ppocr_ext.check.findings import Findings, KeyPath
from ppocr_ext.check.sub_models import ALLOW_UNTRAINED
from ppocr_ext.checkpoint.official_weights import OfficialWeights
from ppocr_ext.checkpoint.weight_sources import find_source
from ppocr_ext.config import Config, load, with_class_counts
from ppocr_ext.config.derive import model_paths
from ppocr_ext.config.node import dotted
from ppocr_ext.errors import PPOCRExtError
from ppocr_ext.host import Host
from ppocr_ext.issues import Issue
from ppocr_ext.metrics import build_metric
from ppocr_ext.modeling import EVAL
from ppocr_ext.modeling.necks import narrow_necks
from ppocr_ext.optim import build_lr_scheduler, build_optimizer
from ppocr_ext.optim.optimizers import match_patterns
from ppocr_ext.run.context import RunContext
from ppocr_ext.run.dry_parts import DryStep, Losses, Network, Reader, StageFailed, nothing
from ppocr_ext.run.dry_samples import SILENT, DryBatch, DrySection
from ppocr_ext.run.frame_counts import left_as_it_was
from ppocr_ext.run.freezing import with_features
from ppocr_ext.run.host_config import complete, decoder_models, host_config
from ppocr_ext.run.model_setup import load_model_weights
from ppocr_ext.run.model_wrappers import recompute_activations
from ppocr_ext.run.networks import try_network

_SECTIONS = ("Architecture", "Loss", "Train", "Eval", "PostProcess", "Metric")
_NEVER = 10**9
_STEPS = 1000  # of an epoch, for a schedule that is built before the data are counted


def try_config(
    context: RunContext, say: Callable[[str], None], *, always: bool = False
) -> tuple[nn.Layer | None, list[Issue]]:
    """Build every part of a config, and send a batch of two samples through them, stage by stage.

    The stages: the samples of each section; networks; decoder and metric; schedule, optimizer and weights; losses;
    ``program.train``; ``program.eval``. A part that fails is reported with its place, and skips only the stages that
    need what it makes. Weights, buffers, modes and generators are restored, and nothing is written into the run
    folder. Weights are compared if they are on this machine. Losses, decoder and metric are built anew, so those of
    the run keep their state. No collective is called.

    Args:
        context: of the run.
        say: called with a sentence if samples are drawn because none can be read.
        always: try the parts, whatever a resumed run had.

    Returns:
        The networks, not wrapped, and the issues. Without the dry step (``Global.dry_step``, or a resumed run with the
        parts of its checkpoint) these are the issues of the networks alone.
    """
    config = context.components
    findings = Findings(config)
    model = try_network(findings, context.charset, None if context.trains else decoder_models(config) or ())
    if model is not None and context.trains and context.config.settings.recompute:
        findings.attempt(("Global", "recompute"), "build", partial(recompute_activations, model))
    if config.settings.dry_step and (always or not _is_resumed(context)):
        with ExitStack() as stack:
            if model is not None:
                stack.enter_context(left_as_it_was(model))
            stack.enter_context(_silent(context.host))
            # Without it, the names that Paddle generates for the run's parameters would count those of this step.
            stack.enter_context(unique_name.guard())
            stack.enter_context(paddle.no_grad())
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="ppocr_ext_")))
            batches = {mode: DrySection(context, mode, folder, findings).batch() for mode in context.modes}
            _run_stages(DryStep(context, model, findings), batches)
        drawn = [mode for mode, batch in batches.items() if batch is not None and batch.drawn]
        if drawn:
            say(f"{' and '.join(drawn)}: no sample can be read, so the dry step drew two.")
    return model, list(dict.fromkeys(findings.issues))


def _is_resumed(context: RunContext) -> bool:
    """Return True for a training that is resumed with the parts of its checkpoint."""
    if not context.trains or context.checkpoint is None:
        return False
    return same_as_before(context.config, context.charset, context.checkpoint.prefix)


def same_as_before(config: Config, charset: Charset, checkpoint: Path) -> bool:
    """Return True if the run of ``checkpoint`` had the same data, networks, losses, decoder and metric."""
    try:
        before = load([checkpoint.parent / "config.yml"])
        before = with_class_counts(complete(before, charset), charset)
    except (PPOCRExtError, OSError):
        return False
    return all(before.at(name, None) == config.at(name, None) for name in _SECTIONS)


@contextmanager
def _silent(host: Host) -> Iterator[None]:
    """Log and print nothing, since the run logs the same again, and some of the host's transforms print."""
    before = host.logger.disabled
    host.logger.disabled = True
    try:
        with no_log(), warnings.catch_warnings(), redirect_stdout(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        host.logger.disabled = before


class _Batches(list[Any]):
    """A list of batches in place of a loader, for the host."""

    need_reset = False
    dataset = property(lambda self: self)


def _run_stages(step: DryStep, batches: Mapping[str, DryBatch | None]) -> None:
    """Try all parts on the batches by section; a batch is None if its samples have failed."""
    config = step.config
    for mode, batch in batches.items():
        if batch is not None and batch.is_uniform:
            text = "the network sees no contrast in the first images. Fix: normalise once (RecResizeImg does it)."
            step.findings.warning((mode, "dataset", "transforms"), "uniform_images", text)
    build = partial(step.context.decoder, config.at("PostProcess").thaw())
    decoder = step.findings.attempt(("PostProcess",), "build", build)
    build = partial(build_metric, config.at("Metric").thaw(), step.context.charset.has_space)
    metric = step.findings.attempt(("Metric",), "build", build)
    losses = Losses(step) if "Train" in batches else None
    if losses is not None:
        _try_optimizer(step)
    if step.model is None:
        return
    _compare_weights(step)
    for mode, batch in batches.items():
        if batch is not None:
            readers = [
                Reader(step, "PostProcess", decoder, batch),
                Reader(step, "Metric", metric, batch),
            ]
            entries = _Batches([batch.entries])
            with suppress(StageFailed):
                if losses is not None and mode == "Train":
                    _train(step, losses, batch, entries, readers)
                else:
                    _evaluate(step, entries, readers)


def _try_optimizer(step: DryStep) -> None:
    """Build the schedule; and for networks, the optimizer, and what names their parameters."""
    options = step.config.at("Optimizer").thaw()
    epochs = step.config.settings.epoch_num
    path: KeyPath = ("Optimizer", "lr")
    step.findings.attempt(path, "build", partial(build_lr_scheduler, options["lr"], epochs, _STEPS))
    if step.model is None:
        return
    # `lr_mult` would change the rates of the parameters.
    options |= {"lr": {"learning_rate": 0.001}, "lr_mult": None}
    step.findings.attempt(path[:1], "build", partial(build_optimizer, options, epochs, _STEPS, step.model))
    for text in narrow_necks(step.model, step.context.charset.ctc_classes):
        step.findings.warning(("Architecture",), "narrow_neck", text)
    frozen = enumerate(step.config.settings.freeze or ())
    patterns: dict[KeyPath, str] = {("Global", "freeze", str(index)): pattern for index, pattern in frozen}
    rates = step.config.at("Optimizer.lr_mult", None) or ()
    patterns |= {("Optimizer", "lr_mult", str(pattern)): str(pattern) for pattern in rates}
    for path, pattern in patterns.items():
        step.findings.attempt(path, "build", partial(match_patterns, step.model, [pattern], dotted(path)))


def _compare_weights(step: DryStep) -> None:
    """Compare the weights of the start that are on this machine with the networks."""
    config = step.context.config
    keys = [("Global", "pretrained_model"), *((*part, "pretrained") for part in model_paths(config))]
    absent = [key for key in keys if not _is_here(str(config.at(key, None) or ""))]
    if absent[:1] == keys[:1] and step.context.checkpoint is None:
        return  # which of the other weights are loaded depends on those of the whole model
    # a teacher without weights is reported by the config check
    values: dict[Any, Any] = {**dict.fromkeys(absent), f"Global.{ALLOW_UNTRAINED}": True}
    here = replace(step.context, config=config.with_values(values))
    needed = None if step.context.trains else decoder_models(config)
    load = partial(load_model_weights, step.model, here, needed=needed, assign=False)
    step.findings.attempt((), "weights", load)


def _train(
    step: DryStep, losses: Losses, batch: DryBatch, batches: _Batches, readers: Sequence[Reader]
) -> None:
    """Call ``program.train`` with a loss whose ``backward`` does nothing."""
    plain = host_config(step.config, eval_steps=(_NEVER, _NEVER))
    plain["Global"] |= {"epoch_num": 1, "calc_epoch_interval": 1, "uniform_output_enabled": False}
    plain["Global"] |= {"print_batch_step": _NEVER, "save_epoch_step": _NEVER, "save_model_dir": "."}
    plain["profiler_options"] = None
    network = Network(step, with_features(step.model, losses.outputs))
    optimizer = SimpleNamespace(get_lr=lambda: 0.0, step=nothing, clear_grad=nothing)
    parts: tuple[Any, ...] = (network, partial(losses, batch), optimizer, 0.0, *readers, {}, SILENT, 1)
    replacements = {"save_model": nothing, "export": nothing}
    step.context.host.train(plain, batches, _Batches(), "cpu", *parts, replacements=replacements)


def _evaluate(step: DryStep, batches: _Batches, readers: Sequence[Reader]) -> None:
    """Call ``program.eval`` with the sub-models that the decoder reads."""
    names = decoder_models(step.config)
    model: Any = step.model
    if names is not None and step.models is not None:
        for name in set(names) - set(step.models):
            step.report_unknown_model(("PostProcess", "model_name"), name)
            raise StageFailed
        model = model.using(evaluate=dict.fromkeys(names, EVAL))
    model_type = step.config.at("Architecture.model_type", None)
    host = step.context.host
    host.evaluate(Network(step, model), batches, *readers, model_type, extra_input=step.takes_labels)


def _is_here(weights: str) -> bool:
    """Return True for weights that need neither a download nor a conversion, and for none."""
    source = find_source(weights)
    return source is None or isinstance(source, OfficialWeights) and source.is_here
