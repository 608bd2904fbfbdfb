"""``report.html``: the page that each run writes at its end."""

from __future__ import annotations

import logging

import paddle.distributed as dist

from ppocr_ext.commands import command_line
from ppocr_ext.loop.events import Hook, Outcome, Position
from ppocr_ext.report.run_page import REPORT_FILE, write_report
from ppocr_ext.run.run import Run

_LOG = logging.getLogger("ppocr_ext")


class ReportHook(Hook):
    """Write ``report.html`` into the run folder, on rank 0, also after a stop or an error.

    It comes after the hooks that write what the page shows.
    """

    def on_start(self, run: Run, position: Position) -> None:
        self._folder = run.folder

    def on_end(self, outcome: Outcome) -> None:
        if dist.get_rank() != 0:
            return
        path = self._folder / REPORT_FILE
        try:
            write_report([self._folder], path)
        except Exception as error:  # the weights are saved: a page must not make the run fail
            again = command_line("report", self._folder, "--debug")
            _LOG.warning("no report: %s: %s (details: `%s`)", type(error).__name__, error, again)
        else:
            _LOG.info("report: %s", path)
