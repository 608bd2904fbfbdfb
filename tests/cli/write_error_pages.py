"""Write docs/errors.md and its Chinese mirror: `python tests/cli/write_error_pages.py`.

Every bad input of error_cases.py is tried, and what the program says is put into the page.
tests/cli/test_errors.py checks that the pages are current.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from tqdm import tqdm

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "tests"))

from error_bench import Bench, Said, make_template  # noqa: E402 - needs the path above
from error_cases import GROUPS, Case  # noqa: E402
from error_pages import render  # noqa: E402

PAGES = {"en": ROOT / "docs" / "errors.md", "zh": ROOT / "docs" / "zh" / "errors.md"}
CASES = [case for group in GROUPS for case in group.cases]


def make_trained_template(folder: Path) -> None:
    """Write the files that each case starts with, and train a run in ``trained``."""
    make_template(folder)
    with pytest.MonkeyPatch.context() as patch:
        said = Bench(folder, patch).run(["train", "-c", "config.yml", "-o", "Global.save_model_dir=trained"])
    assert said.code == 0, said.text


def provoke(case: Case, template: Path, folder: Path) -> Said:
    """Run the command of ``case`` in ``folder``, a copy of ``template``."""
    shutil.copytree(template, folder)
    with pytest.MonkeyPatch.context() as patch:
        bench = Bench(folder, patch)
        return bench.run(case.arrange(bench))


def main() -> None:
    """Provoke all cases and write both pages."""
    with tempfile.TemporaryDirectory() as name:
        make_trained_template(Path(name) / "template")
        messages = {
            case.name: provoke(case, Path(name) / "template", Path(name) / case.name).found(case.shows)
            for case in tqdm(CASES)
        }
    for language, page in PAGES.items():
        page.write_text(render(GROUPS, messages, language), encoding="utf-8")
        print(page.relative_to(ROOT))


if __name__ == "__main__":
    main()
