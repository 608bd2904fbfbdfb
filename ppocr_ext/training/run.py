"""Everything a run needs, built in one place and in one order."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import paddle.distributed as dist

from ppocr_ext.charset import Charset
from ppocr_ext.config import Config, resolve_charset, with_class_counts
from ppocr_ext.data.preflight import Preflight
from ppocr_ext.errors import ConfigError, WeightsError
from ppocr_ext.host import Host, open_host
from ppocr_ext.losses import build_loss
from ppocr_ext.metrics import DistillationMetric, RecMetric, build_metric
from ppocr_ext.modeling import DistillationModel, build_model
from ppocr_ext.optim import build_optimizer
from ppocr_ext.training.amp import Amp, build_amp, decorate
from ppocr_ext.training.checkpoints import Progress, finish_journal, prefix_of, state_digest
from ppocr_ext.training.device import choose_device
from ppocr_ext.training.frames import ctc_frames
from ppocr_ext.training.loaders import Loaded, build_loader
from ppocr_ext.training.model_setup import decoder_models, load_model_weights, narrow, require_weight_files
from ppocr_ext.training.prepare import (
    clamp_eval_step,
    complete,
    data_parallel,
    folder_of,
    import_plugins,
    read_old_charset,
    scratch_folder,
    seed_of,
)
from ppocr_ext.training.resume import refuse_other_dictionary, resume

_LOG = logging.getLogger("ppocr_ext")
_INDICATORS = ("acc", "norm_edit_dis")


@dataclass
class Run:
    """What :class:`ppocr_ext.training.adapter.HostLoop` and the tools work with.

    Attributes:
        config: resolved, with class counts filled in; immutable.
        host_config: the same as plain dicts, for the host, which pops from what it gets.
        folder: the run folder (``Global.save_model_dir``).
        start: where the run stands: the beginning, or a checkpoint's progress.
        frozen: names of the sub-models that are not trained; ``frozen_digests``: of their states.
        preflight: what was found in the label files, by ``"Train"`` / ``"Eval"``.
    """

    config: Config
    host_config: dict[str, Any]
    host: Host
    folder: Path
    seed: int
    device: str
    charset: Charset
    decoder: Any
    model: Any
    metric: Any
    train_loader: Any = None
    eval_loader: Any = None
    loss: Any = None
    optimizer: Any = None
    schedule: Any = None
    amp: Amp = field(default_factory=Amp)
    start: Progress = field(default_factory=Progress)
    frozen: frozenset[str] = frozenset()
    frozen_digests: dict[str, str] = field(default_factory=dict)
    preflight: dict[str, Preflight] = field(default_factory=dict)
    label_files: tuple[Path, ...] = ()
    rebuild_train_loader: Callable[[int], Any] | None = None

    def sub_model(self, name: str) -> Any:
        """The sub-model called ``name``."""
        return getattr(self.network, name)

    @property
    def total_steps(self) -> int:
        """Optimizer steps of the whole run."""
        return int(self.config.at("Global.epoch_num")) * len(self.train_loader)

    @property
    def network(self) -> Any:
        """The model without a data-parallel wrapper."""
        return getattr(self.model, "_layers", self.model)

    @classmethod
    def build(
        cls,
        config: Config,
        role: str,
        *,
        host_path: str | None = None,
        old_dictionary: str | None = None,
    ) -> Run:
        """Build what ``role`` (``"train"`` or ``"eval"``) needs from a config.

        Args:
            config: as loaded, with overlays and overrides.
            host_path: a PaddleOCR checkout, or None to look for a host.
            old_dictionary: dictionary of the weights, where it differs from the config's.

        Raises:
            PPOCRExtError: something cannot be built; the message says what to change.
        """
        return _Builder(config, role, host_path, old_dictionary).build()


class _Builder:
    """The steps of :meth:`Run.build`, in order."""

    def __init__(self, config: Config, role: str, host_path: str | None, old_dictionary: str | None) -> None:
        if role not in ("train", "eval"):
            raise ValueError(f"no such role: {role!r}")
        self.role = role
        self.host = open_host(host_path)
        import_plugins(config)
        self.charset = resolve_charset(config, self.host.find_file)
        self.old_charset = read_old_charset(old_dictionary, config)
        self.config = with_class_counts(complete(config, self.charset), self.charset)
        self.folder = folder_of(self.config)
        self.seed = seed_of(self.config)
        self.host_config = self.config.thaw()
        self.host_config["Global"]["distributed"] = dist.get_world_size() > 1
        self.host_config.setdefault("profiler_options", None)
        if role == "eval" and self.host_config.get("Eval"):  # every line is judged, in the data's order
            self.host_config["Eval"]["loader"] |= {"shuffle": False, "drop_last": False}

    def build(self) -> Run:
        checkpoint = self._checkpoint()
        if self.role == "train":
            require_weight_files(self.config)
        device = choose_device(self.config)
        if self.host_config["Global"]["distributed"]:
            dist.init_parallel_env()
        self.host.set_seed(self.seed)
        model = build_model(self.config.at("Architecture").thaw())
        if isinstance(model, DistillationModel):
            model.eval_models = self._models_to_evaluate(model)
        loaded = self._loaders(device, model)
        post_process = self.config.at("PostProcess").thaw()
        decoder = self.host.build_post_process(post_process, self.config.at("Global").thaw())
        run = Run(
            config=self.config,
            host_config=self.host_config,
            host=self.host,
            folder=self.folder,
            seed=self.seed,
            device=device,
            charset=self.charset,
            decoder=decoder,
            model=model,
            metric=self._metric(),
            train_loader=loaded["Train"].loader if "Train" in loaded else None,
            eval_loader=loaded["Eval"].loader if "Eval" in loaded else None,
            frozen=model.frozen if isinstance(model, DistillationModel) else frozenset(),
            preflight={mode: x.preflight for mode, x in loaded.items() if x.preflight is not None},
            label_files=tuple(path for x in loaded.values() for path in x.label_files),
        )
        if self.role == "train":
            self._prepare_training(run, checkpoint)
        else:
            self._load_for_eval(run, checkpoint)
        return run

    def _models_to_evaluate(self, model: DistillationModel) -> tuple[str, ...]:
        names = decoder_models(self.config) or ()
        unknown = [name for name in names if name not in model.model_name_list]
        if unknown:
            raise ConfigError(
                f"PostProcess.model_name: there is no sub-model {', '.join(unknown)}; Architecture.Models has "
                f"{', '.join(model.model_name_list)}."
            )
        key = self.config.at("Metric.key", default=None)
        if names and key is not None and key not in names:
            raise ConfigError(
                f"Metric.key: {key} is not among the sub-models that PostProcess.model_name decodes "
                f"({', '.join(names)}), so there would be no {self.config.at('Metric.main_indicator', default='acc')}."
            )
        return names

    def _metric(self) -> Any:
        metric = build_metric(self.config.at("Metric").thaw())
        if isinstance(metric, RecMetric | DistillationMetric) and metric.main_indicator not in _INDICATORS:
            raise ConfigError(
                f"Metric.main_indicator: {metric.main_indicator!r} is not among {', '.join(_INDICATORS)}."
            )
        return metric

    def _loaders(self, device: str, model: Any) -> dict[str, Loaded]:
        modes = ["Train", "Eval"] if self.role == "train" else ["Eval"]
        scratch = self.folder if self.role == "train" else scratch_folder()
        loaded = {}
        for mode in modes:
            if self.config.at(mode, default=None) is None:
                if mode == "Train" or self.role == "eval":
                    raise ConfigError(f"The config has no section {mode}, which `{self.role}` needs.")
                _LOG.warning("The config has no section Eval: no evaluation, and no best checkpoint.")
                continue
            loaded[mode] = build_loader(
                self.host,
                self.config,
                self.host_config,
                mode,
                self.charset,
                device,
                self.seed,
                scratch,
                # in evaluation such a label is one that the model reads wrong
                ctc_frames(model, self.config, mode) if mode == "Train" else None,
            )
        return loaded

    def _prepare_training(self, run: Run, checkpoint: Path | None) -> None:
        config = self.config
        run.loss = build_loss(config.at("Loss").thaw())
        reads = run.loss.reads() if hasattr(run.loss, "reads") else None
        narrow(run.model, reads, config)
        load_model_weights(
            run.model,
            config,
            self.charset,
            checkpoint=checkpoint,
            needed=None if reads is None else self._models_read(run, reads),
            old_charset=self.old_charset,
        )
        run.frozen_digests = {name: state_digest(run.sub_model(name)) for name in sorted(run.frozen)}
        run.amp = build_amp(config)
        run.optimizer, run.schedule = build_optimizer(
            config.at("Optimizer").thaw(),
            epochs=int(config.at("Global.epoch_num")),
            step_each_epoch=len(run.train_loader),
            model=run.model,
        )
        run.model, run.optimizer = decorate(run.amp, run.model, run.optimizer)
        if checkpoint is not None:
            resume(run, checkpoint)
        if run.host_config["Global"]["distributed"]:
            run.model = data_parallel(run.model, config)
        if getattr(run.train_loader.dataset, "need_reset", False):
            run.rebuild_train_loader = lambda epoch: self.host.build_dataloader(
                run.host_config, "Train", run.device, self.host.logger, epoch
            )
        clamp_eval_step(run.host_config["Global"], run.total_steps)

    def _models_read(self, run: Run, reads: Any) -> tuple[str, ...]:
        trained = [n for n in getattr(run.model, "model_name_list", ()) if n not in run.frozen]
        return tuple(dict.fromkeys([*(name for name, _ in reads if name), *trained]))

    def _checkpoint(self) -> Path | None:
        path = self.config.at("Global.checkpoints", default=None)
        if not path:
            return None
        if self.config.at("Global.pretrained_model", default=None):
            _LOG.info("Global.checkpoints is given: what it holds goes before Global.pretrained_model")
        prefix = prefix_of(path)
        finish_journal(prefix)
        refuse_other_dictionary(prefix, self.role, self.charset, self.old_charset)
        return prefix

    def _load_for_eval(self, run: Run, checkpoint: Path | None) -> None:
        names = getattr(run.model, "eval_models", None)
        found = load_model_weights(
            run.model,
            self.config,
            self.charset,
            checkpoint=checkpoint,
            needed=names,
            old_charset=self.old_charset,
        )
        lacking = [name for name in names or (None,) if name not in found]
        if lacking:
            whose = ", ".join(str(name) for name in lacking if name) or "the model"
            raise WeightsError(
                f"There are no weights of {whose} to evaluate. Give a checkpoint, as in -o Global.checkpoints="
                f"output/my_run/best_accuracy (a checkpoint holds a frozen teacher only with Global.save_teacher; "
                f"its own file is Architecture.Models.NAME.pretrained)."
            )
        if run.eval_loader is None:
            raise ConfigError("The config has no section Eval.")
