"""What a run derives from its config: seed, folder and plugins, its defaults, and the plain config for PaddleOCR."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ppocr_ext.charset import Charset
from ppocr_ext.checkpoint.checkpoints import Checkpoint
from ppocr_ext.config import Config, derive_values
from ppocr_ext.config.global_keys import FILLED_DEFAULTS
from ppocr_ext.config.yaml_io import dump
from ppocr_ext.data.preflight_report import PreflightReport
from ppocr_ext.errors import ConfigError
from ppocr_ext.host.complete import MAPPING, insert_mapping
from ppocr_ext.messages import LOG, shortened

_PROFILER_KEYS = (
    "batch_range",
    "state",
    "sorted_key",
    "tracer_option",
    "profile_path",
    "exit_on_finished",
    "timer_only",
)
_BATCH_RANGE = re.compile(r"\[?(\d+),(\d+)\]?")
_PROFILER_END = 20  # default end of PaddleOCR's batch_range


def seed_of(config: Config) -> int:
    """Return ``Global.seed``, or PaddleOCR's default."""
    return config.settings.seed


def folder_of(config: Config) -> Path:
    """Return the run folder that ``Global.save_model_dir`` names."""
    return Path(config.settings.save_model_dir)


def cache_folder(config: Config) -> Path | None:
    """Return the folder of the teacher cache that ``Train.teacher_cache`` names, if any."""
    given = config.at("Train.teacher_cache", default=None)
    return None if given is None else Path(given)


def decoder_models(config: Config) -> tuple[str, ...] | None:
    """Return the names of the sub-models that the decoder reads; None for a model without sub-models."""
    if config.at("Architecture.Models", default=None) is None:
        return None
    names = config.at("PostProcess.model_name", default=None) or ("Student",)
    return (names,) if isinstance(names, str) else tuple(names)


def plugin_names(config: Config) -> tuple[str, ...]:
    """Return the modules that ``Global.plugins`` lists; none where it is not a list, which the config check reports."""
    listed = config.settings.plugins
    return tuple(map(str, listed)) if isinstance(listed, tuple) else ()


def import_plugins(config: Config, say: Callable[[str], None] = LOG.info) -> None:
    """Import ``Global.plugins``, modules that register their own components.

    Args:
        config: the configuration.
        say: takes a line for each module, with its file.

    Raises:
        ConfigError: a module cannot be found or fails.
    """
    names = plugin_names(config)
    if names and str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))  # as with `python -c`; a console script does not have it
    for name in names:
        try:
            module = importlib.import_module(name)
        except Exception as fault:  # whatever a user's module raises
            raise ConfigError(
                f"Global.plugins: {name!r} cannot be imported ({type(fault).__name__}: {fault}). Give a module name "
                f"that `python -c 'import {name}'` accepts in the folder you start in, or set PYTHONPATH.",
                code="bad_plugin",
            ) from fault
        say(f"imported plugin {name}: {getattr(module, '__file__', None)}")


def complete(config: Config, charset: Charset) -> Config:
    """Fill in what the host's loop insists on and PaddleOCR's train.py takes for granted.

    The loader of ``Eval`` gives every line, in the data's order, whatever the config says.
    """
    missing = {
        path: value for path, value in FILLED_DEFAULTS.items() if config.at(path, default=None) is None
    }
    config = config.with_values(missing)
    dictionary = "Global.character_dict_path"
    if charset.path is not None:
        config = config.with_values({dictionary: str(charset.path)}, computed_from=dictionary)
    if isinstance(config.at("Eval.loader", default=None), Mapping):
        config = config.with_values(dict.fromkeys(("Eval.loader.shuffle", "Eval.loader.drop_last"), False))
    return derive_values(config)


