"""The keys of ``Global`` that this package reads, with their types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from ppocr_ext.config.global_keys import GLOBAL_KEYS


class Settings:
    """Values of ``Global``: each attribute is the key of its name; docs/reference.md says what it means.

    A missing key has its default in ``GLOBAL_KEYS``, the table that the config check works from. A value is read where
    it is used, so that a wrong one does not hide what else is wrong with a config.

    Args:
        read: returns the value of a key, or raises a ConfigError.
    """

    # the run
    seed: int
    save_model_dir: str
    plugins: tuple[str, ...] | None
    epoch_num: int
    strict: bool
    dry_step: bool
    report: bool
    use_gpu: bool
    print_batch_step: int
    uniform_output_enabled: bool
    # labels
    max_text_length: int
    min_text_length: int | None
    unknown_char: Literal["drop_line", "drop_char", "map"]
    unknown_symbol: str | None
    use_space_char: bool
    max_unusable: float
    allow_outside_data_dir: bool
    max_image_pixels: int
    # weights
    checkpoints: str | None
    pretrained_model: str | None
    pretrained_partial: bool
    freeze: tuple[str, ...] | None
    save_teacher: bool
    allow_untrained_teacher: bool
    save_inference_dir: str | None
    # evaluation
    eval_batch_step: Any
    eval_batch_epoch: int | None
    eval_at_start: bool
    cal_metric_during_train: bool
    early_stop: Mapping[str, Any] | None
    on_collapse: str
    # steps
    accumulate: int
    ema: float | None
    nonfinite: str
    nonfinite_limit: int
    absurd_input: float
    absurd_variance: float
    detect_anomaly: bool
    # checkpoints
    save_minutes: float
    keep_last: int | None
    # engines, precision, processes
    teacher_engine: str
    teacher_dtype: str
    eval_engine: str
    to_static: bool
    recompute: bool
    use_amp: bool
    amp_level: str
    amp_dtype: str
    amp_custom_black_list: tuple[str, ...] | None
    amp_custom_white_list: tuple[str, ...] | None
    scale_loss: float
    use_dynamic_loss_scaling: bool
    use_sync_bn: bool
    find_unused_parameters: bool
    use_tensorboard: bool
    use_visualdl: bool
    use_wandb: bool | None

    def __init__(self, read: Callable[[str], Any]) -> None:
        self._read = read

    if not TYPE_CHECKING:  # with it, mypy would take any name for a key

        def __getattr__(self, name: str) -> Any:
            if name not in GLOBAL_KEYS:
                raise AttributeError(name)
            return self._read(name)
