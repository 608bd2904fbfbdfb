"""Everything a run needs, built in one place and in one order."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ppocr_ext.charset import Charset
from ppocr_ext.checkpoint.checkpoints import Position
from ppocr_ext.config import Config
from ppocr_ext.config.global_keys import global_value
from ppocr_ext.config.node import COMPUTED, dotted
from ppocr_ext.data.load_failures import LoadFailures
from ppocr_ext.data.preflight_report import PreflightReport
from ppocr_ext.errors import ModelError, WeightsError
from ppocr_ext.host import Host
from ppocr_ext.issues import report_issues
from ppocr_ext.metrics import build_metric
from ppocr_ext.modeling import DistillationModel, build_model
from ppocr_ext.run.amp import Amp
from ppocr_ext.run.context import Role, RunContext, RunOptions, open_context, rename_section
from ppocr_ext.run.dry_step import dry_step, same_as_before
from ppocr_ext.run.host_config import evaluation_steps, host_config
from ppocr_ext.run.loader_setup import open_data
from ppocr_ext.run.model_setup import decoder_models, load_model_weights
from ppocr_ext.run.train_setup import Training, frozen_models, set_up_training, unsaved_models

_LOG = logging.getLogger("ppocr_ext")


@dataclass(frozen=True)
class Run:
    """What :class:`ppocr_ext.loop.adapter.HostLoop` and the tools work with; complete when it exists.

    Attributes:
        config: resolved, with class counts filled in.
        host_config: the plain config that the host receives.
        folder: the run folder (``Global.save_model_dir``).
        model: with weights, as the host calls it; ``network`` is the same without a data-parallel wrapper.
        eval_loader: None in processes that do not evaluate; ``train_loader`` is None unless the run trains.
        rebuild_train_loader: builds the training loader of another seed, if its dataset asks for one in each epoch.
        start: where the run begins or resumes; ``best`` is the best evaluation before that.
        frozen_digests: digest of each frozen sub-model.
        float32_copies: what mixed precision casts and a checkpoint stores, without being trained.
        preflight: the check of the data, by ``"Train"`` / ``"Eval"``.
        load_failures: the samples that fail when they are loaded, by ``"Train"`` / ``"Eval"``.
        label_files: as the config names them.
    """

    config: Config
    host_config: dict[str, Any]
    host: Host
    folder: Path
    seed: int
    device: str
    charset: Charset
    decoder: Any
    metric: Any
    train_loader: Any
    eval_loader: Any
    rebuild_train_loader: Callable[[int], Any] | None
    preflight: Mapping[str, PreflightReport]
    load_failures: Mapping[str, LoadFailures]
    label_files: tuple[Path, ...]
    model: Any
    loss: Any
    optimizer: Any
    schedule: Any
    amp: Amp
    start: Position
    best: Mapping[str, float]
    frozen_digests: Mapping[str, str]
    float32_copies: Mapping[str, Any]

    @property
    def network(self) -> Any:
        """The model without a data-parallel wrapper."""
        return getattr(self.model, "_layers", self.model)

    @property
    def frozen(self) -> frozenset[str]:
        """Names of the sub-models that are not trained."""
        return frozen_models(self.network)

    @property
    def unsaved_models(self) -> frozenset[str]:
        """Names of the sub-models that a checkpoint does not store."""
        return unsaved_models(self.network, self.config)

    @property
    def total_steps(self) -> int:
        """Optimizer steps of the whole run."""
        return self.start.total_steps

    def sub_model(self, name: str) -> Any:
        """Return the sub-model called ``name``."""
        return getattr(self.network, name)

    @classmethod
    def build(cls, config: Config, role: Role, **options: Any) -> Run:
        """Build what ``role`` (``"train"`` or ``"eval"``) needs from a config.

        Args:
            config: as loaded, with overlays and overrides.
            role: what the run is for.
            options: the other attributes of :class:`ppocr_ext.run.context.RunOptions`.

        Raises:
            PPOCRExtError: something cannot be built; the message says what to change.
        """
        context = open_context(config, RunOptions(role, **options))
        model = build_network(context.components)
        _run_dry_step(context, model)
        if isinstance(model, DistillationModel):
            model.eval_models = decoder_models(context.config) or ()
        data = open_data(context, model)  # after the model, which says how many frames its CTC output has
        config = context.config
        decoder = context.host.build_post_process(config.at("PostProcess").thaw(), config.at("Global").thaw())
        metric = build_metric(context.components.at("Metric").thaw(), context.charset.has_space)
        if context.trains:
            training = set_up_training(context, model, data)
            steps = evaluation_steps(config, training.start.steps_per_epoch)
        else:
            _load_for_evaluation(context, model)
            training, steps = Training(model), None
        plain = host_config(
            config, distributed=context.team.size > 1, label_files=data.usable_files, eval_steps=steps
        )
        return cls(
            config=config,
            host_config=plain,
            host=context.host,
            folder=context.folder,
            seed=context.seed,
            device=context.device,
            charset=context.charset,
            decoder=decoder,
            metric=metric,
            train_loader=data.train_loader,
            eval_loader=data.eval_loader,
            rebuild_train_loader=data.rebuild_train_loader,
            preflight=data.preflight,
            load_failures=data.load_failures,
            label_files=data.label_files,
            **vars(training),
        )


def _run_dry_step(context: RunContext, model: Any) -> None:
    """Report parts that do not fit, in every process on its share; only process 0 evaluates in training.

    Raises:
        InvalidConfigError: parts do not fit.
    """
    config, checkpoint = context.config, context.checkpoint
    if not global_value(config, "dry_step"):
        return
    if context.trains and checkpoint and same_as_before(config, context.charset, checkpoint.prefix):
        return
    wanted = ["Train"] * context.trains + ["Eval"] * (context.is_first or not context.trains)
    modes = [mode for mode in wanted if config.at(mode, default=None) is not None]
    issues = dry_step(
        context.components,
        context.charset,
        context.host,
        model,
        modes,
        context.device,
        context.seed,
        _LOG.info,
    )
    report_issues(rename_section(issue, context.options.eval_section) for issue in issues)


def _load_for_evaluation(context: RunContext, model: Any) -> None:
    """Load the weights of ``model``.

    Raises:
        WeightsError: a sub-model that is evaluated has none.
    """
    names = getattr(model, "eval_models", None)
    found = load_model_weights(
        model,
        context.config,
        context.charset,
        checkpoint=None if context.checkpoint is None else context.checkpoint.prefix,
        needed=names,
        old_charset=context.old_charset,
        first_model=context.options.weights_of,
    )
    lacking = [name for name in names or (None,) if name not in found]
    if lacking:
        whose = ", ".join(str(name) for name in lacking if name) or "the model"
        raise WeightsError(
            f"There are no weights of {whose} to evaluate. Fix: give a checkpoint, as in -o Global.checkpoints="
            f"output/my_run/best_accuracy (a checkpoint stores a frozen teacher only with Global.save_teacher; "
            f"its own file is Architecture.Models.NAME.pretrained).",
            code="missing_weights",
        )


def build_network(config: Config) -> Any:
    """Build the networks.

    Raises:
        ModelError: the parts do not fit together; the message starts with the place of the part.
    """
    try:
        return build_model(config.at("Architecture").thaw())
    except ModelError as error:
        path = _path_of(config, error)
        place = config.place(path)
        where = "" if place == COMPUTED else f"{place.text}: "  # no place that a reader can go to
        error.args = (f"{where}{dotted(path)}: {error}",)
        raise


def _path_of(config: Config, error: ModelError) -> tuple[str, ...]:
    """Return the path of the part that ``error`` names, or of its option that ``-o`` has set; else of the model."""
    model = ("Architecture",) if error.sub_model is None else ("Architecture", "Models", error.sub_model)
    words = set(re.findall(r"\w+", str(error)))
    for part in ("Transform", "Backbone", "Neck", "Head"):
        path = (*model, part)
        options = config.at(path, default=None)
        if isinstance(options, Config) and options.get("name") in words:
            given = [key for key in options if key in words and config.place((*path, key)).is_option]
            return (*path, str(given[0])) if given else path
    return model
