"""Everything a run needs, built in one place and in one order."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import paddle.distributed as dist

from ppocr_ext.charset import Charset
from ppocr_ext.check import check_config
from ppocr_ext.checkpoint.checkpoints import Checkpoint, Progress
from ppocr_ext.config import Config, resolve_charset, with_class_counts
from ppocr_ext.config.global_keys import global_value
from ppocr_ext.config.node import COMPUTED, dotted
from ppocr_ext.data.load_failures import LoadFailures
from ppocr_ext.data.preflight_report import PreflightReport
from ppocr_ext.errors import ConfigError, ModelError, WeightsError
from ppocr_ext.host import Host, open_host
from ppocr_ext.issues import Issue, report_issues
from ppocr_ext.metrics import build_metric
from ppocr_ext.modeling import DistillationModel, build_model
from ppocr_ext.registry import Said, said_once
from ppocr_ext.run.amp import Amp
from ppocr_ext.run.device import choose_device
from ppocr_ext.run.dry_step import dry_step, same_as_before
from ppocr_ext.run.model_setup import decoder_models, load_model_weights, require_weight_files
from ppocr_ext.run.prepare import complete, folder_of, import_plugins, read_old_charset, seed_of
from ppocr_ext.run.resume import refuse_other_dictionary
from ppocr_ext.run.run_data import open_data
from ppocr_ext.run.team import team
from ppocr_ext.run.train_setup import prepare_training

_LOG = logging.getLogger("ppocr_ext")


@dataclass
class Run:
    """What :class:`ppocr_ext.loop.adapter.HostLoop` and the tools work with.

    Attributes:
        config: resolved, with class counts filled in; immutable.
        host_config: the same as plain dicts, for the host, which pops from what it gets.
        folder: the run folder (``Global.save_model_dir``).
        start: where the run stands: the beginning, or a checkpoint's progress.
        frozen: names of the sub-models that are not trained; ``frozen_digests``: of their states.
        kept: float32 copies of what mixed precision casts and a checkpoint holds, without being trained.
        preflight: what was found in the label files, by ``"Train"`` / ``"Eval"``.
        watches: they count lines that fail when they are loaded, by ``"Train"`` / ``"Eval"``.
        said: unknown keys of which the checks have said all.
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
    kept: dict[str, Any] = field(default_factory=dict)
    preflight: dict[str, PreflightReport] = field(default_factory=dict)
    watches: dict[str, LoadFailures] = field(default_factory=dict)
    said: Said = field(default_factory=set)
    label_files: tuple[Path, ...] = ()
    rebuild_train_loader: Callable[[int], Any] | None = None

    @property
    def left_out(self) -> frozenset[str]:
        """Sub-models that a checkpoint does not hold."""
        return frozenset() if self.config.at("Global.save_teacher", default=False) else self.frozen

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
        weights_of: str = "Student",
        data_of: str = "Eval",
        reads_ctc: bool = True,
    ) -> Run:
        """Build what ``role`` (``"train"`` or ``"eval"``) needs from a config.

        Args:
            config: as loaded, with overlays and overrides.
            host_path: a PaddleOCR checkout, or None to look for a host.
            old_dictionary: dictionary of the weights, where it differs from the config's.
            weights_of: for ``"eval"`` of a single model, the sub-model whose weights it takes from a file that has
                several.
            data_of: the section that the data of ``Eval`` come from, for messages.
            reads_ctc: labels of ``Eval`` are compared with what CTC reads, so that they have to fit its frames.

        Raises:
            PPOCRExtError: something cannot be built; the message says what to change.
        """
        with said_once() as said:
            run = _Builder(config, role, host_path, old_dictionary, weights_of, data_of, reads_ctc).build()
        run.said = said
        return run


