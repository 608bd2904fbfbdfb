"""Everything a run needs, built in one place and in one order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
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
from ppocr_ext.run.freezing import frozen_models, unsaved_models
from ppocr_ext.run.host_config import decoder_models, evaluation_steps, host_config
from ppocr_ext.run.loader_setup import RunData, open_data
from ppocr_ext.run.model_setup import load_model_weights
from ppocr_ext.run.train_setup import Training, set_up_training
from ppocr_ext.teacher_cache.lookup import CachedTeacher, cached_teacher
from ppocr_ext.teacher_cache.store import read_facts


@dataclass(frozen=True, kw_only=True)
class Run(RunContext, RunData, Training):
    """Everything that :class:`ppocr_ext.loop.adapter.HostLoop` and the tools need; complete when it exists.

    It has the attributes of its context, its data, and (in training) of :class:`Training`.

    Attributes:
        host_config: the plain config that the host gets.
        decoder: the decoder of the network's outputs, built by the host.
        metric: decides which checkpoint is the best.
        engines: the compiled frozen sub-models of a training, by name.
        teacher_cache: answers in place of a teacher; None without a cache.
    """

    host_config: dict[str, Any]
    decoder: Any
    metric: Any
    engines: Mapping[str, CompiledNetwork] = field(default_factory=dict)
    teacher_cache: CachedTeacher | None = None

    @property
    def frozen(self) -> frozenset[str]:
        """Names of the sub-models that are not trained."""
        return frozen_models(self.network)

    @property
    def unsaved_models(self) -> frozenset[str]:
        """Names of the sub-models that a checkpoint does not store."""
        return unsaved_models(self.network, self.config)

    def sub_model(self, name: str) -> nn.Layer:
        """Return the sub-model called ``name``."""
        return getattr(self.network, name)

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
        model = _tried_network(context)
        cache = context.config.at("Train.teacher_cache", None) if context.trains else None
        answers = None
        views = None if cache is None else read_facts(Path(cache)).views
        # After the model, since preflight needs the number of frames of its CTC output.
        data = open_data(context, model, views)
        if context.trains:
            require_agreement(context, data.preflight)
        config = context.config
        decoder = context.host.build_post_process(
            config.at("PostProcess").thaw(), config.host_options(), context.charset
        )
        metric = build_metric(context.components.at("Metric").thaw(), context.charset.has_space)
        if context.trains:
            training = set_up_training(context, model, data)
            steps = evaluation_steps(config, training.start.steps_per_epoch)
            samples = len(data.train_loader.dataset) * training.start.epochs // context.team.size
            engines = compile_frozen(context, training.network, samples, prepare=cache is None)
            model = training.network.using(callers=engines) if engines else training.model
            # After compilation, since the cache calls the compiled teacher for missing samples.
            if cache is not None:
                answers = cached_teacher(
                    Path(cache), model, training.loss, config, context.charset.digest, training.frozen_digests
                )
                model = model.using(callers={answers.name: answers}) if answers else model
            training = replace(training, model=model)
        else:
            _load_for_evaluation(context, model)
            training = Training(model=model)
            steps = None
            engines = {}
        plain = host_config(
            config, distributed=context.team.size > 1, label_files=data.usable_files, eval_steps=steps
        )
        return cls(
            **vars(context),
            **vars(data),
            **vars(training),
            host_config=plain,
            decoder=decoder,
            metric=metric,
            engines=engines,
            teacher_cache=answers,
        )


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
