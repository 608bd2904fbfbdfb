"""``report.html``: the page of the run, written at its end however it ended."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import paddle.distributed as dist

from ppocr_ext.commands import command_line
from ppocr_ext.loop.events import Hook, Outcome, Position
from ppocr_ext.report.page import REPORT_FILE, write_report

if TYPE_CHECKING:
    from ppocr_ext.run.run import Run

_LOG = logging.getLogger("ppocr_ext")


class ReportHook(Hook):
    """Writes ``report.html`` into the run folder (rank 0 only; ``Global.report: false`` leaves it out).

    Comes after the hooks that write what the page shows.
    """

    def on_start(self, run: Run, position: Position) -> None:
        self._folder = run.folder

    def on_end(self, outcome: Outcome) -> None:
        if dist.get_rank() != 0:
            return
        try:
            path = write_report([self._folder], self._folder / REPORT_FILE)
        except Exception as fault:  # the run is done, and its weights are saved: a page must not make it fail
            _LOG.warning(
                "no report: %s: %s (`%s` says more)",
                type(fault).__name__,
                fault,
                command_line("report", self._folder, "--debug"),
            )
        else:
            _LOG.info("report: %s", path)
