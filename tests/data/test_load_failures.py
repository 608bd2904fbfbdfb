"""Samples that fail when they are loaded: replaced in training and named, refused in an evaluation."""

from __future__ import annotations

import logging

import pytest

from ppocr_ext.data.load_failures import LoadFailures, report_failures
from ppocr_ext.data.unusable_limit import UnusableLimit
from ppocr_ext.errors import DataError


class Decode:
    def __call__(self, data):
        return None if data in Host.bad else data


class Host:
    """What PaddleOCR's datasets do: swallow, then ask themselves for another sample."""

    bad: frozenset[int] = frozenset()
    size = 50

    def __init__(self, config, mode, logger, seed=None):
        self.logger = logger
        self.ops = [Decode()]

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        try:
            if index == 33:
                raise ValueError("a header of 3 bytes")
            found = self.ops[0](index)
        except Exception:
            import traceback

            self.logger.error(f"When parsing: {traceback.format_exc()}")
            found = None
        return self[7] if found is None else found


@pytest.fixture
def dataset(monkeypatch):
    def build(bad, mode="Train", tolerance=None, before=0):
        monkeypatch.setattr(Host, "bad", frozenset(bad))
        watch = LoadFailures(mode, Host.size + before, before, tolerance or UnusableLimit(0.1))
        kind = report_failures(
            Host, watch, lambda data, index: str(index).encode(), lambda key: f"list:{key.decode()}"
        )
        return kind({}, mode, logging.getLogger("ppocr")), watch

    return build


@pytest.fixture
def messages(monkeypatch):
    said = []
    monkeypatch.setattr(
        logging.getLogger("ppocr_ext"), "warning", lambda text, *args: said.append(text % args)
    )
    return said


def test_a_failure_is_named_once_and_the_next_sample_taken(dataset, messages):
    data, watch = dataset({4, 5})
    assert [data[4], data[4], data[6], data[33]] == [6, 6, 6, 34]
    assert watch.count == 3
    assert watch.summary() == "Train: 3 lines could not be loaded; others were used in their place."
    assert messages == [
        "Train: list:4: Decode refuses it; the next one is used in its place.",
        "Train: list:5: Decode refuses it; the next one is used in its place.",
        "Train: list:33: ValueError: a header of 3 bytes; the next one is used in its place.",
    ]


def test_more_than_admitted_ends_the_run(dataset):
    data, _ = dataset(range(10), before=3)
    assert data[10] == 10
    with pytest.raises(
        DataError, match=r"list:2: .* With it 6 of 53 cannot be used; .*Global\.max_unusable: 0\.1"
    ):
        data[0]


def test_strict_admits_none(dataset):
    data, _ = dataset({4}, tolerance=UnusableLimit(1.0, strict=True))
    with pytest.raises(DataError, match=r"Train: list:4: .*Global\.strict"):
        data[4]


def test_an_evaluation_replaces_nothing(dataset):
    data, _ = dataset({4}, mode="Eval")
    for _ in range(2):  # nor in a second one over the same data
        with pytest.raises(DataError, match="Eval: list:4: Decode refuses it"):
            data[4]


def test_where_all_fail_there_is_an_end(dataset):
    data, _ = dataset(range(50), tolerance=UnusableLimit(1.0))
    with pytest.raises(DataError, match="cannot"):
        data[0]


def test_the_samples_of_a_multi_scale_sampler(dataset):
    class Scaled(Host):
        def __getitem__(self, properties):
            width, height, index, ratio = properties
            found = self.ops[0](index)
            return self[[width, height, 7, ratio]] if found is None else (width, height, found, ratio)

    watch = LoadFailures("Train", 50, 0, UnusableLimit(0.1))
    Host.bad = frozenset({4})
    data = report_failures(Scaled, watch, lambda d, i: str(i).encode(), lambda key: key.decode())(
        {}, "Train", None
    )
    assert data[(64, 32, 4, None)] == (64, 32, 5, None)


def test_the_count_is_shared_with_forked_processes(dataset):
    import multiprocessing

    data, watch = dataset({4})
    context = multiprocessing.get_context("fork")
    process = context.Process(target=lambda: data[4])
    process.start()
    process.join()
    assert (process.exitcode, watch.count) == (0, 1)
    assert data[4] == 5
    assert watch.count == 1
