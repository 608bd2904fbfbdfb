"""Write the model card, ``README.md`` of an exported folder."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import paddle

from ppocr_ext import __version__
from ppocr_ext.checkpoint.checkpoints import Checkpoint
from ppocr_ext.checkpoint.contents import checkpoint_line, own_metrics
from ppocr_ext.config import Config, named_items
from ppocr_ext.export import clients
from ppocr_ext.export.verify import Comparison
from ppocr_ext.inference.formats import FORMATS, MODEL_FILE
from ppocr_ext.inference.runners import GRAPH, ONNX
from ppocr_ext.io.atomic import write_text
from ppocr_ext.io.image_pixels import TALL
from ppocr_ext.io.resources import file_digest
from ppocr_ext.recognition.exported import FORMAT
from ppocr_ext.recognition.images import WidthPolicy
from ppocr_ext.report.page_template import finite_number
from ppocr_ext.report.run_folder import lookup, read_record
from ppocr_ext.run.recogniser import TrainedRecogniser

CARD_FILE = "README.md"
_FILES = {
    **{file: what for form in FORMATS.values() for file, what in form.files.items()},
    "inference.yml": "pre-processing and dictionary, for PaddleOCR 3.x",
    "charset.txt": "the dictionary: class 1 on the first line, and so on; the blank is class 0",
    "model.json": "all facts of this page, for programs",
}


def write_card(folder: Path, name: str, description: Description, sizes: Mapping[str, int]) -> None:
    """Write the card.

    Args:
        folder: the folder of the export.
        name: the name of the published folder, for the lines of code.
        description: the description of the model.
        sizes: bytes of each file.
    """
    warning = clients.width_warning(description.policy)
    if description.policy.turns:
        warning += (
            f" Images that are at least {TALL} times as high as wide are turned by 90° to the left: the clients do so "
            f"after they detect text, but not if they only read."
        )
    if description.width is not None:
        warning += f" The graph takes only inputs of width {description.width}, and fails on others."
    parts = [
        f"# {description.model_name}: a text recogniser",
        f"Written by `ppocr-ext export` {__version__}.",
        _table(_facts(description)),
        "## Width of the input",
        warning,
        "## Compared with the trained network",
        *_compared(description.comparisons),
        "## Read an image",
        "Run these lines in the parent folder of this one, with the path of your image in place of `IMAGE`.",
        *_lines(name, description, sizes),
        "## Files",
        _table(
            {
                f"`{file}`": f"{_FILES[file]} ({size:,} bytes)"
                for file, size in sizes.items()
                if file in _FILES
            }
        ),
    ]
    write_text(folder / CARD_FILE, "\n\n".join(parts) + "\n")


def _table(rows: Mapping[str, str]) -> str:
    body = [f"| {key} | {value.replace('|', chr(92) + '|')} |" for key, value in rows.items() if value]
    return "\n".join(["| | |", "|---|---|", *body])


def _facts(description: Description) -> dict[str, str]:
    policy = description.policy
    trained = description.trained
    characters = trained.charset.characters
    sub_model = f", sub-model {trained.sub_model}" if trained.sub_model else ""
    data = _data(description.config, trained.weights.parent)
    names = {
        "acc": "accuracy",
        "norm_edit_dis": "1 - normalised edit distance",
        "best_epoch": "epoch",
        "share": "part of the way",
    }
    metric = [f"{names.get(name, name)} {value:.4g}" for name, value in _metric(trained.weights).items()]
    return {
        "network": f"{_network(trained.config)}; {description.parameters:,} parameters",
        "input": f"`x`: float32 [batch, 3, {policy.image_shape[1]}, {description.width or 'width'}], {policy.color}",
        "output": f"probabilities, float32 [batch, frames, {trained.charset.ctc_classes}]",
        "characters": f"{len(characters):,}{', with the space' if trained.charset.has_space else ''}",
        "weights": f"{description.weights}{sub_model}",
        "checkpoint": checkpoint_line(trained.weights, description.weights.removesuffix(".pdparams")),
        "on the data of Eval": ", ".join(metric),
        "training data": data.get("Train", ""),
        "evaluation data": data.get("Eval", ""),
        "recipe": _recipe(description.config),
    }


def _compared(comparisons: Sequence[Comparison]) -> list[str]:
    """Return a table of the forms, and what their differences are to be compared with."""
    facts = comparisons[0]
    return [
        _table({f"`{each.name}`": str(each).partition(": ")[2] for each in comparisons}),
        f"On this machine, rounding alone changes the network's own probabilities by {facts.limits.noise:.1e}. Its two "
        f"most probable classes differ by at least {facts.margin:.1e} in each frame.",
    ]


def _lines(name: str, description: Description, sizes: Mapping[str, int]) -> list[str]:
    """Return headings and code for each client that can read the files."""
    policy = description.policy
    model = description.model_name
    turns = description.trained.charset.turns_texts
    code = {"ppocr-ext": clients.recognizer_lines(name)}
    if GRAPH in sizes:
        code["PaddleOCR 3.7, shell"] = clients.shell_command(name, model, policy)
        code["PaddleOCR 3.7, Python"] = clients.python_lines(name, model, policy)
    if ONNX in sizes:
        code |= {
            "PaddleOCR 3.7 with ONNX Runtime, shell": clients.shell_command(
                name, model, policy, "onnxruntime"
            ),
            "PaddleOCR 3.7 with ONNX Runtime, Python": clients.python_lines(
                name, model, policy, "onnxruntime"
            ),
            "RapidOCR 3.10": clients.rapidocr_lines(name, policy, turns),
            "ONNX Runtime": clients.onnxruntime_lines(name, policy, turns),
            "PaddleOCR 2.10": clients.paddleocr2_lines(name, policy, turns),
        }
    parts = [
        f"### {heading}\n\n```{'bash' if heading.endswith('shell') else 'python'}\n{lines}\n```"
        for heading, lines in code.items()
    ]
    note = (
        "Give PaddleOCR 3.7 and RapidOCR one image at a time (`batch_size=1`). They pad a batch to its widest image, "
        "which can change the texts: of 500 text lines of mixed width, another model read 67 differently in PaddleOCR "
        "3.7 with `batch_size=8` (pytest -m clients tests/clients)."
    )
    return [*parts, note] if policy.kind != "squash" else parts


@dataclass(frozen=True, kw_only=True)
class Description:
    """The facts about an exported model.

    Attributes:
        config: the config of the training, with all sub-models.
        trained: the recogniser.
        parameters: the number of parameters of the exported network.
        model_name: the name for PaddleOCR's 3.x client.
        policy: prepares the images.
        width: the only width that the graph takes; None for every width.
        comparisons: a comparison with the network for each form, at least one.
    """

    config: Config
    trained: TrainedRecogniser
    parameters: int
    model_name: str
    policy: WidthPolicy
    width: int | None
    comparisons: Sequence[Comparison]

    @property
    def weights(self) -> str:
        """Name of the file of the weights, with its folder."""
        return "/".join(self.trained.weights.parts[-2:])

    def write(self, folder: Path, files: Sequence[str]) -> None:
        """Write ``model.json`` into ``folder``, with sizes and digests of ``files`` there."""
        charset = self.trained.charset
        content = {
            "format": FORMAT,
            "created_by": f"ppocr-ext {__version__}",
            "model_name": self.model_name,
            "image_shape": list(self.policy.image_shape),
            "width_policy": self.policy.to_json(),
            "text_direction": charset.direction,
            "width": "dynamic" if self.width is None else self.width,
            "classes": charset.ctc_classes,
            "dictionary": {
                "digest": charset.digest,
                "use_space_char": charset.use_space,
                "unknown_symbol": charset.unknown_symbol or None,
                "drops_unknown": charset.drops_unknown,
                "folds_case": charset.folds_case,
            },
            "files": {
                name: {"sha256": file_digest(folder / name), "bytes": (folder / name).stat().st_size}
                for name in files
            },
            "source": {
                "weights": self.weights,
                "digest": file_digest(self.trained.weights),
                "sub_model": self.trained.sub_model,
            },
            "metric": _metric(self.trained.weights) or None,
            "comparison": {
                "noise": self.comparisons[0].limits.noise,
                "least_margin": self.comparisons[0].margin,
                "images": self.comparisons[0].images,
                "largest_difference": {each.name: each.largest for each in self.comparisons},
                "different_texts": {each.name: each.different for each in self.comparisons},
            },
            "parameters": self.parameters,
            "versions": {
                "ppocr_ext": __version__,
                "paddle": paddle.__version__,
                "python": platform.python_version(),
            },
        }
        write_text(folder / MODEL_FILE, json.dumps(content, ensure_ascii=False, indent=2) + "\n")


def _network(config: Config) -> str:
    """Return ``SVTRv2, MultiHead (CTCHead, NRTRHead)``."""
    head = config.at("Architecture.Head.name", default="?")
    branches = ", ".join(name for name, _ in named_items(config, "Architecture", "Head", "head_list"))
    names = [config.at(f"Architecture.{part}.name", default=None) for part in ("Backbone", "Neck")]
    return ", ".join([*filter(None, names), f"{head} ({branches})" if branches else str(head)])


def _metric(weights: Path) -> dict[str, float]:
    """Return the metric of these weights; empty if they were not evaluated."""
    metrics = own_metrics(weights.stem, Checkpoint(weights).train_state())
    return {name: float(value) for name, value in metrics.items() if name not in ("fps", "step")}


def _recipe(config: Config) -> str:
    """Return a line about losses, teacher and optimizer of the training; empty without a loss."""
    losses = [
        f"{name} {config.at((*path, 'weight'), default=1.0)}"
        for name, path in named_items(config, "Loss", "loss_config_list")
    ] or [str(config.at("Loss.name", default=""))]
    models = config.at("Architecture.Models", default=None) or {}
    teachers = [f"taught by {name}" for name, model in models.items() if model.get("freeze_params")]
    optimizer = [str(config.at("Optimizer.name", default=""))]
    rate = config.at("Optimizer.lr.learning_rate", default=None)
    epochs = config.settings.epoch_num
    optimizer += [f"learning rate {rate}"] * (rate is not None) + [f"{epochs} epochs"] * (epochs is not None)
    parts = [", ".join(part) for part in (losses, teachers, optimizer) if any(part)]
    return "; ".join(parts) if any(losses) else ""


def _data(config: Config, run_folder: Path) -> dict[str, str]:
    """Return a line about the data of ``Train`` and of ``Eval``, with the samples that the run counted."""
    counts = read_record(run_folder, "preflight.json")
    data = {}
    for mode in ("Train", "Eval"):
        dataset = config.at(f"{mode}.dataset", default=None)
        if dataset is None:
            continue
        files = dataset.get("label_file_list") or ()
        names = [Path(name).name for name in ([files] if isinstance(files, str) else files)]
        count = finite_number(lookup(counts, mode, "usable"))
        parts = [str(dataset.get("name")), *names, *([] if count is None else [f"{count:,.0f} samples"])]
        data[mode] = ", ".join(parts)
    return data
