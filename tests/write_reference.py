"""Write docs/reference.md from the code: `python tests/write_reference.py`. tests/test_reference.py compares it.

Keys of `Global` come from their table, components from signatures and docstrings, commands from their parsers, files
from the docstring of the module that reads them.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from ppocr_ext.cli.main import COMMANDS, build_parser, import_command
from ppocr_ext.config.global_keys import GLOBAL_KEYS, GlobalKey, ValueRule
from ppocr_ext.modeling.necks import ENCODERS
from ppocr_ext.registry import BY_KIND
from ppocr_ext.report import run_folder
from ppocr_ext.synth.lines import LineStyle

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference.md"
INTRO = """# Reference

`python tests/write_reference.py` writes this page from the code.

- [Keys of `Global`](#keys-of-global)
- Components: [architectures](#architectures), [transforms](#transforms), [backbones](#backbones), [necks](#necks),
  [heads](#heads), [losses](#losses), [optimizers](#optimizers), [schedules](#schedules), [metrics](#metrics),
  [datasets](#datasets)
- [Commands](#commands), [files of a run](#files-of-a-run), [Python](#python)

A config names a component with the key `name` and gives the component's keys beside it. "required" means that there is
no default. A name that is not on this page comes from the host, if the host has it (`ppocr-ext doctor --components`
lists both), or from `Global.plugins`. Datasets, samplers and their transforms that are not here
are the host's.

## Keys of `Global`

`ppocr-ext config --check` compares each value with this table. `null` and a missing key stand for the default.
PaddleOCR's transforms and decoders receive all of `Global`; a key with an empty column "values" is passed to them
unchecked.
"""
PYTHON = """## Python

Build single components from a config, or train a whole run:

```python
from ppocr_ext.charset import Charset
from ppocr_ext.config import load, with_class_counts
from ppocr_ext.loop.session import train
from ppocr_ext.losses import build_loss
from ppocr_ext.modeling import build_model

charset = Charset.from_file("data/captcha/dict.txt")
config = with_class_counts(load(["configs/quickstart/teacher.yml"]), charset)
model = build_model(config["Architecture"])
loss = build_loss(config["Loss"])

outcome = train(load(["configs/quickstart/teacher.yml", "lines.yml"]))
print(outcome.status, outcome.best)
```

None of these functions changes its arguments. `train(config, hooks=[…])` accepts hooks of your own. A hook is a
subclass of `ppocr_ext.loop.events.Hook`; its methods are called at each step, evaluation, checkpoint and epoch.

### Public names

The [changelog](changelog.md#what-is-public) says which versions may change them. All others may change without notice.

| module | names |
|---|---|
"""
COMMANDS_TEXT = """## Commands

`tools/NAME.py` of a clone is the same command. All commands have the option `--debug`, which shows the traceback of an
error. [Bad input](errors.md) lists the exit codes.
"""
PUBLIC = {
    "ppocr_ext": "Recognizer inspect_data",
    "ppocr_ext.charset": "Charset",
    "ppocr_ext.config": "load with_class_counts",
    "ppocr_ext.data.preflight": "check_label_files check_lmdbs",
    "ppocr_ext.data.sample_rules": "SampleRules FrameLimit",
    "ppocr_ext.losses": "Loss LossContext build_loss",
    "ppocr_ext.metrics": "build_metric",
    "ppocr_ext.modeling": "build_backbone build_head build_model build_neck",
    "ppocr_ext.modeling.features": "FeatureTap",
    "ppocr_ext.optim": "build_lr_scheduler build_optimizer",
    "ppocr_ext.recognition.ctc_text": "Character Reading",
    "ppocr_ext.registry": "BACKBONES DATASETS HEADS LOSSES METRICS NECKS OPTIMIZERS SCHEDULES TRANSFORMS",
    "ppocr_ext.loop.events": "Hook",
    "ppocr_ext.loop.session": "train",
    "ppocr_ext.synth.lines": "LineSource LineSplit LineStyle RandomTexts CorpusTexts FrequentCharacters find_fonts "
    "split_fonts",
}
KINDS = {  # kind: title, and the module whose docstring begins the section
    "architecture": ("Architectures", "modeling"),
    "transform": ("Transforms", ""),
    "backbone": ("Backbones", ""),
    "neck": ("Necks", ""),
    "head": ("Heads", ""),
    "loss": ("Losses", "losses"),
    "optimizer": ("Optimizers", "optim"),
    "schedule": ("Schedules", ""),
    "metric": ("Metrics", "metrics"),
    "dataset": ("Datasets", "synth.synthetic_dataset"),
}
GIVEN = {  # arguments that a run gives, not a config
    "transform": {"in_channels"},
    "backbone": {"in_channels"},
    "neck": {"in_channels"},
    "head": {"in_channels", "out_channels", "out_channels_list"},
    "loss": {"context", "num_classes", "feat_dim"},
    "architecture": {"config"},
    "optimizer": {"model", "learning_rate", "grad_clip", "weight_decay"},
    "schedule": {"step_each_epoch", "epochs", "last_epoch"},
    "metric": {"has_space"},
    "dataset": {"mode", "logger", "seed"},
}
EXAMPLE = re.compile(r"\n\n>>> .*\n.*")
SECTION = re.compile(r"^(Args[^\n]*|Attributes|Raises|Returns|Yields|Keys of [^\n]+):$", re.MULTILINE)
LEFT_OUT = ("Attributes", "Raises", "Returns", "Yields")
ROLE = re.compile(r":\w+:`~?([^`]+)`")
VALUE_NAMES = {
    "truth": "`bool`",
    "whole": "`int`",
    "number": "`float`",
    "text": "`str`",
    "texts": "`[str]`",
    "steps": "`int` or `[first, every]`",
    "any": "",
}


def key_table() -> str:
    """Return the table of `Global`, one row for each key."""
    rows = [
        [f"`{name}`", _values(key), _default(key.default) if key.default is not None else "", key.meaning]
        for name, key in GLOBAL_KEYS.items()
    ]
    return _table(["key", "values", "default", "meaning"], rows)


def component(kind: str, name: str, build: object) -> str:
    """Return the section of a component: what its docstring says, and its keys with their defaults."""
    text, _ = _docstring(inspect.getdoc(build) or "")
    meanings: dict[str, str] = {}
    options = getattr(build, "OPTIONS", build)
    for base in reversed(inspect.getmro(options) if inspect.isclass(options) else (options,)):
        meanings |= _meanings(base) if base.__module__.startswith("ppocr_ext.") else {}
    rows = [
        [
            f"`{key}`",
            "required" if each.default is each.empty else _default(each.default),
            meanings.get(key, ""),
        ]
        for key, each in inspect.signature(options).parameters.items()
        if key not in GIVEN.get(kind, set()) and each.kind is not each.VAR_KEYWORD
    ]
    table = _table(["key", "default", "meaning"], rows) if any(row[2] for row in rows) else ""
    if rows and not table:
        table = f"Keys: {', '.join(f'{key} ({default})' for key, default, _ in rows)}."
    return "\n\n".join(part for part in (f"### {name}" if name else "", text, table) if part)


def _meanings(build: object) -> dict[str, str]:
    """Return what the docstring says of each key, but for keys that it leaves to the base class."""
    _, sections = _docstring(inspect.cleandoc(build.__doc__ or ""))
    return {
        key: meaning
        for title, rows in sections
        if title.startswith("Args")
        for key, meaning in rows
        if not meaning.startswith(("as in ", "likewise"))
    }


def command(name: str) -> str:
    """Return the section of a command: what it does, and its options."""
    tables = list(_options(build_parser(name, import_command(name)), f"ppocr-ext {name}"))
    return "\n\n".join([f"### ppocr-ext {name}", _sentence(COMMANDS[name]), *tables])


def _options(parser: argparse.ArgumentParser, words: str) -> Iterator[str]:
    """Yield a table of the options of a parser, and of each of its commands."""
    rows = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, each in action.choices.items():
                yield f"`{words} {name}`:"
                yield from _options(each, f"{words} {name}")
        elif action.help is not argparse.SUPPRESS and action.dest not in ("help", "debug"):
            text = (action.help or "").replace("%(default)s", str(action.default)).replace("%%", "%")
            rows.append([f"`{_form(action)}`", text])
    if rows:
        yield _table(["option", "meaning"], rows)


def _form(action: argparse.Action) -> str:
    """Return an option as one writes it, such as `--out DIR`."""
    value = "" if action.nargs == 0 else action.metavar or action.dest.upper()
    value = " ".join(value) if isinstance(value, tuple) else value
    value = "|".join(map(str, action.choices)) if action.choices else value
    return " ".join(part for part in (", ".join(action.option_strings), value) if part)


def page() -> str:
    """Return the whole page."""
    modules = {name: importlib.import_module(f"ppocr_ext.{name}") for _, name in KINDS.values() if name}
    parts = [INTRO, key_table()]
    for kind, (title, name) in KINDS.items():
        registry = BY_KIND[kind]
        parts += [f"## {title}", *(_module_text(modules[name]) if name else ())]
        ours = ((name, registry.get(name)) for name in registry.names())  # not those of a test's plugin
        parts += [
            component(kind, name, build) for name, build in ours if build.__module__.startswith("ppocr_ext.")
        ]
        if kind == "neck":
            parts += [component(kind, f"Encoder {name}", build) for name, build in ENCODERS.items() if build]
    parts += [component("dataset", "Keys of `style`", LineStyle), COMMANDS_TEXT, *map(command, COMMANDS)]
    parts += ["## Files of a run", *_module_text(run_folder)]
    names = [
        f"| `{module}` | {', '.join(f'`{name}`' for name in names.split())} |"
        for module, names in PUBLIC.items()
    ]
    parts.append(PYTHON + "\n".join(names))
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _module_text(module: ModuleType) -> Iterator[str]:
    """Yield what the docstring of a module says behind its first paragraph, and its tables of keys."""
    text, sections = _docstring(inspect.getdoc(module) or "")
    yield text.partition("\n\n")[2]
    for title, rows in sections:
        yield f"### {title}\n\n{_table(['key', 'meaning'], _joined(rows))}"


def _joined(rows: list[tuple[str, str]]) -> list[list[str]]:
    """Return the rows with the keys that share a meaning in one."""
    meanings = {meaning: [key for key, other in rows if other == meaning] for _, meaning in rows}
    return [[", ".join(f"`{key}`" for key in keys), meaning] for meaning, keys in meanings.items()]


def _docstring(text: str) -> tuple[str, list[tuple[str, list[tuple[str, str]]]]]:
    """Return the prose of a docstring without its example, and its sections: title and rows of name and meaning."""
    text = EXAMPLE.sub("", text)
    text = ROLE.sub(lambda found: f"`{found[1].rpartition('.')[2]}`", text).replace("``", "`")
    first, *rest = SECTION.split(text)
    sections = []
    for title, body in zip(rest[::2], rest[1::2], strict=True):
        if title in LEFT_OUT:
            continue
        entries = re.split(r"\n(?=    \S)", body.split("\n\n\n")[0].rstrip())
        rows = []
        for entry in entries:
            names, _, meaning = " ".join(entry.split()).partition(": ")
            rows += [(name.strip("* "), meaning) for name in names.split(",") if meaning]
        sections.append((title, rows))
    return first.strip(), sections


def _values(key: GlobalKey) -> str:
    if key.choices:
        return ", ".join(f"`{choice}`" for choice in key.choices)
    if key.options:
        return ", ".join(f"`{name}`: {_range(rule)}" for name, rule in key.options)
    return _range(key)


def _range(rule: ValueRule) -> str:
    name = VALUE_NAMES[rule.kind]
    if rule.most is not None:
        return f"{name} {rule.least}–{rule.most}"
    if rule.above is not None:
        return f"{name} > {rule.above}"
    return name if rule.least is None else f"{name} ≥ {rule.least}"


def _default(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, str | list | tuple | dict) and not value:
        return "empty"
    if not isinstance(value, str | list | tuple | int | float):
        return "see the text"
    if isinstance(value, str):
        return f"`{value}`"
    return f"`{json.dumps(value, default=str)}`"


def _table(head: list[str], rows: list[list[str]]) -> str:
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *escaped])


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