def host_config(
    config: Config,
    *,
    distributed: bool = False,
    label_files: Mapping[str, Sequence[Path]] | None = None,
    eval_steps: tuple[int, int] | None = None,
) -> dict[str, Any]:
    """Return ``config`` as PaddleOCR takes it: plain dicts and lists, which it may change.

    Args:
        config: resolved.
        distributed: True for several processes.
        label_files: by ``"Train"`` or ``"Eval"``, the files to read in place of those of the config.
        eval_steps: first evaluation and steps between two, as :func:`evaluation_steps` returns them.
    """
    plain = config.thaw()
    plain.pop("computed", None)  # a list of this package's, no section of PaddleOCR's
    plain["Global"]["distributed"] = distributed
    plain.setdefault("profiler_options", None)  # the host's own script sets it
    for mode in ("Train", "Eval"):
        section = plain.get(mode) or {}
        if not section.get("sampler"):  # `sampler: null` of an overlay: the host would look for its name
            section.pop("sampler", None)
        dataset = section.get("dataset") or {}
        if (
            dataset.get("name") == "LMDBDataSet"
        ):  # it draws no share of the data, but shuffles anew for this key
            dataset.pop("ratio_list", None)
        if plain["Global"].get("unknown_char") == "map":
            transforms = dataset.get("transforms") or []
            names = [next(iter(entry)) if isinstance(entry, Mapping) else str(entry) for entry in transforms]
            insert_mapping(names, transforms, lambda encoder: {MAPPING: None})
        if label_files and mode in label_files:
            dataset["label_file_list"] = [str(path) for path in label_files[mode]]
    if eval_steps is not None:
        plain["Global"].pop("eval_batch_epoch", None)  # not every host knows it
        plain["Global"]["eval_batch_step"] = list(eval_steps)
    return plain


def evaluation_steps(config: Config, steps_per_epoch: int) -> tuple[int, int]:
    """Return (steps before the first evaluation, steps between two); the loop evaluates the last step in any case.

    Args:
        config: resolved; ``eval_batch_epoch`` takes precedence over ``eval_batch_step``.
        steps_per_epoch: batches of an epoch.

    Raises:
        ConfigError: ``eval_batch_step`` is neither a number of steps nor [first, every].
    """
    total = config.settings.epoch_num * steps_per_epoch
    epochs = config.settings.eval_batch_epoch
    key = "eval_batch_step" if epochs is None else "eval_batch_epoch"
    steps = config.settings.eval_batch_step if epochs is None else epochs * steps_per_epoch
    start, every = steps if isinstance(steps, list | tuple) else (0, steps)
    if start + every > total:
        LOG.warning(
            "Global.%s: the first evaluation is due at step %d, but the run has %d steps; it is set to step %d.",
            key,
            start + every,
            total,
            total,
        )
    return start, every


def check_profiler(config: Config, total_steps: int) -> None:
    """Refuse ``profiler_options`` (``-p``) that PaddleOCR would fail on in the first step, or ignore.

    Raises:
        ConfigError: the options are not ``key=value;…``, a key is unknown, or the range is none.
    """
    options = config.at("profiler_options", default=None)
    if not options:
        return
    where = "profiler_options (-p)"
    end = _PROFILER_END
    for part in str(options).replace(" ", "").split(";"):
        key, equals, value = part.partition("=")
        limits = _BATCH_RANGE.fullmatch(value) if key == "batch_range" else None
        bad_range = key == "batch_range" and (limits is None or int(limits[2]) <= int(limits[1]))
        if not equals or "=" in value or key not in _PROFILER_KEYS or bad_range:
            raise ConfigError(
                f"{where}: found {part!r}, expected key=value with a key of {', '.join(_PROFILER_KEYS)}; the value of "
                f'batch_range is [first,last]. Fix: write, for example, -p "batch_range=[10,20];timer_only=False".',
                code="bad_value",
            )
        end = end if limits is None else int(limits[2])
    if end >= total_steps:
        LOG.warning(
            "profiler_options: batch_range ends at batch %d, but the run has %d: there will be no summary.",
            end,
            total_steps,
        )


def settings_of(config: Config, preflight: Mapping[str, PreflightReport]) -> list[str]:
    """Return what is compared, a line each: the labels of each section, the values of ``Loss``, the indicator.

    Args:
        config: of the run.
        preflight: the check of its data.
    """
    return [
        *(
            f"{mode}: {file.total:,} labels with the digest {file.digest}"
            for mode, report in preflight.items()
            for file in report.files
        ),
        *(f"Loss: {line.strip()}" for line in dump(config.at("Loss").thaw()).splitlines()),
        f"Metric.main_indicator: {config.at('Metric.main_indicator', default=None)}",
    ]


def warn_of_other_settings(checkpoint: Checkpoint, now: Sequence[str]) -> None:
    """Warn if the run of a checkpoint had other settings; nothing is known of older checkpoints and PaddleOCR's."""
    before = checkpoint.train_state().settings
    if before and set(before) != set(now):
        LOG.warning(
            "%s: the run goes on with other settings, so that its curves and its best evaluation mix both. Before: %s. "
            "Now: %s. Fix: if that is not meant, those of before, or a new run: -o Global.pretrained_model=%s.",
            checkpoint.prefix,
            shortened([line for line in before if line not in now], 5),
            shortened([line for line in now if line not in before], 5),
            checkpoint.prefix,
        )
