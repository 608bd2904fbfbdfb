"""The guide shows the lines that an export writes into its model card."""

import re
from pathlib import Path

import pytest

from ppocr_ext.export import clients
from ppocr_ext.export.clients import CLIENT_NAMES
from ppocr_ext.recognition.images import WidthPolicy

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = [DOCS / "deploy.md", DOCS / "zh" / "deploy.md"]
BLOCK = re.compile(r"^```(?:python|bash)\n(.*?)\n```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_the_guide_shows_the_lines_of_a_card(page):
    section = page.read_text(encoding="utf-8").partition("<!-- client lines -->")[2]
    shown = BLOCK.findall(section.partition("<!-- end of client lines -->")[0])
    folder, name, policy = "model", "ch_SVTRv2_rec", WidthPolicy("pad", (3, 48, 320))
    expected = [
        clients.recognizer_lines(folder),
        clients.shell_command(folder, name, policy),
        clients.python_lines(folder, name, policy),
        clients.shell_command(folder, name, policy, "onnxruntime"),
        clients.python_lines(folder, name, policy, "onnxruntime"),
        clients.rapidocr_lines(folder, policy),
        clients.onnxruntime_lines(folder, policy),
        clients.paddleocr2_lines(folder, policy),
    ]
    assert shown == expected


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_the_guide_lists_the_names_of_the_client(page):
    details = page.read_text(encoding="utf-8").partition("<details")[2].partition("</details>")[0]
    assert sorted(re.findall(r"`(\S+_rec\w*)`", details)) == sorted(CLIENT_NAMES)
