"""Run one step on two samples before a run, so that parts of its config that do not fit are found at once.

Transforms, collate, networks in each mode, losses, decoder and metric are separate stages; several may fail at once.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import paddle
from paddle import nn
from paddle.utils import unique_name

from ppocr_ext.charset import Charset
from ppocr_ext.check.files import no_log
from ppocr_ext.config import Config, load, with_class_counts
from ppocr_ext.config.node import dotted
from ppocr_ext.errors import ConfigError, PPOCRExtError
from ppocr_ext.host import Host
from ppocr_ext.issues import Issue
from ppocr_ext.metrics import build_metric
from ppocr_ext.modeling import EVAL
from ppocr_ext.modeling.necks import narrow_necks
from ppocr_ext.optim.optimizers import match_patterns
from ppocr_ext.run.dry_samples import SILENT, ConfigPath, DryBatch, DrySection
from ppocr_ext.run.dry_stages import DryIssues, DryLosses, DryNetwork, DryReader, StageFailed
from ppocr_ext.run.frame_counts import left_as_it_was
from ppocr_ext.run.freezing import with_features
from ppocr_ext.run.host_config import complete, decoder_models, host_config

_SECTIONS = ("Architecture", "Loss", "Train", "Eval", "PostProcess", "Metric")
_NEVER = 10**9


def dry_step(
    config: Config,
    charset: Charset,
    host: Host,
    model: nn.Layer,
    modes: Sequence[str],
    seed: int,
    say: Callable[[str], None],
) -> list[Issue]:
    """Return the issues that one step on two samples of each of ``modes`` shows.

    Weights, buffers, modes and generators are as before afterwards, and nothing is written into the run folder. The
    heads that return features and the sub-models that are evaluated are set as the run sets them. Losses, decoder and
    metric are built anew, so that those of the run keep their state. No collective is called.

    Args:
        config: resolved, with class counts.
        charset: its dictionary.
        host: opened.
        model: the networks, not wrapped, with any weights.
        modes: ``"Train"``, ``"Eval"`` or both.
        seed: of the datasets.
        say: takes a sentence if samples are drawn, since none can be read.
    """
    step = _DryStep(config, charset, model, host)
    with ExitStack() as stack:
        stack.enter_context(left_as_it_was(model))
        stack.enter_context(_silent(host))
        stack.enter_context(
            unique_name.guard()
        )  # else the names of a run's parameters count those of this step
        stack.enter_context(paddle.no_grad())
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="ppocr_ext_")))
        batches = {
            mode: DrySection(config, mode, charset, host, folder, step.report).batch(seed) for mode in modes
        }
        if "Train" in modes:
            step.match_parts()
            step.issues += [
                Issue("narrow_neck", "warning", "Architecture", "", text)
                for text in narrow_necks(model, charset.ctc_classes)
            ]
        step.issues += [
            Issue(
                "uniform_images",
                "warning",
                f"{mode}.dataset.transforms",
                "",
                "the network sees no contrast in the first images. Fix: normalise once (RecResizeImg does it).",
            )
            for mode, batch in batches.items()
            if batch is not None and batch.is_uniform
        ]
        step.run(batches.get("Train"), batches.get("Eval"))
    drawn = [mode for mode, batch in batches.items() if batch is not None and batch.drawn]
    if drawn:
        say(f"{' and '.join(drawn)}: no sample can be read, so the dry step drew two.")
    return list(dict.fromkeys(step.issues))


def same_as_before(config: Config, charset: Charset, checkpoint: Path) -> bool:
    """Return whether the run of ``checkpoint`` had the same data, networks, losses, decoder and metric."""
    try:
        before = load([checkpoint.parent / "config.yml"])
        before = with_class_counts(complete(before, charset), charset)
    except (PPOCRExtError, OSError):
        return False
    return all(before.at(name, None) == config.at(name, None) for name in _SECTIONS)


@contextmanager
def _silent(host: Host) -> Iterator[None]:
    """Log and print nothing: the run itself says all of it, and some of the host's transforms print."""
    before = host.logger.disabled
    host.logger.disabled = True
    try:
        with no_log(), warnings.catch_warnings(), redirect_stdout(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        host.logger.disabled = before


class _Batches(list[Any]):
    """A loader as the host reads it, of batches that are there already."""

    need_reset = False
    dataset = property(lambda self: self)


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Do nothing, in place of ``backward``, a step of the optimizer and what the host writes."""


def _patterns(config: Config) -> Iterator[tuple[ConfigPath, Sequence[str]]]:
    """Yield the path of each pattern of ``Global.freeze`` and ``Optimizer.lr_mult``, with the pattern."""
    for index, pattern in enumerate(config.settings.freeze or ()):
        yield ("Global", "freeze", str(index)), [pattern]
    for pattern in config.at("Optimizer.lr_mult", None) or ():
        yield ("Optimizer", "lr_mult", str(pattern)), [str(pattern)]


class _DryStep(DryIssues):
    """The loops of the host over one batch, and the issues so far."""

    def match_parts(self) -> None:
        """Add an issue for each pattern of parameters that matches none."""
        for path, patterns in _patterns(self.config):
            try:
                match_patterns(self.model, patterns, dotted(path))
            except ConfigError as error:
                self.report(error.code, path, str(error))

    def run(self, train: DryBatch | None, evaluate: DryBatch | None) -> None:
        """Run ``program.train`` and ``program.eval`` over the batches that could be made."""
        options = [self.config.at(section).thaw() for section in ("PostProcess", "Global", "Metric")]
        stage = "PostProcess"
        try:
            decoder = self.host.build_post_process(options[0], options[1], self.charset)
            stage = "Metric"
            metric = build_metric(options[2], self.charset.has_space)
        except Exception as error:
            self.report_error("build", (stage,), error)
            return
        if train is not None:
            self._call_host(self._train, train, decoder, metric)
        if evaluate is not None:
            self._call_host(self._evaluate, evaluate, decoder, metric)

    def _call_host(self, loop: Callable[..., Any], batch: DryBatch, decoder: Any, metric: Any) -> None:
        # the host leaves out the last batch on Windows
        batches = _Batches([batch.entries] * (2 if os.name == "nt" else 1))
        with suppress(StageFailed):
            readers = DryReader(self, "PostProcess", decoder, batch), DryReader(self, "Metric", metric, batch)
            loop(batch, batches, *readers)

    def _train(self, batch: DryBatch, batches: _Batches, decoder: Any, metric: Any) -> None:
        """Call ``program.train`` with a loss whose ``backward`` does nothing."""
        plain = host_config(self.config, eval_steps=(_NEVER, _NEVER))
        plain["Global"] |= {"epoch_num": 1, "calc_epoch_interval": 1, "uniform_output_enabled": False}
        plain["Global"] |= {"print_batch_step": _NEVER, "save_epoch_step": _NEVER, "save_model_dir": "."}
        plain["profiler_options"] = None
        losses = DryLosses(self, batch)
        network = DryNetwork(self, with_features(self.model, losses.outputs))
        loss = SimpleNamespace(shape=[1], numpy=lambda: np.zeros(1), backward=_nothing)

        def call_losses(predictions: Any, entries: Any) -> dict[str, Any]:
            losses.call(predictions, entries)
            return {"loss": loss}

        optimizer = SimpleNamespace(get_lr=lambda: 0.0, step=_nothing, clear_grad=_nothing)
        parts: tuple[Any, ...] = (network, call_losses, optimizer, 0.0, decoder, metric, {}, SILENT, 1)
        replacements = {"save_model": _nothing, "export": _nothing}
        self.host.train(plain, batches, _Batches(), "cpu", *parts, replacements=replacements)

    def _evaluate(self, batch: DryBatch, batches: _Batches, decoder: Any, metric: Any) -> None:
        """Call ``program.eval`` with the sub-models that the decoder reads."""
        names = decoder_models(self.config)
        model = self.model
        if names is not None and self.models is not None:
            for name in set(names) - set(self.models):
                self.report_unknown_model(("PostProcess", "model_name"), name)
                raise StageFailed
            model = model.using(evaluate=dict.fromkeys(names, EVAL))
        model_type = self.config.at("Architecture.model_type", None)
        network = DryNetwork(self, model)
        self.host.evaluate(network, batches, decoder, metric, model_type, extra_input=self.takes_labels)
