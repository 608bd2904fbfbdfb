"""Rules for single values, and the keys of ``Global``: rule, default, meaning and Python type of each key.

The config check, the defaults of a run and the table in docs/reference.md come from here; tests/write_reference.py
writes that table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ppocr_ext.config.node import plain_copy
from ppocr_ext.limits import MAX_IMAGE_PIXELS
from ppocr_ext.text_direction import TEXT_DIRECTIONS

Kind = Literal["truth", "whole", "number", "text", "texts", "steps", "options", "any"]
_TRUTHS = ("true", "false", "yes", "no", "on", "off")
_NAMES = {
    "truth": "true or false",
    "whole": "a whole number",
    "number": "a number",
    "text": "text",
    "texts": "a list of names",
    "steps": "a number of steps or [first, every], every at least 1",
}
_UNQUOTE = " Fix: remove the quotes."
_QUOTE = " Fix: put quotes around it (YAML reads off, on, yes, no and numbers as values)."


class Problem(NamedTuple):
    """Why a value cannot be used: the code of an issue or error, and its message."""

    code: str
    message: str


@dataclass(frozen=True)
class ValueRule:
    """What a value must be; ``null`` always passes.

    Attributes:
        kind: ``"truth"``, ``"whole"`` (a whole number), ``"number"``, ``"text"``, ``"texts"`` (a list of them),
            ``"steps"`` (``eval_batch_step``), ``"options"`` (named values) or ``"any"``.
        least: the least number.
        most: the greatest number.
        above: the number must be greater than this.
        choices: the values that a text can have.
        options: name and rule of each value; the first value must be given.
    """

    kind: Kind = "any"
    least: float | None = None
    most: float | None = None
    above: float | None = None
    choices: tuple[str, ...] = ()
    options: tuple[tuple[str, ValueRule], ...] = ()

    def problem(self, value: Any) -> Problem | None:
        """Return why ``value`` cannot be used, or None if it can."""
        if value is None or self._fits(value):
            return None
        if self.kind == "options" and isinstance(value, Mapping):
            return self._option_problem(value)
        if isinstance(value, str):
            is_truth = self.kind == "truth" and value.strip().lower() in _TRUTHS
            if is_truth or self.kind in ("whole", "number") and is_number(value):
                message = f"found the text {value!r}, expected {_NAMES[self.kind]}.{_UNQUOTE}"
                return Problem("quoted_value", message)
        expected = f"found {shown(value)}, expected {self._expected()}."
        if self.kind == "text" and isinstance(value, (bool, int, float)):
            return Problem("bad_value", expected + _QUOTE)
        if self.kind == "texts" and isinstance(value, str):
            return Problem("bad_value", f"{expected} Fix: [{value}].")
        return Problem("bad_value", expected)

    def _option_problem(self, value: Mapping[str, Any]) -> Problem | None:
        rules = dict(self.options)
        for name, item in value.items():
            if name not in rules:
                return Problem("unknown_key", f"unknown key {name!r}, expected one of {', '.join(rules)}.")
            if (problem := rules[name].problem(item)) is not None:
                return Problem(problem.code, f"{name}: {problem.message}")
        needed = self.options[0][0]
        return None if value.get(needed) is not None else Problem("bad_value", f"{needed} is missing.")

    def _fits(self, value: Any) -> bool:
        if self.kind == "truth":
            return isinstance(value, bool)
        if self.kind == "text":
            return isinstance(value, str) and (not self.choices or value in self.choices)
        if self.kind == "texts":
            return isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)
        if self.kind == "steps":
            pair = value if isinstance(value, (list, tuple)) else (0, value)
            whole = all(isinstance(number, int) and not isinstance(number, bool) for number in pair)
            return len(pair) == 2 and whole and pair[0] >= 0 and pair[1] >= 1
        if self.kind == "options":
            return isinstance(value, Mapping) and self._option_problem(value) is None
        types = int if self.kind == "whole" else (int, float)
        return self.kind == "any" or (
            isinstance(value, types)
            and not isinstance(value, bool)
            and math.isfinite(value)
            and (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
        )

    def _expected(self) -> str:
        """Return what the value must be, for a message."""
        if self.options:
            return f"a mapping of {', '.join(name for name, _ in self.options)}"
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        if self.above is not None:
            most = "" if self.most is None else f" and at most {self.most}"
            return f"{_NAMES[self.kind]} greater than {self.above}{most}"
        if self.most is not None:
            return f"{_NAMES[self.kind]} between {self.least} and {self.most}"
        return _NAMES[self.kind] + ("" if self.least is None else f" of at least {self.least}")


def is_number(text: str) -> bool:
    """Return True if a text reads as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def shown(value: Any) -> str:
    """Return a value as it is written in a config."""
    return repr(plain_copy(value))


