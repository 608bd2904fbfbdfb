"""The context of a run: the checked and resolved config, the host, the device and all else that its parts need."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import paddle
import paddle.distributed as dist

from ppocr_ext.charset import Charset
from ppocr_ext.check import check_all
from ppocr_ext.check.files import weights_to_load
from ppocr_ext.check.sub_models import UNTRAINED
from ppocr_ext.checkpoint.checkpoints import Checkpoint
from ppocr_ext.checkpoint.contents import require_usable_averages, weights_note
from ppocr_ext.checkpoint.weight_sources import find_source
from ppocr_ext.config import Config, read_old_charset, resolve_charset, with_class_counts
from ppocr_ext.config.node import dotted
from ppocr_ext.errors import ConfigError, WeightsError
from ppocr_ext.host import Host, open_host
from ppocr_ext.issues import Issue, report_issues
from ppocr_ext.messages import LOG
from ppocr_ext.run.host_config import complete, folder_of, import_plugins
from ppocr_ext.run.team import Team, connect

_CPU_INFO = Path("/proc/cpuinfo")
# Numbers of options in glibc's malloc.h; Python has no names for them.
_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4
_KEEP = 2**31 - 1
_INSTALL = {"gpu": " (for NVIDIA: docs/install.md)"}


def choose_device(config: Config) -> str:
    """Set Paddle's device, and return its name: ``"cpu"``, ``"gpu:0"``, …

    Raises:
        ConfigError: the installed Paddle cannot use the device of the config.
    """
    device = device_kind(config)
    if device == "cpu":
        tune_cpu()
    else:
        device = f"{device}:{dist.ParallelEnv().dev_id}"
    paddle.set_device(device)
    return device


def device_kind(config: Config) -> str:
    """Return the device of the config by PaddleOCR's keys (``use_gpu``, ``use_xpu``, …): ``"cpu"``, ``"gpu"``, …

    Raises:
        ConfigError: the installed Paddle cannot use it.
    """
    wanted = config.asked_devices()
    if not wanted:
        return "cpu"
    if len(wanted) > 1:
        keys = ", ".join(f"Global.use_{kind}" for kind in wanted)
        raise ConfigError(f"{keys} are all true. Leave one of them.", code="conflicting_keys")
    kind = wanted[0]
    key = f"{config.where(f'Global.use_{kind}')}: Global.use_{kind}"
    built_for = {"gpu": paddle.is_compiled_with_cuda, "xpu": paddle.device.is_compiled_with_xpu}
    if not built_for.get(kind, partial(paddle.device.is_compiled_with_custom_device, kind))():
        raise ConfigError(
            f"{key} is true, but this Paddle ({paddle.__version__}) is not built for {kind.upper()}. "
            f"Install the build for it in its place{_INSTALL.get(kind, '')}, or set -o Global.use_{kind}=false.",
            code="unsupported_device",
        )
    if kind == "gpu" and paddle.device.cuda.device_count() == 0:
        raise ConfigError(
            f"{key} is true, but no GPU is visible. Set -o Global.use_gpu=false for the CPU.", code="no_gpu"
        )
    return kind


def tune_cpu() -> None:
    """Make training on a CPU faster.

    - No strided views: since Paddle 3.0 slices, transposes and reshapes are views, and on a CPU their gradients cost
      more than the saved copies.
    - AVX2 on AMD's processors: the MKL in Paddle's wheel uses it only if ``MKL_DEBUG_CPU_TYPE`` is 5 before its first
      product. A value of the user is kept.
    - Freed memory is kept: glibc would return large blocks to the system, and get them again, page by page, in the
      next step.
    """
    if "FLAGS_use_stride_kernel" in paddle.base.core.globals():  # Paddle 2.6 has no strided views
        paddle.set_flags({"FLAGS_use_stride_kernel": False})
    if sys.platform != "linux":
        return
    if is_amd_with_avx2(_CPU_INFO.read_text(encoding="utf-8", errors="replace")):
        os.environ.setdefault("MKL_DEBUG_CPU_TYPE", "5")
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):  # not in musl
        library.mallopt(_M_MMAP_MAX, 0)
        library.mallopt(_M_TRIM_THRESHOLD, _KEEP)


def is_amd_with_avx2(cpu_info: str) -> bool:
    """Return True if the text of ``/proc/cpuinfo`` describes an AMD processor with AVX2."""
    return "AuthenticAMD" in cpu_info and "avx2" in cpu_info.split()


Role = Literal["train", "eval", "predict"]
_FROM_NOTHING = (
    "\nTo train without them: -o {}=null. The learning rate of a fine-tuning is then too low: multiply "
    "Optimizer.lr.learning_rate by 5 to 10."
)


@dataclass(frozen=True)
class RunOptions:
    """How a run is built, besides its config.

    Attributes:
        role: the purpose of the run; ``"predict"`` (reading images, exporting) needs no data.
        host_path: a PaddleOCR checkout; None searches for a host.
        old_dictionary: dictionary of the weights, if it differs from the config's.
        weights_of: the sub-model whose weights a single model takes from a file of several (not ``"train"``).
        eval_section, train_section: config sections of the data of ``Eval`` and ``Train``, for messages.
        reads_ctc: True if the labels of ``Eval`` are compared with CTC's output, so they must fit its frames.
        evaluates: False for a training that never reads ``Eval``, such as the one that stores a teacher's outputs.
    """

    role: Role
    host_path: str | None = None
    old_dictionary: str | None = None
    weights_of: str = "Student"
    eval_section: str = "Eval"
    train_section: str = "Train"
    reads_ctc: bool = True
    evaluates: bool = True


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """What the parts of a run are built from.

    Attributes:
        options: how the run is built.
        config: resolved, with defaults and class counts.
        components: the same config without the unknown keys that the config check has reported.
        host: PaddleOCR.
        charset: the dictionary.
        old_charset: the dictionary of the weights, if it is another one.
        checkpoint: the checkpoint to resume or evaluate, if any.
        folder: the run folder.
        seed: the seed of all random generators.
        device: Paddle's name of it.
        team: the processes of the run.
        config_warnings: warnings of the config check.
    """

    options: RunOptions
    config: Config
    components: Config
    host: Host
    charset: Charset
    old_charset: Charset | None
    checkpoint: Checkpoint | None
    folder: Path
    seed: int
    device: str
    team: Team
    config_warnings: tuple[Issue, ...] = ()

    @property
    def trains(self) -> bool:
        """True for role ``"train"``."""
        return self.options.role == "train"

    @property
    def is_first(self) -> bool:
        """True in process 0, which evaluates, saves and writes the run folder."""
        return self.team.rank == 0

    @property
    def modes(self) -> tuple[str, ...]:
        """The sections that this process reads; in training, only process 0 evaluates."""
        evaluates = self.options.evaluates and (self.is_first or not self.trains)
        wanted = ["Train"] * self.trains + ["Eval"] * evaluates
        return tuple(mode for mode in wanted if self.config.at(mode, default=None) is not None)

    def decoder(self, options: Mapping[str, Any]) -> Callable[..., Any]:
        """Return the host's decoder with these options, as ``PostProcess`` has them.

        Raises:
            ConfigError: the host has no such decoder, or it does not take an option.
        """
        return self.host.build_post_process(options, self.config.host_options(), self.charset)

    def name_of(self, mode: str) -> str:
        """Return the name of the data of ``"Train"`` or ``"Eval"`` in messages."""
        return self.options.eval_section if mode == "Eval" else self.options.train_section


def open_context(config: Config, options: RunOptions) -> RunContext:
    """Check and resolve a config, and open the host, the device and the team of processes.

    Raises:
        PPOCRExtError: the run cannot be built; the message says what to change.
    """
    host = open_host(options.host_path)
    import_plugins(config)
    warnings, unused = _check(config, host, options)
    device = choose_device(config)  # first, since a released model is converted on it
    if options.role == "train":
        _fetch_weights(config)
    context = resolve_context(config, host, options, unused, device, warnings)
    if options.role != "predict":  # reading images must not change the generators of the user's program
        host.set_seed(context.seed)
    return context


def resolve_context(
    config: Config,
    host: Host,
    options: RunOptions,
    unused: Sequence[tuple[str, ...]],
    device: str,
    warnings: tuple[Issue, ...] = (),
) -> RunContext:
    """Return the context of a config that was checked: with its dictionary, class counts and checkpoint.

    Args:
        config: as loaded.
        host: opened.
        options: how the run is built.
        unused: the keys that no component takes.
        device: as Paddle calls it.
        warnings: of the config check.

    Raises:
        PPOCRExtError: the dictionary or the checkpoint cannot be used.
    """
    charset = resolve_charset(config, host.find_file)
    resolved = with_class_counts(complete(config, charset), charset)
    old_charset = read_old_charset(options.old_dictionary, config, host.find_file, "--old-dict")
    checkpoint = _checkpoint(resolved, options.role, charset, old_charset)
    return RunContext(
        options=options,
        config=resolved,
        components=resolved.without(unused),
        host=host,
        charset=charset,
        old_charset=old_charset,
        checkpoint=checkpoint,
        folder=folder_of(resolved),
        seed=resolved.settings.seed,
        device=device,
        team=connect(),
        config_warnings=warnings,
    )


def _check(
    config: Config, host: Host, options: RunOptions
) -> tuple[tuple[Issue, ...], list[tuple[str, ...]]]:
    """Report the issues of ``config``; return the warnings, and the keys that no component takes."""
    found, unused = check_all(config, host, options.role, processes=dist.get_world_size())
    # A run cannot accept untrained teachers, of which `config --check` only warns.
    issues = [
        rename_section(replace(each, level="error") if each.code == UNTRAINED else each, options.eval_section)
        for each in found
    ]
    strict = config.settings.strict
    if dist.get_rank() != 0 and not strict:  # process 0 warns for all
        issues = [issue for issue in issues if issue.level == "error"]
    report_issues(issues, strict=strict)
    return tuple(issues), unused


def _fetch_weights(config: Config) -> None:
    """Download the official weights of a training, or convert its released models, before all else that takes time.

    Raises:
        WeightsError: that fails; the message says how to train without them.
    """
    for path, name in weights_to_load(config, "train"):
        try:
            source = find_source(str(name))
            has_network = path[0] == "Global" or config.at((*path[:-1], "Backbone"), None)
            if source is not None and has_network:
                LOG.info("%s: %s, from %s", dotted(path), source.fetch(), source.line)
        except WeightsError as error:
            # A teacher without weights would teach noise, so there is no way to train without them.
            is_teacher = config.at((*path[:-1], "freeze_params"), False)
            remedy = "" if is_teacher else _FROM_NOTHING.format(dotted(path))
            raise WeightsError(
                f"{config.where(path)}: {dotted(path)}: {error}{remedy}", code=error.code
            ) from error


def rename_section(issue: Issue, eval_section: str) -> Issue:
    """Return ``issue`` with the config section of the data of ``Eval``; transforms are always those of ``Eval``."""
    if not issue.path.startswith("Eval.dataset.") or issue.path.startswith("Eval.dataset.transforms"):
        return issue
    return replace(issue, path=f"{eval_section}.{issue.path.removeprefix('Eval.')}")


def _checkpoint(
    config: Config, role: Role, charset: Charset, old_charset: Charset | None
) -> Checkpoint | None:
    """Return the checkpoint to resume or evaluate, if any.

    Raises:
        WeightsError: it was trained with another dictionary. Or it cannot be resumed, since it has no state of a run,
            its averages are not finite, or ``--old-dict`` is given.
    """
    path = config.settings.checkpoints
    if not path:
        return None
    if config.settings.pretrained_model:
        LOG.info("Global.checkpoints takes precedence over Global.pretrained_model")
    checkpoint = Checkpoint(path)
    prefix = checkpoint.prefix
    state = checkpoint.train_state()
    differs = state.charset_digest not in (None, charset.digest)
    if role != "train":
        if differs and old_charset is None:
            raise WeightsError(
                f"{prefix} was trained with another dictionary than {charset.name}: its texts would be garbled. "
                f"Fix: set Global.character_dict_path to its dictionary, or give that with --old-dict.",
                code="charset_mismatch",
            )
        if note := weights_note(state):
            LOG.info("%s: %s. Take those: ppocr-ext checkpoint other %s -o FILE", path, note, path)
        return checkpoint
    if state.is_empty and checkpoint.file(".states").is_file():
        raise WeightsError(
            f"Global.checkpoints: {prefix} holds only weights, not the state of a run. Fix: resume from "
            f"`latest`, or start a new run from these weights: -o Global.pretrained_model={prefix}.",
            code="weights_alone",
        )
    if differs or old_charset is not None:
        raise WeightsError(
            f"Global.checkpoints: {prefix} can only be resumed with the dictionary of its training. "
            f"Fix: to start from its weights with another one, give them as Global.pretrained_model, and their "
            f"dictionary with --old-dict.",
            code="charset_mismatch",
        )
    require_usable_averages(checkpoint, state)
    processes = dist.get_world_size()
    if state.processes not in (None, processes) and dist.get_rank() == 0:
        LOG.warning(
            "%s was saved by %s processes, and this run has %d: it continues at the same step, but with other samples "
            "in a step and in the rest of the epoch. As before: --processes %s",
            prefix,
            state.processes,
            processes,
            state.processes,
        )
    return checkpoint
