"""Samples that fail when they are loaded: named and replaced in training, an error in an evaluation."""

from __future__ import annotations

import logging
import random

import pytest
from error_codes import raises_code

from ppocr_ext.data.load_failures import LoadFailures, report_failures
from ppocr_ext.data.sample_seeds import generators_seeded
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
    def build(bad, mode="Train", limit=None, before=0):
        monkeypatch.setattr(Host, "bad", frozenset(bad))
        failures = LoadFailures(mode, Host.size + before, before, limit or UnusableLimit(0.1))
        kind = report_failures(
            Host, failures, lambda data, index: str(index).encode(), lambda key: f"list:{key.decode()}"
        )
        return kind({}, mode, logging.getLogger("ppocr")), failures

    return build


@pytest.fixture
def messages(monkeypatch):
    messages = []
    monkeypatch.setattr(
        logging.getLogger("ppocr_ext"), "warning", lambda text, *args: messages.append(text % args)
    )
    return messages


def test_a_failure_is_named_once_and_the_next_sample_taken(dataset, messages):
    data, failures = dataset({4, 5})
    assert [data[4], data[4], data[6], data[33]] == [6, 6, 6, 34]
    assert failures.count == 3
    assert "3 samples" in failures.summary()
    assert [message.split(";")[0] for message in messages] == [
        "Train: list:4: Decode refuses it",
        "Train: list:5: Decode refuses it",
        "Train: list:33: ValueError: a header of 3 bytes",
    ]


class Drawing(Host):
    """Each sample draws; the transform of sample 3 draws too, and fails."""

    def __init__(self, *args):
        super().__init__(*args)
        self.ops = [self]

    def __call__(self, data):
        drawn = random.random()
        if data == 3:
            raise ValueError("no such font")
        return drawn

    def __getitem__(self, index):
        return self.ops[0](index)


def test_a_process_that_fails_at_its_first_sample_draws_as_one_that_has_loaded_others():
    kind = report_failures(
        Drawing,
        LoadFailures("Train", Host.size, 0, UnusableLimit(0.1)),
        lambda data, index: b"%d" % index,
        bytes.decode,
    )
    drawn = []
    for before in ([], [7]):
        data = kind({}, "Train", logging.getLogger("ppocr"))
        for index in [*before, 3]:
            with generators_seeded(1, index):
                value = data[index]
        drawn.append(value)
    assert drawn[0] == drawn[1]


class Join:
    """As RecConAug: joins another text to every second one."""

    ext_data_num = 1

    def __call__(self, data):
        return {"label": data["label"] * (1 + data["index"] % 2), "index": data["index"]}


class Encode:
    def __call__(self, data):
        return data if len(data["label"]) < 4 and data["index"] != 8 else None


class Joining(Host):
    def __init__(self, *args):
        super().__init__(*args)
        self.ops = [Join(), Encode()]

    def __getitem__(self, index):
        data = {"label": "ab", "index": index}
        for transform in self.ops:
            data = data and transform(data)
        return self[7] if data is None else data["index"]


def test_a_label_that_is_too_long_once_another_is_joined_is_no_failure_of_the_sample():
    def build(mode):
        failures = LoadFailures(mode, Host.size, 0, UnusableLimit(0.1))
        kind = report_failures(Joining, failures, lambda data, index: b"%d" % index, bytes.decode)
        return kind({}, mode, logging.getLogger("ppocr")), failures

    data, failures = build("Train")
    assert [data[3], data[4], data[8]] == [4, 4, 10]
    assert failures.count == 1  # the sample 8, which is refused as it is
    with pytest.raises(DataError, match="Eval: 3: Encode refuses it"):
        build("Eval")[0][3]


def test_more_than_the_limit_ends_the_run(dataset):
    data, _ = dataset(range(10), before=3)
    assert data[10] == 10
    with raises_code(DataError, "too_many_unusable", "list:2: ", " 6 of 53 ", "Global.max_unusable: 0.1"):
        data[0]


def test_strict_allows_none(dataset):
    data, _ = dataset({4}, limit=UnusableLimit(1.0, strict=True))
    with raises_code(DataError, "too_many_unusable", "Train: list:4: ", "Global.strict"):
        data[4]


def test_an_evaluation_replaces_nothing(dataset):
    data, _ = dataset({4}, mode="Eval")
    for _ in range(2):  # nor in a second one over the same data
        with raises_code(DataError, "sample_failed", "Eval: list:4: "):
            data[4]


def test_where_all_fail_there_is_an_end(dataset, monkeypatch):
    monkeypatch.setattr(Host, "size", 150)
    data, _ = dataset(range(150), limit=UnusableLimit(1.0))
    with raises_code(DataError, "samples_failed"):
        data[0]


def test_the_samples_of_a_multi_scale_sampler(dataset):
    class Scaled(Host):
        def __getitem__(self, properties):
            width, height, index, ratio = properties
            found = self.ops[0](index)
            return self[[width, height, 7, ratio]] if found is None else (width, height, found, ratio)

    failures = LoadFailures("Train", 50, 0, UnusableLimit(0.1))
    Host.bad = frozenset({4})
    data = report_failures(Scaled, failures, lambda d, i: str(i).encode(), lambda key: key.decode())(
        {}, "Train", None
    )
    assert data[(64, 32, 4, None)] == (64, 32, 5, None)


def test_the_count_is_shared_with_forked_processes(dataset):
    import multiprocessing

    data, failures = dataset({4})
    context = multiprocessing.get_context("fork")
    process = context.Process(target=lambda: data[4])
    process.start()
    process.join()
    assert (process.exitcode, failures.count) == (0, 1)
    assert data[4] == 5
    assert failures.count == 1