AUTO = "auto"  # see `inference.runners.engine_of`
PADDLE = "paddle"
ONNXRUNTIME = "onnxruntime"
OPENVINO = "openvino"
NETWORK = "network"  # no engine: the network itself computes
ENGINES = (AUTO, PADDLE, ONNXRUNTIME, OPENVINO, NETWORK)  # what can compute a network
FLOAT32 = "float32"
BFLOAT16 = "bfloat16"
DTYPES = (FLOAT32, BFLOAT16)  # types of the products in a compiled network


@dataclass(frozen=True, kw_only=True)
class GlobalKey(ValueRule):
    """A key of ``Global``.

    Attributes:
        meaning: description in one line.
        default: the value if the key is missing or ``null``.
        filled: whether the default is written into the config of a run, since PaddleOCR reads it there.
    """

    meaning: str
    default: Any = None
    filled: bool = False


def _truth(meaning: str, default: bool | None = False, filled: bool = False) -> GlobalKey:
    return GlobalKey(kind="truth", meaning=meaning, default=default, filled=filled)


def _whole(meaning: str, default: int | None = None, filled: bool = False) -> GlobalKey:
    return GlobalKey(kind="whole", least=1, meaning=meaning, default=default, filled=filled)


def _text(meaning: str, default: str | None = None, filled: bool = False) -> GlobalKey:
    return GlobalKey(kind="text", meaning=meaning, default=default, filled=filled)


def _choice(meaning: str, default: str, *choices: str) -> GlobalKey:
    return GlobalKey(kind="text", meaning=meaning, default=default, choices=choices)


def _any(meaning: str) -> GlobalKey:
    return GlobalKey(meaning=meaning)


