"""Write docs/errors.md: `python tests/cli/write_error_pages.py`.

Every bad input of error_cases.py is tried, and what the program says is put into the page.
tests/cli/test_errors.py checks that the page is current.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from tqdm import tqdm

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "tests"))

from error_bench import Bench, Said, make_template  # noqa: E402 - needs the path above
from error_cases import GROUPS, Case, Group  # noqa: E402

PAGE = ROOT / "docs" / "errors.md"
CASES = [case for group in GROUPS for case in group.cases]
INTRO = """# Bad input

One rule for data: an unusable sample is skipped, counted, and named with its file and line; the run continues. It ends
with exit code 2 if no sample is usable, if more than `Global.max_unusable` (0.1: 10 %) of the samples of `Train` or of
`Eval` are unusable, or, with `--strict`, if one sample is. [Data](data.md#what-is-skipped) lists the reasons and how
to fix each.

Every other problem is reported before training starts, in one message that says how to fix it.

| exit code | means |
|---|---|
| 0 | done |
| 1 | done, and the result is bad |
| 2 | the job could not be done |
| 128 + n | signal n: 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP. A training run has saved `latest` |
| 141 | the program that read the output has ended, such as `head`. A run that was training has saved `latest` |

An unexpected error is called `internal error`; `--debug` shows where it was raised.

Each message below was written by the program: `python tests/cli/write_error_pages.py` tries all inputs and writes
this page; a test checks that it is current. The word in brackets is the code: it stays when the wording changes.
"""
HEAD = "| input | message | exit code |"


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


def render(groups: Sequence[Group], messages: Mapping[Case, str]) -> str:
    """Return the page."""
    parts = [INTRO]
    for group in groups:
        rows = [f"| {case.what} | {_cell(messages[case])} | {case.code} |" for case in group.cases]
        parts.append("\n".join([f"## {group.title}", "", HEAD, "|---|---|---|", *rows, ""]))
    return "\n".join(parts)


def _cell(message: str) -> str:
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return "<br>".join(_code(line.replace("|", "\\|")) for line in lines)


def _code(line: str) -> str:
    """``line`` as code, also where it has backticks of its own."""
    return f"`` {line} ``" if "`" in line else f"`{line}`"


def main() -> None:
    """Provoke all cases and write the page."""
    with tempfile.TemporaryDirectory() as name:
        make_trained_template(Path(name) / "template")
        messages = {
            case: provoke(case, Path(name) / "template", Path(name) / str(number)).found(case.shows)
            for number, case in enumerate(tqdm(CASES))
        }
    PAGE.write_text(render(GROUPS, messages), encoding="utf-8")
    print(PAGE.relative_to(ROOT))


if __name__ == "__main__":
    main()
