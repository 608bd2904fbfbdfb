"""The context of a run: the config checked and resolved, and all that its parts are built from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import paddle.distributed as dist

from ppocr_ext.charset import Charset
from ppocr_ext.check import check_all
from ppocr_ext.check.files import weights_to_load
from ppocr_ext.check.sub_models import UNTRAINED
from ppocr_ext.checkpoint.checkpoints import Checkpoint
from ppocr_ext.checkpoint.contents import require_usable_averages, weights_note
from ppocr_ext.checkpoint.official_weights import digest_line, official_file, table
from ppocr_ext.config import Config, read_old_charset, resolve_charset, with_class_counts
from ppocr_ext.config.node import dotted
from ppocr_ext.errors import WeightsError
from ppocr_ext.host import Host, open_host
from ppocr_ext.issues import Issue, report_issues
from ppocr_ext.messages import LOG
from ppocr_ext.run.device import choose_device
from ppocr_ext.run.host_config import complete, folder_of, import_plugins, seed_of
from ppocr_ext.run.team import Team, team

Role = Literal["train", "eval", "predict"]
_FROM_NOTHING = (
    "\nTo train without them: -o {}=null. A learning rate of fine-tuning is then too low: raise "
    "Optimizer.lr.learning_rate about 5 to 10 times."
)


@dataclass(frozen=True)
class RunOptions:
    """How a run is built, besides its config.

    Attributes:
        role: what the run is for; ``"predict"`` needs no data: images are read, or the network is exported.
        host_path: a PaddleOCR checkout; None searches for a host.
        old_dictionary: dictionary of the weights, if it differs from the config's.
        weights_of: sub-model whose weights a single model takes from a file that has several (not ``"train"``).
        eval_section: the config section that the data of ``Eval`` come from, for messages.
        reads_ctc: the labels of ``Eval`` are compared with what CTC reads, so they have to fit its frames.
        evaluates: False: a training that never reads ``Eval``, as to store a teacher's outputs.
    """

    role: Role
    host_path: str | None = None
    old_dictionary: str | None = None
    weights_of: str = "Student"
    eval_section: str = "Eval"
    reads_ctc: bool = True
    evaluates: bool = True


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """What the parts of a run are built from.

    Attributes:
        options: how the run is built.
        config: resolved, with defaults and class counts.
        components: the same without the keys that no component takes, which the config check has reported.
        host: PaddleOCR.
        charset: the dictionary.
        old_charset: the dictionary of the weights, if it is another one.
        checkpoint: the checkpoint to resume or evaluate, if any.
        folder: the run folder.
        seed: of all random generators.
        device: as Paddle names it.
        team: the processes of the run.
        config_warnings: what the config check has warned of.
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
        """The sections whose data this process reads: in training, only process 0 evaluates."""
        evaluates = self.options.evaluates and (self.is_first or not self.trains)
        wanted = ["Train"] * self.trains + ["Eval"] * evaluates
        return tuple(mode for mode in wanted if self.config.at(mode, default=None) is not None)

    def name_of(self, mode: str) -> str:
        """Return what messages call the data of ``"Train"`` or ``"Eval"``."""
        return self.options.eval_section if mode == "Eval" else mode


def open_context(config: Config, options: RunOptions) -> RunContext:
    """Check a config and resolve it; open the host, the device and the other processes.

    Raises:
        PPOCRExtError: the run cannot be built; the message says what to change.
    """
    host = open_host(options.host_path)
    import_plugins(config)
    warnings, unused = _check(config, host, options)
    if options.role == "train":
        _download_weights(config)
    charset = resolve_charset(config, host.find_file)
    resolved = with_class_counts(complete(config, charset), charset)
    old_charset = read_old_charset(options.old_dictionary, config, host.find_file, "--old-dict")
    checkpoint = _checkpoint(resolved, options.role, charset, old_charset)
    context = RunContext(
        options=options,
        config=resolved,
        components=resolved.without(unused),
        host=host,
        charset=charset,
        old_charset=old_charset,
        checkpoint=checkpoint,
        folder=folder_of(resolved),
        seed=seed_of(resolved),
        device=choose_device(resolved),
        team=team(),
        config_warnings=warnings,
    )
    if options.role != "predict":  # it draws nothing; generators of a program that reads images are its own
        host.set_seed(context.seed)
    return context


