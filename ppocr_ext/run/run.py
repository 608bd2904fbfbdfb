"""Everything a run needs, built in one place and in one order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paddle import nn

from ppocr_ext.config import Config
from ppocr_ext.errors import WeightsError
from ppocr_ext.inference.compiled import CompiledNetwork
from ppocr_ext.issues import report_issues
from ppocr_ext.messages import LOG
from ppocr_ext.metrics import build_metric
from ppocr_ext.modeling import EVAL, DistillationModel
from ppocr_ext.run.agreement import require_agreement
from ppocr_ext.run.compiled_models import compile_frozen
from ppocr_ext.run.context import Role, RunContext, RunOptions, open_context, rename_section
from ppocr_ext.run.dry_step import try_config
from ppocr_ext.run.host_config import decoder_models, evaluation_steps, host_config
from ppocr_ext.run.loader_setup import RunData, open_data
from ppocr_ext.run.model_setup import load_model_weights
from ppocr_ext.run.model_wrappers import without_wrapper
from ppocr_ext.run.train_setup import Training, set_up_training
from ppocr_ext.teacher_cache.lookup import CachedTeacher, cached_teacher
from ppocr_ext.teacher_cache.store import read_facts


@dataclass(frozen=True)
class Run:
    """Everything that :class:`ppocr_ext.loop.adapter.HostLoop` and the tools need; complete when it exists.

    Attributes:
        context: config, host, dictionary, device and processes.
        data: the loaders, and what they read.
        model: the networks with their weights, wrapped as the host calls them.
        decoder: the decoder of the network's outputs, built by the host.
        metric: decides which checkpoint is the best.
        host_config: the plain config that the host gets.
        training: what it trains with; None in an evaluation.
        engines: the compiled frozen sub-models of a training, by name.
        teacher_cache: answers in place of a teacher; None without a cache.
    """

    context: RunContext
    data: RunData
    model: nn.Layer
    decoder: Any
    metric: Any
    host_config: dict[str, Any]
    training: Training | None = None
    engines: Mapping[str, CompiledNetwork] = field(default_factory=dict)
    teacher_cache: CachedTeacher | None = None

    @property
    def network(self) -> nn.Layer:
        """The model without a data-parallel wrapper."""
        return without_wrapper(self.model)

    @classmethod
    def build(cls, config: Config, role: Role, **options: Any) -> Run:
        """Build everything that ``role`` (``"train"`` or ``"eval"``) needs from a config.

        Args:
            config: as loaded, with overlays and overrides.
            role: the purpose of the run.
            options: the other attributes of :class:`ppocr_ext.run.context.RunOptions`.

        Raises:
            PPOCRExtError: something cannot be built; the message says what to change.
        """
        context = open_context(config, RunOptions(role, **options))
        config = context.config
        model = _tried_network(context)
        cache = config.at("Train.teacher_cache", None) if context.trains else None
        views = None if cache is None else read_facts(Path(cache)).views
        # After the model, since preflight needs the number of frames of its CTC output.
        data = open_data(context, model, views)
        if context.trains:
            require_agreement(context, data.preflight)
        decoder = context.decoder(config.at("PostProcess").thaw())
        metric = build_metric(context.components.at("Metric").thaw(), context.charset.has_space)
        training = steps = answers = None
        engines: Mapping[str, Any] = {}
        if context.trains:
            model, training = set_up_training(context, model, data)
            steps = evaluation_steps(config, training.start.steps_per_epoch)
            samples = len(data.train_loader.dataset) * training.start.epochs // context.team.size
            engines = compile_frozen(context, without_wrapper(model), samples, prepare=cache is None)
            model = model.using(callers=engines) if engines else model
            # After compilation, since the cache calls the compiled teacher for missing samples.
            if cache is not None:
                answers = cached_teacher(
                    Path(cache), model, training.loss, config, context.charset.digest, training.frozen_digests
                )
                model = model.using(callers={answers.name: answers}) if answers else model
        else:
            _load_for_evaluation(context, model)
        plain = host_config(
            config, distributed=context.team.size > 1, label_files=data.usable_files, eval_steps=steps
        )
        return cls(context, data, model, decoder, metric, plain, training, engines, answers)


def _tried_network(context: RunContext) -> nn.Layer:
    """Build the networks, and try every part of the config; only sub-models that are decoded are evaluated.

    Raises:
        InvalidConfigError: parts cannot be built, or do not fit.
    """
    model, issues = try_config(context, LOG.info)
    report_issues(rename_section(issue, context.options.eval_section) for issue in issues)
    if not isinstance(model, DistillationModel):
        return model
    # an error for other names
    return model.using(evaluate=dict.fromkeys(decoder_models(context.config) or (), EVAL))


def _load_for_evaluation(context: RunContext, model: nn.Layer) -> None:
    """Load the weights of ``model``.

    Raises:
        WeightsError: a sub-model that is evaluated has none.
    """
    names = tuple(model.eval_requests) if isinstance(model, DistillationModel) else None
    loaded = load_model_weights(model, context, needed=names)
    lacking = [name or "the model" for name in names or (None,) if name not in loaded]
    if lacking:
        raise WeightsError(
            f"No weights are given for {', '.join(lacking)}. Fix: give a checkpoint, as in -o "
            f"Global.checkpoints=output/my_run/best_accuracy (a checkpoint stores a frozen teacher only with "
            f"Global.save_teacher; its own file is Architecture.Models.NAME.pretrained).",
            code="missing_weights",
        )
