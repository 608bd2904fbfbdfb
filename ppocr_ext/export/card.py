"""Write the model card, ``README.md`` of an exported folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ppocr_ext import __version__
from ppocr_ext.engine.runners import GRAPH, ONNX
from ppocr_ext.export import clients
from ppocr_ext.export.description import Description
from ppocr_ext.export.policy_accuracy import recommended
from ppocr_ext.io.atomic import write_text

CARD_FILE = "README.md"
_FILES = {
    "inference.json": "the graph, for Paddle Inference",
    "inference.pdiparams": "its weights",
    "inference.yml": "pre-processing and dictionary, for PaddleOCR 3.x",
    "inference.onnx": "graph, weights and dictionary, for ONNX Runtime",
    "charset.txt": "the dictionary: class 1 on the first line, and so on; the blank is class 0",
    "model.json": "all facts of this page, for programs",
    "vectors.json": "images with what each step makes of them, to test a reader of your own",
}


def write_card(folder: Path, name: str, description: Description, sizes: Mapping[str, int]) -> None:
    """Write the card.

    Args:
        folder: where to.
        name: of the folder when it is published, which the lines of code use.
        description: of the model.
        sizes: bytes of each file.
    """
    policy, width = description.policy, description.width
    fixed = (
        ""
        if width is None
        else f" The graph takes only inputs of width {width}, and fails on every other one."
    )
    parts = [
        f"# {description.model_name}: a text recogniser",
        f"Written by `ppocr-ext export` {__version__}.",
        _table(_facts(description)),
        "## Width of the input",
        clients.width_warning(policy) + fixed,
        *_accuracy(description),
        "## Read an image",
        "Run these lines in the folder that holds this one, with the path of your image in place of `IMAGE`.",
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
    policy, charset = description.policy, description.charset
    of = f", sub-model {description.sub_model}" if description.sub_model else ""
    names = {"acc": "accuracy", "norm_edit_dis": "1 - normalised edit distance", "best_epoch": "epoch"}
    metric = [f"{names.get(name, name)} {value:.4g}" for name, value in description.metric.items()]
    return {
        "network": f"{description.network}; {description.parameters:,} parameters",
        "input": f"`x`: float32 [batch, 3, {policy.image_shape[1]}, {description.width or 'width'}], {policy.color}",
        "output": f"probabilities, float32 [batch, frames, {charset.ctc_classes}]",
        "characters": f"{len(charset.characters):,}{', the space among them' if charset.has_space else ''}",
        "weights": f"{description.weights}{of}",
        "checkpoint": description.checkpoint,
        "on the data of Eval": ", ".join(metric),
        "training data": description.data.get("Train", ""),
        "evaluation data": description.data.get("Eval", ""),
        "recipe": description.recipe,
    }


def _accuracy(description: Description) -> list[str]:
    """Return the accuracy under each width policy, if it was measured."""
    if not description.accuracy:
        return []
    rows = {
        f"{kind}{' (as trained)' if kind == description.policy.kind else ''}": f"{share:.2%}"
        for kind, share in description.accuracy.items()
    }
    best = recommended(description.accuracy, description.policy.kind)
    return [
        "Share of a labelled list that is read correctly, by width policy:",
        _table(rows),
        f"Recommended: {best}.",
    ]


def _lines(name: str, description: Description, sizes: Mapping[str, int]) -> list[str]:
    """Return headings and code for each client that the files suffice for."""
    policy, model = description.policy, description.model_name
    parts: list[str] = []

    def add(heading: str, code: str, language: str = "python") -> None:
        parts.extend([f"### {heading}", f"```{language}\n{code}\n```"])

    add("ppocr-ext", clients.recognizer_lines(name))
    if GRAPH in sizes:
        add("PaddleOCR 3.7, shell", clients.shell_command(name, model, policy), "bash")
        add("PaddleOCR 3.7, Python", clients.python_lines(name, model, policy))
    if ONNX in sizes:
        add(
            "PaddleOCR 3.7 with ONNX Runtime, shell",
            clients.shell_command(name, model, policy, "onnxruntime"),
            "bash",
        )
        add(
            "PaddleOCR 3.7 with ONNX Runtime, Python",
            clients.python_lines(name, model, policy, "onnxruntime"),
        )
        add("RapidOCR 3.10", clients.rapidocr_lines(name, policy))
        add("ONNX Runtime", clients.onnxruntime_lines(name, policy))
        add("PaddleOCR 2.10", clients.paddleocr2_lines(name, policy))
    note = (
        "Give PaddleOCR 3.7 and RapidOCR one image at a time (`batch_size=1`). They fill up a batch to its widest "
        "image, which changes what is read: of 500 lines of mixed width, another model read 67 differently in "
        "PaddleOCR 3.7 with `batch_size=8` (pytest -m clients tests/clients)."
    )
    return [*parts, note] if policy.kind != "squash" else parts
