"""The work of a benchmark's processes, done in this one: quicker, and nothing here is measured."""

import pytest
from benchmarks.fresh import call


@pytest.fixture
def in_this_process(monkeypatch):
    """``in_this_process(where, **instead)``: the workers of the module ``where`` run here.

    ``instead`` replaces some of them, by the name of their function or module.
    """

    def use(where, **instead):
        def run(work, options):
            module, _, function = work.rpartition(".")[2].partition(":")
            worker = instead.get(function) or instead.get(module)
            return call(work, options) if worker is None else worker(**options)

        monkeypatch.setattr(where, "in_fresh_process", run)

    return use