_OURS = {
    "seed": GlobalKey(
        kind="whole",
        least=0,
        most=2**32 - 1,  # the highest seed of NumPy's generator
        default=1024,
        meaning="seed of weights, shuffling, augmentation and drawn images",
    ),
    "plugins": GlobalKey(kind="texts", meaning="Python modules to import, which register their components"),
    "strict": _truth("an unusable sample, or a warning of the config check, ends the run"),
    "max_unusable": GlobalKey(
        kind="number",
        least=0,
        most=1,
        default=0.1,
        meaning="the share of unusable samples that a run accepts",
    ),
    "unknown_char": _choice(
        "skip the sample with a character outside the dictionary, or only that character, or `map` it to "
        "`unknown_symbol`",
        "drop_line",
        "drop_line",
        "drop_char",
        "map",
    ),
    "unknown_symbol": _text(
        "with `unknown_char: map`, the line of the dictionary for all unknown characters"
    ),
    "text_direction": GlobalKey(
        kind="text",
        choices=TEXT_DIRECTIONS,
        meaning="the order of labels and texts. `left_to_right`: that of the image; nothing is turned. "
        "`right_to_left`: labels are stored as they are read; they are turned to be encoded, and texts turned back. "
        "`right_to_left_visual`: labels are stored from the left of the image to its right; only texts are turned, and "
        "labels to be compared with them, as for PaddleOCR's Arabic models. Default: the last if `character_dict_path` "
        "has `arabic` as it is written, else `left_to_right`",
    ),
    "turn_tall_images": _truth(
        "turn an image that is at least 1.5 times as high as wide by 90° to the left, as PaddleOCR's and RapidOCR's "
        "clients do before they read it: in training, evaluation, `predict` and exports"
    ),
    "min_text_length": _whole("the shortest label; shorter ones are unusable"),
    "pretrained_partial": _truth("accept weights with missing entries or other shapes"),
    "freeze": GlobalKey(
        kind="texts", meaning="patterns of parameters that are not trained, such as `backbone.*`"
    ),
    "official_weights": _any(
        "digests of official weights, written by a run; others of that name are refused"
    ),
    "save_teacher": _truth("write frozen sub-models into checkpoints too"),
    "allow_untrained_teacher": _truth(
        "train with a frozen sub-model that has no weights, or cannot read `Train`"
    ),
    "return_feats": _truth("CTC heads of all models return their features too"),
    "allow_outside_data_dir": _truth("accept images outside `dataset.data_dir`"),
    "max_image_pixels": _whole("an image with more pixels is unusable", MAX_IMAGE_PIXELS),
    "allow_different_preprocessing": _truth("accept an Eval that prepares images differently from Train"),
    "dry_step": _truth("run one step on two samples first, to find parts that do not fit", True),
    "nonfinite": _choice(
        "at a bad value: stop, or skip the step",
        "stop",
        "stop",
        "skip",
    ),
    "nonfinite_limit": _whole("steps skipped in a row, after which the next bad value stops the run", 3),
    "absurd_input": GlobalKey(
        kind="number",
        least=0,
        default=100.0,
        meaning="a batch with a greater absolute value is bad, as if it were not finite; 0: no limit",
    ),
    "absurd_variance": GlobalKey(
        kind="number",
        least=0,
        default=10000.0,
        meaning="so is one with a BatchNorm variance above so many times the running one, from step 51 on; 0: no limit",
    ),
    "detect_anomaly": _truth("check every operator, and name the first whose result is not finite; slow"),
    "accumulate": _whole("batches for one step of the optimizer", 1),
    "recompute": _truth("compute activations again in the backward pass: less memory, more time"),
    "ema": GlobalKey(
        kind="number",
        least=0,
        most=0.999999,
        meaning="evaluate an average of the weights over the steps, with this decay",
    ),
    "early_stop": GlobalKey(
        kind="options",
        options=(
            ("patience", ValueRule("whole", least=1)),
            ("min_delta", ValueRule("number", least=0)),
        ),
        meaning="finish after `patience` evaluations in a row that are not better than the best by more than "
        "`min_delta` (0)",
    ),
    "on_collapse": _choice("warn of a training that has collapsed, or stop it", "warn", "warn", "stop"),
    "teacher_engine": _choice(
        "what computes the frozen networks on a CPU: for much work `openvino` if it is installed, else `paddle`; for "
        "little the network with fused convolutions; always the named engine; or the `network` itself",
        AUTO,
        *ENGINES,
    ),
    "teacher_dtype": _choice(
        "type of the products in a compiled frozen network; `bfloat16` is faster where the processor has it",
        FLOAT32,
        *DTYPES,
    ),
    "eval_engine": _choice(
        "the same for the networks of `eval`, `export-center` and `predict`; in a training, the network evaluates",
        AUTO,
        *ENGINES,
    ),
    "report": _truth("write `report.html` at the end of a run", True),
}

_RUN = {
    "epoch_num": _whole("epochs of the run", 1, filled=True),
    "save_model_dir": _text("the run folder", "./output/run", filled=True),
    "character_dict_path": _text("the dictionary, one character on each line"),
    # filled, since the host's encoders and decoders have different defaults
    "use_space_char": _truth("the space is a character too", filled=True),
    "max_text_length": _whole("the longest label, with NRTR's two marks", 25),
    "pretrained_model": _text("weights to start from"),
    "checkpoints": _text("checkpoint to resume from"),
    "print_batch_step": _whole(
        "steps between two lines on the screen and in `metrics.jsonl`", 10, filled=True
    ),
    "eval_batch_step": GlobalKey(
        kind="steps",
        default=[0, 2000],
        filled=True,
        meaning="steps between two evaluations, or first and every",
    ),
    "eval_batch_epoch": _whole("epochs between two evaluations; replaces `eval_batch_step`"),
    "eval_at_start": _truth(
        "evaluate weights that a run starts from before its first step, as step 0; always with `Eval.general`",
        True,
    ),
    "save_epoch_step": _whole(  # so many that only `latest` and `best_accuracy` are written
        "epochs between two checkpoints `iter_epoch_N`", 1_000_000, filled=True
    ),
    "save_minutes": GlobalKey(
        kind="number",
        least=0,
        default=10,
        meaning="minutes between two saves of `latest`, besides those at the end of an epoch; 0: none",
    ),
    "keep_last": _whole("newest checkpoints `iter_epoch_N` that stay; all without it"),
    "log_smooth_window": _whole("steps of the median in PaddleOCR's log", 20, filled=True),
    "calc_epoch_interval": _whole("epochs between two metrics on training batches"),
    "cal_metric_during_train": _truth("compute the metric on training batches too"),
    "print_mem_info": _truth("print the GPU memory in use", None),
    "log_grad_norm": _truth("log the norm of the gradients", None),
    "to_static": _truth("compile the network"),
    "d2s_train_image_shape": _any("`[C, H, W]` of the images, for `to_static`"),
    "use_sync_bn": _truth("BatchNorm over all processes"),
    "find_unused_parameters": _truth("option of `paddle.DataParallel`, with several processes"),
    "distributed": _truth("True with several processes; the program sets it", None),
    "log_ranks": _any("processes that write a log"),
    "training_step": _any("stage of VisionLAN's training"),
    "uniform_output_enabled": _truth("export the best checkpoint at the end of the run"),
    "save_inference_dir": _text("folder of `export` without `--output`"),
    "pdx_model_name": _text("name of the exported model for PaddleOCR 3.x"),
    "model_name": _text("the same; `pdx_model_name` comes first"),
    "profiler_options": _any("does nothing here; write it at the top of the config"),
    "debug": _truth("does nothing", None),
}