class _Builder:
    """The steps of :meth:`Run.build`, in order."""

    def __init__(
        self,
        config: Config,
        role: str,
        host_path: str | None,
        old_dictionary: str | None,
        weights_of: str = "Student",
        data_of: str = "Eval",
        reads_ctc: bool = True,
    ) -> None:
        if role not in ("train", "eval"):
            raise ValueError(f"no such role: {role!r}")
        self.role = role
        self.weights_of = weights_of
        self.data_of = data_of
        self.reads_ctc = reads_ctc
        self.host = open_host(host_path)
        import_plugins(config)
        issues = [_of_section(issue, data_of) for issue in check_config(config, self.host, role)]
        strict = bool(config.at("Global.strict", default=False))
        if dist.get_rank() != 0 and not strict:  # process 0 warns for all
            issues = [issue for issue in issues if issue.level == "error"]
        report_issues(issues, strict=strict)
        self.charset = resolve_charset(config, self.host.find_file)
        self.old_charset = read_old_charset(old_dictionary, config)
        self.config = with_class_counts(complete(config, self.charset), self.charset)
        self.folder = folder_of(self.config)
        self.seed = seed_of(self.config)
        self.host_config = self.config.thaw()
        self.host_config.pop("computed", None)  # of our files, no section of PaddleOCR's
        self.host_config["Global"]["distributed"] = dist.get_world_size() > 1
        self.host_config.setdefault("profiler_options", None)

    def build(self) -> Run:
        checkpoint = self._checkpoint()
        require_weight_files(self.config, sub_models=self.role == "train")
        device = choose_device(self.config)
        processes = team()
        self.host.set_seed(self.seed)
        model = build_network(self.config)
        self._run_dry_step(model, device, processes.rank, checkpoint)
        if isinstance(model, DistillationModel):
            model.eval_models = decoder_models(self.config) or ()
        config, host_config = self.config, self.host_config
        loaded = open_data(
            self.host,
            config,
            host_config,
            self.role,
            self.charset,
            device,
            model,
            self.folder,
            self.seed,
            processes,
            self.data_of,
            self.reads_ctc,
        )
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
            metric=build_metric(self.config.at("Metric").thaw(), self.charset.has_space),
            train_loader=loaded["Train"].loader if "Train" in loaded else None,
            eval_loader=loaded["Eval"].loader if "Eval" in loaded else None,
            frozen=model.frozen if isinstance(model, DistillationModel) else frozenset(),
            preflight={mode: x.preflight for mode, x in loaded.items() if x.preflight is not None},
            watches={mode: x.watch for mode, x in loaded.items() if x.watch is not None},
            label_files=tuple(path for x in loaded.values() for path in x.label_files),
        )
        if self.role == "train":
            prepare_training(run, checkpoint, self.old_charset, loaded["Train"].rebuild, processes)
        else:
            self._load_for_eval(run, checkpoint)
        return run

    def _run_dry_step(self, model: Any, device: str, rank: int, checkpoint: Path | None) -> None:
        """Find parts that do not fit, in every process on its share; only process 0 evaluates."""
        if not global_value(self.config, "dry_step"):
            return
        if self.role == "train" and checkpoint and same_as_before(self.config, self.charset, checkpoint):
            return
        wanted = ["Train"] * (self.role == "train") + ["Eval"] * (rank == 0 or self.role == "eval")
        modes = [mode for mode in wanted if self.config.at(mode, default=None) is not None]
        issues = dry_step(self.config, self.charset, self.host, model, modes, device, self.seed, _LOG.info)
        report_issues(_of_section(issue, self.data_of) for issue in issues)

    def _checkpoint(self) -> Path | None:
        path = self.config.at("Global.checkpoints", default=None)
        if not path:
            return None
        if self.config.at("Global.pretrained_model", default=None):
            _LOG.info("Global.checkpoints is given: what it holds goes before Global.pretrained_model")
        checkpoint = Checkpoint(path)
        refuse_other_dictionary(checkpoint, self.role, self.charset, self.old_charset)
        return checkpoint.prefix

    def _load_for_eval(self, run: Run, checkpoint: Path | None) -> None:
        names = getattr(run.model, "eval_models", None)
        found = load_model_weights(
            run.model,
            self.config,
            self.charset,
            checkpoint=checkpoint,
            needed=names,
            old_charset=self.old_charset,
            first_model=self.weights_of,
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


def _of_section(issue: Issue, data_of: str) -> Issue:
    """Return ``issue`` with the section that the data of ``Eval`` come from; transforms stay those of ``Eval``."""
    begin = "Eval.dataset."
    if not issue.path.startswith(begin) or issue.path.startswith(f"{begin}transforms"):
        return issue
    return replace(issue, path=f"{data_of}.dataset.{issue.path.removeprefix(begin)}")


def build_network(config: Config) -> Any:
    """Build the networks; an error of one of them starts with the place of what it is about.

    Raises:
        ModelError: the parts do not fit together.
    """
    try:
        return build_model(config.at("Architecture").thaw())
    except ModelError as error:
        path = _spoken_of(config, error)
        place = config.place(path)
        said = "" if place == COMPUTED else f"{place.text}: "  # no place that a reader can go to
        error.args = (f"{said}{dotted(path)}: {error}",)
        raise


def _spoken_of(config: Config, error: ModelError) -> tuple[str, ...]:
    """The part that the error names, or the option in it that it names and `-o` has set; else the model."""
    model = ("Architecture",) if error.sub_model is None else ("Architecture", "Models", error.sub_model)
    words = set(re.findall(r"\w+", str(error)))
    for part in ("Transform", "Backbone", "Neck", "Head"):
        path = (*model, part)
        options = config.at(path, default=None)
        if isinstance(options, Config) and options.get("name") in words:
            set_here = [key for key in options if key in words and config.place((*path, key)).is_option]
            return (*path, str(set_here[0])) if set_here else path
    return model
