"""The work of a benchmark's processes, done in this one: quicker, and nothing here is measured."""

import pytest
from benchmarks.fresh import called


@pytest.fixture
def in_this_process(monkeypatch):
    """``in_this_process(module, **instead)``: ``module`` runs its workers here; ``instead`` replaces some by name."""

    def use(module, **instead):
        def run(work, options):
            worker = work.partition(":")[0].rpartition(".")[2]
            return instead[worker](**options) if worker in instead else called(work, options)

        monkeypatch.setattr(module, "in_fresh_process", run)

    return use
