"""What a run derives from its config: folder, plugins, defaults, and the plain config for PaddleOCR; no Paddle."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ppocr_ext.base.parts import DATASET_ROWS
from ppocr_ext.charset import Charset
from ppocr_ext.checkpoint.checkpoints import Checkpoint
from ppocr_ext.checkpoint.weight_sources import ReleasedSource, find_source
from ppocr_ext.config import Config, derive_values, named_items
from ppocr_ext.config.derive import model_paths
from ppocr_ext.config.global_keys import FILLED_DEFAULTS
from ppocr_ext.config.node import plain_copy
from ppocr_ext.config.yaml_io import dump
from ppocr_ext.data.preflight_report import PreflightReport
from ppocr_ext.errors import ConfigError
from ppocr_ext.host.complete import PREPARING, TURNING
from ppocr_ext.messages import LOG, shortened
from ppocr_ext.text_direction import LEFT_TO_RIGHT, RIGHT_TO_LEFT

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
_LOADING = {name: row.loading for name, row in DATASET_ROWS.items()}
_PROFILER_END = 20  # default end of PaddleOCR's batch_range


def folder_of(config: Config) -> Path:
    """Return the run folder that ``Global.save_model_dir`` names."""
    return Path(config.settings.save_model_dir)


def decoder_models(config: Config) -> tuple[str, ...] | None:
    """Return the sub-models whose outputs are decoded; None for a model without sub-models."""
    if config.at("Architecture.Models", default=None) is None:
        return None
    names = config.at("PostProcess.model_name", default=None) or ("Student",)
    return (names,) if isinstance(names, str) else tuple(names)


def plugin_names(config: Config) -> tuple[str, ...]:
    """Return the modules in ``Global.plugins``; none if it is not a list, which the config check reports."""
    listed = config.settings.plugins
    return tuple(map(str, listed)) if isinstance(listed, tuple) else ()


def import_plugins(config: Config, say: Callable[[str], None] = LOG.info) -> None:
    """Import the modules in ``Global.plugins``, which register their own components.

    Args:
        config: the configuration.
        say: called with a line for each module.

    Raises:
        ConfigError: a module cannot be found, or fails.
    """
    names = plugin_names(config)
    if names and str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))  # `python -c` has it too, a console script does not
    for name in names:
        try:
            module = importlib.import_module(name)
        except Exception as fault:  # a user's module may raise anything
            raise ConfigError(
                f"Global.plugins: {name!r} cannot be imported ({type(fault).__name__}: {fault}). Give a module name "
                f"that `python -c 'import {name}'` accepts in the folder you start in, or set PYTHONPATH.",
                code="bad_plugin",
            ) from fault
        say(f"imported plugin {name}: {getattr(module, '__file__', None)}")


def complete(config: Config, charset: Charset) -> Config:
    """Fill in the keys that the host's loop needs.

    The loader of ``Eval`` always reads every sample, in the order of the data. A network whose weights are a released
    inference model is built as that: ``fused: true``.
    """
    missing = {
        path: value for path, value in FILLED_DEFAULTS.items() if config.at(path, default=None) is None
    }
    config = config.with_values(missing)
    dictionary = "Global.character_dict_path"
    if charset.path is not None:
        # The direction follows from the path as it is written, and not from that of this machine.
        values = {dictionary: str(charset.path), "Global.text_direction": charset.direction}
        config = config.with_values(values, computed_from=dictionary)
    if isinstance(config.at("Eval.loader", default=None), Mapping):
        config = config.with_values(dict.fromkeys(("Eval.loader.shuffle", "Eval.loader.drop_last"), False))
    for part in filter(lambda part: config.at((*part, "Backbone"), None), model_paths(config)):
        own = (*part, "pretrained")
        is_trained = not config.at((*part, "freeze_params"), False)
        first = ("Global", "pretrained_model")  # a checkpoint of the network decides itself
        weights = (
            first if is_trained and not config.at(own, None) and not config.settings.checkpoints else own
        )
        source = find_source(str(config.at(weights, None) or ""))
        if isinstance(source, ReleasedSource) and config.at((*part, "fused"), None) is None:
            config = config.with_values({(*part, "fused"): True}, computed_from=weights)
    return derive_values(config)


def own_transforms(config: Config, mode: str) -> list[tuple[int, str]]:
    """Return the transforms that our keys add to those of ``mode``: before which one each is, the last one first.

    Labels are prepared (mapped, turned) first of all for files and LMDBs, since RecConAug joins labels in the order of
    their images. Other data sets draw their images, none of them tall, and give labels in the order of the image.
    """
    maps = config.settings.unknown_char == "map"
    names = [name for name, _ in named_items(config, mode, "dataset", "transforms")]
    if config.at(f"{mode}.dataset.name", default=None) not in _LOADING:
        encoders = [at for at, name in enumerate(names) if maps and name.endswith("LabelEncode")]
        return [(at, PREPARING) for at in encoders[:1]]
    added = []
    if config.settings.turn_tall_images and "DecodeImage" in names:
        added.append((names.index("DecodeImage") + 1, TURNING))
    if maps or config.settings.text_direction == RIGHT_TO_LEFT:
        added.append((0, PREPARING))
    return added


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
        label_files: for ``"Train"`` or ``"Eval"``, the files to read instead of those of the config.
        eval_steps: result of :func:`evaluation_steps`.
    """
    plain = config.thaw()
    plain.pop("computed", None)  # PaddleOCR does not know this key of ours
    plain["Global"]["distributed"] = distributed
    plain.setdefault("profiler_options", None)  # the host's loop reads the key, which its own script sets
    for mode in ("Train", "Eval"):
        section = plain.get(mode) or {}
        if not section.get("sampler"):  # the host fails on `sampler: null`
            section.pop("sampler", None)
        dataset = section.get("dataset") or {}
        if dataset.get("name") == "LMDBDataSet":  # this key only makes it shuffle anew
            dataset.pop("ratio_list", None)
        for at, name in own_transforms(config, mode):
            dataset["transforms"].insert(at, {name: None})
            if usual := _LOADING.get(dataset["name"]):
                dataset["ext_op_transform_idx"] = dataset.get("ext_op_transform_idx", usual) + 1
        if label_files and mode in label_files:
            dataset["label_file_list"] = [str(path) for path in label_files[mode]]
    if eval_steps is not None:
        plain["Global"].pop("eval_batch_epoch", None)  # some hosts do not know it
        plain["Global"]["eval_batch_step"] = list(eval_steps)
    return plain


