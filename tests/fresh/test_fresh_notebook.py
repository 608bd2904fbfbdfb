"""The notebook, run from its first cell in a kernel whose environment has neither ppocr-ext nor Paddle."""

from __future__ import annotations

import base64
import csv
import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest
from notebook_cells import NOTEBOOK, with_settings

pytestmark = pytest.mark.fresh
MINUTES = 1.2  # three epochs for each network


def test_the_notebook_installs_distils_exports_and_reads(clone: Path, tmp_path: Path) -> None:
    import nbclient
    import nbformat

    assert importlib.util.find_spec("ppocr_ext") is importlib.util.find_spec("paddle") is None
    book = nbformat.read(NOTEBOOK, as_version=4)
    settings = next(cell for cell in book.cells if cell.source.startswith("SOURCE = "))
    settings.source = with_settings(settings.source, SOURCE=str(clone), MINUTES=MINUTES)
    folder = tmp_path / "notebook"
    folder.mkdir()
    nbclient.NotebookClient(book, timeout=900, resources={"metadata": {"path": str(folder)}}).execute()

    outputs = [output for cell in book.cells if cell.cell_type == "code" for output in cell.outputs]
    assert {output.output_type for output in outputs} == {"stream", "display_data"}
    assert set(shown(outputs, "image/png")) == {
        (folder / name).read_bytes() for name in ("data/samples.png", "worst.png")
    }
    (curves,) = shown(outputs, "image/svg+xml")
    written = (folder / "report_curves.svg").read_text(encoding="utf-8")
    assert curves.count('class="line"') == written.count('class="line"') > 4
    for run in ("teacher", "student"):
        losses = losses_of(folder / "output" / run)
        assert losses[-1] < losses[0] / 2, (run, losses)

    with (folder / "val.tsv").open(encoding="utf-8", newline="") as file:
        network = {row["image"]: row for row in csv.DictReader(file, delimiter="\t")}
    assert len(network) == 300
    texts = {row["prediction"] for row in network.values()}
    assert len(texts) > 150  # it reads, so equal texts are not all empty
    table = printed(book.cells[-2])
    assert "equal texts: 300 of 300" in table
    rows = re.findall(r"^(val/\S+) +(\d+) +(\d*) +(\d*)$", table, re.MULTILINE)
    assert len(rows) == 12
    for image, label, of_network, of_onnx in rows:
        assert (label, of_network) == (network[image]["label"], network[image]["prediction"])
        assert of_onnx == of_network


def shown(outputs: list[Any], kind: str) -> list[Any]:
    """Return the pictures of a kind that cells display: the bytes of a PNG, the text of an SVG."""
    found = [output.data[kind] for output in outputs if kind in output.get("data", {})]
    return [base64.b64decode(each) if kind == "image/png" else each.strip() for each in found]


def printed(cell: Any) -> str:
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")


def losses_of(run: Path) -> list[float]:
    lines = map(json.loads, (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return [line["loss"] for line in lines if line["kind"] == "train"]