def _check(
    config: Config, host: Host, options: RunOptions
) -> tuple[tuple[Issue, ...], list[tuple[str, ...]]]:
    """Report the issues of ``config``; return the warnings, and the keys that no component takes."""
    found, unused = check_all(config, host, options.role, processes=dist.get_world_size())
    # a training cannot use what a check of PaddleOCR's own configs only warns of
    issues = [
        rename_section(replace(each, level="error") if each.code == UNTRAINED else each, options.eval_section)
        for each in found
    ]
    strict = config.settings.strict
    if dist.get_rank() != 0 and not strict:  # process 0 warns for all
        issues = [issue for issue in issues if issue.level == "error"]
    report_issues(issues, strict=strict)
    return tuple(issues), unused


def _download_weights(config: Config) -> None:
    """Download the official weights of a training, before anything that takes time.

    Raises:
        WeightsError: they cannot be downloaded; the message says how to train without them.
    """
    for path, name in weights_to_load(config, "train"):
        try:
            if official_file(str(name)) is not None:
                LOG.info("%s", digest_line(table()[str(name)]))
        except WeightsError as error:
            # a teacher would teach noise without them
            remedy = (
                "" if config.at((*path[:-1], "freeze_params"), False) else _FROM_NOTHING.format(dotted(path))
            )
            raise WeightsError(
                f"{config.where(path)}: {dotted(path)}: {error}{remedy}", code=error.code
            ) from error


def rename_section(issue: Issue, eval_section: str) -> Issue:
    """Return ``issue`` with the section that the data of ``Eval`` come from; transforms stay those of ``Eval``."""
    begin = "Eval.dataset."
    if not issue.path.startswith(begin) or issue.path.startswith(f"{begin}transforms"):
        return issue
    return replace(issue, path=f"{eval_section}.dataset.{issue.path.removeprefix(begin)}")


def _checkpoint(
    config: Config, role: Role, charset: Charset, old_charset: Charset | None
) -> Checkpoint | None:
    """Return the checkpoint to resume or evaluate, if any.

    Raises:
        WeightsError: it has no state of a run to resume, or averages that are not finite; its dictionary differs; or
            ``--old-dict`` is given to resume a run.
    """
    path = config.settings.checkpoints
    if not path:
        return None
    if config.settings.pretrained_model:
        LOG.info("Global.checkpoints takes precedence over Global.pretrained_model")
    checkpoint = Checkpoint(path)
    state = checkpoint.train_state()
    digest = state.charset_digest
    if role != "train" and (note := weights_note(state)):
        LOG.info("%s: %s. Take those: ppocr-ext checkpoint other %s -o FILE", path, note, path)
    other = digest not in (None, charset.digest)
    if role != "train" and other and old_charset is None:
        raise WeightsError(
            f"{checkpoint.prefix} was trained with another dictionary than {charset.name}: its texts would be garbled. "
            f"Fix: set Global.character_dict_path to its dictionary, or give that with --old-dict.",
            code="charset_mismatch",
        )
    if role == "train" and state.is_empty and checkpoint.file(".states").is_file():
        raise WeightsError(
            f"Global.checkpoints: {checkpoint.prefix} holds only weights, not the state of a run. Fix: resume from "
            f"`latest`, or start a new run from these weights: -o Global.pretrained_model={checkpoint.prefix}.",
            code="weights_alone",
        )
    if role == "train" and (other or old_charset is not None):
        raise WeightsError(
            f"Global.checkpoints: {checkpoint.prefix} can only be resumed with the dictionary of its training. "
            f"Fix: to start from its weights with another one, give them as Global.pretrained_model, and their "
            f"dictionary with --old-dict.",
            code="charset_mismatch",
        )
    if role == "train":
        require_usable_averages(checkpoint, state)
    processes = dist.get_world_size()
    if role == "train" and state.processes not in (None, processes) and dist.get_rank() == 0:
        LOG.warning(
            "%s is of a run with %s processes, and this one has %d: it goes on at the same step, but the samples of a "
            "step, and those left of the epoch, are others. As before: --processes %s",
            checkpoint.prefix,
            state.processes,
            processes,
            state.processes,
        )
    return checkpoint
