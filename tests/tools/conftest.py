"""The work of a benchmark's processes, done in this one: quicker, and nothing here is measured."""

import importlib

import pytest


@pytest.fixture
def in_this_process(monkeypatch):
    """``in_this_process(module, **instead)``: ``module`` runs its workers here; ``instead`` replaces some by name."""

    def use(module, **instead):
        def run(name, options):
            worker = name.rpartition(".")[2]
            if worker in instead:
                return instead[worker](**options)
            loaded = importlib.import_module(name)
            return (loaded.prepare if worker.endswith("_data") else loaded.measure)(**options)

        monkeypatch.setattr(module, "in_fresh_process", run)

    return use