_PRECISION = {
    "use_amp": _truth("mixed precision; does nothing on a CPU"),
    "amp_level": _choice("level of mixed precision", "O2", "O0", "OD", "O1", "O2"),
    "amp_dtype": _choice("type of mixed precision", "float16", "float16", "bfloat16"),
    "scale_loss": GlobalKey(
        kind="number", above=0, default=1.0, meaning="first factor of the loss in mixed precision"
    ),
    "use_dynamic_loss_scaling": _truth("adapt that factor to the gradients"),
    "amp_custom_black_list": GlobalKey(kind="texts", meaning="operators that stay in float32"),
    "amp_custom_white_list": GlobalKey(kind="texts", meaning="operators that run in 16 bits"),
}

DEVICES = ("gpu", "xpu", "npu", "mlu", "gcu")  # those that a key `use_…` switches on
_DEVICES_AND_WRITERS = {
    "use_gpu": _truth("train on a GPU"),
    "use_xpu": _truth("train on a Kunlun XPU"),
    "use_npu": _truth("train on an Ascend NPU"),
    "use_mlu": _truth("train on a Cambricon MLU"),
    "use_gcu": _truth("train on an Enflame GCU"),
    "use_tensorboard": _truth("write for TensorBoard"),
    "use_visualdl": _truth("write for VisualDL"),
    "use_wandb": _truth("write for Weights & Biases, as a section `wandb` does", None),
}

# Keys that transforms, decoders, networks of plugins, or PaddleOCR's scripts for inference and export read.
_PASSED_ON = {
    "infer_mode": _any("of inference"),
    "infer_img": _any("of inference"),
    "infer_list": _any("of inference"),
    "infer_visual_type": _any("of inference"),
    "save_res_path": _any("of inference"),
    "save_visual": _any("of inference"),
    "export_with_pir": _any("of PaddleOCR's export; does nothing here"),
    "hpi_config_path": _any("of PaddleOCR's export; does nothing here"),
    "character_type": _any("of old configs; does nothing"),
    "rec_char_dict_path": _any("tokenizer of a formula recogniser"),
    "max_seq_len": _any("longest formula"),
    "max_new_tokens": _any("longest formula"),
    "input_size": _any("image size of a formula recogniser"),
    "allow_resize_largeImg": _any("of a formula recogniser"),
    "start_ema": _any("of a formula recogniser"),
    "handle_mismatch": _any("of a formula recogniser"),
    "rm_symbol": _any("decoders of SAR and SATRN leave punctuation out"),
    "lower": _any("encoders put labels into lower case"),
    "num_heads": _any("attention heads of SRN's transform"),
    "use_beam_search": _any("of decoders with beam search"),
    "beam_width": _any("of decoders with beam search"),
    "return_all_beams": _any("of decoders with beam search"),
    "class_path": _any("classes of key information extraction"),
    "kie_rec_model_dir": _any("of key information extraction"),
    "kie_det_model_dir": _any("of key information extraction"),
}

GLOBAL_KEYS: dict[str, GlobalKey] = {**_OURS, **_RUN, **_PRECISION, **_DEVICES_AND_WRITERS, **_PASSED_ON}
FILLED_DEFAULTS = {f"Global.{name}": key.default for name, key in GLOBAL_KEYS.items() if key.filled}


class Settings:
    """Values of ``Global``: each attribute is the key with its name; docs/reference.md describes the keys.

    A missing key has the default in ``GLOBAL_KEYS``. A value is checked only when it is read, so that a wrong value
    does not hide other issues of a config.

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
    text_direction: str | None
    turn_tall_images: bool
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
