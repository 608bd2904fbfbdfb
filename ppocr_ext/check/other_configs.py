"""Recognise configs of other programs and tasks, of which a list of wrong keys would say nothing useful."""

from __future__ import annotations

from contextlib import suppress

from ppocr_ext.config import Config
from ppocr_ext.errors import ConfigError
from ppocr_ext.issues import Issue

_START = (
    "Fix: start from a recognition config, such as configs/pp-ocr/v5_mobile.yml, and put your data in it."
)
# The keys that tell a config of another program, and what it is.
_OTHERS = (
    (
        ("Architecture.Encoder", "Architecture.Decoder"),
        f"this is a config of OpenOCR, which builds other networks. {_START}",
    ),
    (
        ("LRScheduler",),
        f"this is a config of a program for PyTorch, such as PytorchOCR: its schedule is `LRScheduler`, that of "
        f"PaddleOCR `Optimizer.lr`. {_START}",
    ),
    (
        ("Det", "Rec"),
        "this is for a program that finds and reads text: `Det` and `Rec` are nested in it. Fix: train with a file "
        "that has the sections of the recogniser (Global, Architecture, Train, …) at its top.",
    ),
    (
        ("PreProcess.transform_ops", "PostProcess"),
        f"these are the settings of an exported model, not of a training. {_START}",
    ),
    (
        ("SubModules",),
        f"this is a pipeline of PaddleX, which trains nothing. {_START}",
    ),
    (
        ("Global.dataset_dir", "Global.model"),
        f"this is a config of PaddleX, which has the config of PaddleOCR inside. {_START}",
    ),
)
_TASKS = {
    "det": "text detection",
    "sr": "super-resolution",
    "cls": "classification",
    "kie": "key information extraction",
    "table": "table recognition",
    "e2e": "end-to-end reading",
}
_TASK = "Architecture.model_type"


def other_config(config: Config) -> Issue | None:
    """Return the issue that a config is of another program or task; None for a config of a recogniser."""
    found = [
        (keys[0], message)
        for keys, message in _OTHERS
        if all(_value(config, key) is not None for key in keys)
    ]
    if (task := _TASKS.get(str(_value(config, _TASK)))) is not None:
        found.append((_TASK, f"this is a config for {task}; ppocr-ext trains recognisers (`rec`). {_START}"))
    return next(
        (Issue("other_config", "error", key, config.place(key).text, text) for key, text in found), None
    )


def _value(config: Config, key: str) -> object:
    with suppress(ConfigError):
        return config.at(key, None)
    return None