def evaluation_steps(config: Config, steps_per_epoch: int) -> tuple[int, int]:
    """Return (steps before the first evaluation, steps between two). The last step is evaluated in any case.

    Args:
        config: resolved; ``eval_batch_epoch`` takes precedence over ``eval_batch_step``.
        steps_per_epoch: batches of an epoch.
    """
    total = config.settings.epoch_num * steps_per_epoch
    epochs = config.settings.eval_batch_epoch
    key = "eval_batch_step" if epochs is None else "eval_batch_epoch"
    steps = config.settings.eval_batch_step if epochs is None else epochs * steps_per_epoch
    start, every = steps if isinstance(steps, list | tuple) else (0, steps)
    if start + every > total:
        LOG.warning(
            "Global.%s: the first evaluation would be at step %d, but the run has %d steps; it will be at step %d.",
            key,
            start + every,
            total,
            total,
        )
    return start, every


def check_profiler(config: Config, total_steps: int) -> None:
    """Check ``profiler_options`` (``-p``), which PaddleOCR would ignore, or fail on in the first step.

    Raises:
        ConfigError: the options are not ``key=value;…``, a key is unknown, or the range is not valid.
    """
    options = config.at("profiler_options", default=None)
    if not options:
        return
    end = _PROFILER_END
    for part in str(options).replace(" ", "").split(";"):
        key, equals, value = part.partition("=")
        limits = _BATCH_RANGE.fullmatch(value) if key == "batch_range" else None
        bad_range = key == "batch_range" and (limits is None or int(limits[2]) <= int(limits[1]))
        if not equals or "=" in value or key not in _PROFILER_KEYS or bad_range:
            raise ConfigError(
                f"profiler_options (-p): found {part!r}, expected key=value with a key of {', '.join(_PROFILER_KEYS)}; "
                f"the value of batch_range is [first,last]. Fix: write, for example, "
                f'-p "batch_range=[10,20];timer_only=False".',
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
    """Return the settings that a resumed run should keep, one a line: labels, values of ``Loss``, main indicator.

    Args:
        config: the config of the run.
        preflight: the check of its data.
    """
    return [
        *(
            f"{mode}: {file.total:,} labels with the digest {file.digest}"
            for mode, report in preflight.items()
            for file in report.files
        ),
        *(f"Loss: {line.strip()}" for line in dump(config.at("Loss").thaw()).splitlines()),
        *(f"Train.mix: {plain_copy(each)}" for each in config.at("Train.mix", None) or ()),
        f"Metric.main_indicator: {config.at('Metric.main_indicator', default=None)}",
        *(
            f"Global.text_direction: {direction}"
            for direction in (config.settings.text_direction,)
            if direction not in (None, LEFT_TO_RIGHT)
        ),
    ]


def warn_of_other_settings(checkpoint: Checkpoint, now: Sequence[str]) -> None:
    """Warn if the run of a checkpoint had other settings; PaddleOCR's and older checkpoints do not store them."""
    before = checkpoint.train_state().settings
    if before and set(before) != set(now):
        LOG.warning(
            "%s: the run continues with other settings, so its curves and its best evaluation mix both. Before: %s. "
            "Now: %s. Fix: restore the settings, or start a new run: -o Global.pretrained_model=%s.",
            checkpoint.prefix,
            shortened([line for line in before if line not in now], 5),
            shortened([line for line in now if line not in before], 5),
            checkpoint.prefix,
        )
