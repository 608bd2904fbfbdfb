"""Everything a run needs, built in one place and in one order."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from paddle import nn

from ppocr_ext.charset import Charset
from ppocr_ext.config import Config
from ppocr_ext.config.node import COMPUTED, dotted
from ppocr_ext.errors import ModelError, WeightsError
from ppocr_ext.inference.compiled import CompiledNetwork
from ppocr_ext.issues import report_issues
from ppocr_ext.messages import LOG
from ppocr_ext.metrics import build_metric
from ppocr_ext.modeling import EVAL, DistillationModel, build_model
from ppocr_ext.run.agreement import require_agreement
from ppocr_ext.run.compiled_models import compile_frozen
from ppocr_ext.run.context import Role, RunContext, RunOptions, open_context, rename_section
from ppocr_ext.run.dry_step import dry_step, same_as_before
from ppocr_ext.run.freezing import frozen_models, unsaved_models
from ppocr_ext.run.host_config import decoder_models, evaluation_steps, host_config
from ppocr_ext.run.inference_models import open_inference_models
from ppocr_ext.run.loader_setup import RunData, open_data
from ppocr_ext.run.model_setup import load_model_weights
from ppocr_ext.run.model_wrappers import recompute_activations
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
    """Build the networks, and take them through the dry step; only sub-models that are decoded are evaluated.

    Raises:
        PPOCRExtError: they cannot be built, or parts of the config do not fit.
    """
    read = decoder_models(context.config) or ()
    model = build_network(context.components, context.charset, None if context.trains else read)
    if context.trains:
        recompute_activations(model, context.config)
    if not isinstance(model, DistillationModel):
        _run_dry_step(context, model)
        return model
    # Before the dry step too, since an evaluation opens no inference model that it does not read.
    known = [name for name in read if name in model.models]
    _run_dry_step(context, model.using(evaluate=dict.fromkeys(known, EVAL)))
    return model.using(evaluate=dict.fromkeys(read, EVAL))  # an error for other names


def _run_dry_step(context: RunContext, model: nn.Layer) -> None:
    """Report parts of the config that do not fit, in every process; a resumed run with the same parts skips this.

    Raises:
        InvalidConfigError: parts do not fit.
    """
    config = context.config
    checkpoint = context.checkpoint
    resumes = context.trains and checkpoint and same_as_before(config, context.charset, checkpoint.prefix)
    if resumes or not config.settings.dry_step:
        return
    issues = dry_step(
        context.components,
        context.charset,
        context.host,
        model,
        context.modes,
        context.seed,
        LOG.info,
    )
    report_issues(rename_section(issue, context.options.eval_section) for issue in issues)


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


def build_network(config: Config, charset: Charset, opened: Collection[str] | None = None) -> nn.Layer:
    """Build the networks, and open the inference models among them.

    Args:
        config: resolved.
        charset: the dictionary.
        opened: the only inference models that are opened; None for all.

    Raises:
        ModelError: the parts do not fit together; the message begins with the place of the part.
        PPOCRExtError: an inference model cannot be opened.
    """
    try:
        model = build_model(config.at("Architecture").thaw())
        open_inference_models(model, config, charset, opened)
        return model
    except ModelError as error:
        path = _path_of(config, error)
        place = config.place(path)
        where = "" if place == COMPUTED else f"{place.text}: "
        error.args = (f"{where}{dotted(path)}: {error}",)
        raise


def _path_of(config: Config, error: ModelError) -> tuple[str, ...]:
    """Return the config path of the part that ``error`` names, or of its option that ``-o`` has set.

    If it names none, return the path of the model.
    """
    model = ("Architecture",) if error.sub_model is None else ("Architecture", "Models", error.sub_model)
    words = set(re.findall(r"\w+", str(error)))
    for part in ("Transform", "Backbone", "Neck", "Head"):
        path = (*model, part)
        options = config.at(path, default=None)
        if isinstance(options, Config) and options.get("name") in words:
            given = [key for key in options if key in words and config.place((*path, key)).is_option]
            return (*path, str(given[0])) if given else path
    return model
