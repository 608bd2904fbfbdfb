"""Metrics: PaddleOCR's numbers, what is compared, and what happens when nothing was seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from error_codes import raises_code

from ppocr_ext.errors import ConfigError
from ppocr_ext.metrics import build_metric, space_note
from ppocr_ext.registry import METRICS

Lines = tuple[list[tuple[str, float]], list[tuple[str, float]]]


def lines(*pairs: tuple[str, str]) -> Lines:
    """(read, truth) as a decoder gives them: (texts with confidence, labels with 1.0)."""
    return [(read, 0.9) for read, _ in pairs], [(truth, 1.0) for _, truth in pairs]


def edit_distance(first: Sequence[str], second: Sequence[str]) -> int:
    row = list(range(len(second) + 1))
    for i, a in enumerate(first, 1):
        above, row[0] = row[0], i
        for j, b in enumerate(second, 1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (a != b))
    return row[-1]


BATCHES = [
    lines(("abc", "abc"), ("", "xy"), ("12 34", "1234"), ("kitten", "sitting")),
    lines(("未来", "末来"), ("", ""), ("abcd", "ab")),
]


def test_rec_metric_is_paddleocrs() -> None:
    metric = build_metric({"name": "RecMetric"})
    of_batches = [metric(batch, None) for batch in BATCHES]
    pairs = [
        (r.replace(" ", ""), t.replace(" ", "")) for b in BATCHES for (r, _), (t, _) in zip(*b, strict=True)
    ]
    right = sum(read == truth for read, truth in pairs)
    distance = sum(edit_distance(r, t) / max(len(r), len(t), 1) for r, t in pairs)
    expected = {"acc": right / (7 + 1e-5), "norm_edit_dis": 1 - distance / (7 + 1e-5)}
    assert metric.get_metric() == pytest.approx(expected, rel=1e-12)
    assert right == 3
    assert of_batches[0]["acc"] == 2 / (4 + 1e-5)


def test_get_metric_starts_anew_and_nothing_seen_is_no_error() -> None:
    metric = build_metric({"name": "RecMetric"})
    metric(BATCHES[0])
    metric.get_metric()
    assert metric.get_metric() == {"acc": 0.0, "norm_edit_dis": 1.0}
    metric(BATCHES[0])
    metric.reset()
    metric(lines(("a", "a")))
    assert metric.get_metric()["acc"] == 1 / (1 + 1e-5)


@pytest.mark.parametrize(("options", "read", "truth", "same"), [
    ({}, "a b", "ab", True),
    ({"ignore_space": False}, "a b", "ab", False),
    ({}, "Ab-1", "ab1", False),
    ({"is_filter": True}, "Ab-1", "ab1", True),
    ({"is_filter": True}, "é未a", "末A", True),
    ({"is_filter": True}, "é未", "末", False),  # the filter leaves nothing of both
    ({"is_filter": True}, "", "末", False),
    ({"is_filter": True}, "a", "末", False),
    ({"is_filter": True}, "未 末", "未末", True),
    ({"is_filter": True, "ignore_space": False}, "未 末", "未末", False),
    ({"is_filter": True, "ignore_space": False}, "a b", "ab", True),
])  # fmt: skip
def test_what_is_compared(options: dict[str, Any], read: str, truth: str, same: bool) -> None:
    assert (build_metric({"name": "RecMetric", **options})(lines((read, truth)))["acc"] > 0.5) == same


def test_texts_that_the_filter_empties_have_the_edit_distance_of_the_whole_texts() -> None:
    numbers = build_metric({"name": "RecMetric", "is_filter": True})(lines(("未来", "末来"), ("", "")))
    assert numbers == {"acc": 1 / (2 + 1e-5), "norm_edit_dis": 1 - 0.5 / (2 + 1e-5)}


SPACED = lines(("a b", "ab"), ("a b", "a b"), ("x", "y"))


@pytest.mark.parametrize(("options", "has_space", "with_space"), [
    ({}, True, 1),
    ({}, False, None),
    ({"ignore_space": False}, True, None),
    ({"is_filter": True}, True, None),
])  # fmt: skip
def test_both_numbers_where_the_dictionary_has_the_space(
    options: dict[str, Any], has_space: bool, with_space: int | None
) -> None:
    metric = build_metric({"name": "RecMetric", **options}, has_space)
    plain = build_metric({"name": "RecMetric", **options})
    for _ in range(2):
        assert metric(SPACED).get("acc_with_space") == (with_space and with_space / (3 + 1e-5))
        plain(SPACED)
    found, expected = metric.get_metric(), plain.get_metric()
    assert found.pop("acc_with_space", None) == (with_space and 2 * with_space / (6 + 1e-5))
    assert found == expected and set(expected) == {"acc", "norm_edit_dis"}  # PaddleOCR's
    assert (space_note(metric) != "") == options.get("ignore_space", True)


def test_both_numbers_of_each_sub_model() -> None:
    config = {"name": "DistillationMetric", "key": "Student"}
    metric = build_metric(config, has_space=True)
    metric({"Student": SPACED, "Teacher": SPACED})
    numbers = metric.get_metric()
    assert numbers["acc_with_space"] == numbers["Teacher_acc_with_space"] == 1 / (3 + 1e-5)
    assert metric.main_indicator == "acc"
    assert "ignore_space" in space_note(metric)
    assert space_note(build_metric({**config, "ignore_space": False})) == ""


def test_predictions_without_labels_are_no_silent_loss() -> None:
    with pytest.raises(ValueError):
        build_metric({"name": "RecMetric"})(([("a", 1.0)], []))


def distillation(**options: Any) -> Any:
    return build_metric({"name": "DistillationMetric", "base_metric_name": "RecMetric", "main_indicator": "acc",
                         "key": "Student", **options})  # fmt: skip


def test_distillation_metric_names_and_numbers() -> None:
    metric = distillation()
    assert metric.main_indicator == "acc"
    metric({"Student": BATCHES[0], "Teacher": BATCHES[1]}, None)
    metric({"Student": BATCHES[1], "Teacher": BATCHES[1]}, None)
    numbers = metric.get_metric()
    assert set(numbers) == {"acc", "norm_edit_dis", "Teacher_acc", "Teacher_norm_edit_dis"}
    assert numbers["acc"] == 3 / (7 + 1e-5)
    assert numbers["Teacher_acc"] == 2 / (6 + 1e-5)
    metric({"Student": BATCHES[1]}, None)
    assert metric.get_metric()["acc"] == 1 / (3 + 1e-5)


def test_options_reach_the_base_metric() -> None:
    metric = distillation(ignore_space=False)
    metric({"Student": lines(("a b", "ab"))})
    assert metric.get_metric()["acc"] == 0.0
    with raises_code(ConfigError, "unknown_key", "'ignore_space'"):
        distillation(ignore_spaces=False)


@pytest.mark.parametrize(
    ("preds", "code", "found"),
    [({"Teacher": BATCHES[0]}, "missing_output", "Teacher"), (BATCHES[0], "wrong_output", "tuple")],
)
def test_predictions_of_another_kind_are_refused(preds: Any, code: str, found: str) -> None:
    with raises_code(ConfigError, code, found):
        distillation()(preds)


@pytest.mark.parametrize(("config", "key"), [({}, "name"), ({"name": "DistillationMetric"}, "key")])
def test_a_missing_key_is_named(config: dict[str, Any], key: str) -> None:
    with raises_code(ConfigError, "missing_key", f"`{key}`"):
        build_metric(config)


def test_a_base_metric_of_the_host_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counting:
        def __init__(self, main_indicator: str = "count", **kwargs: Any) -> None:
            self.count = 0

        def __call__(self, pred_label: Any, *args: Any, **kwargs: Any) -> None:
            self.count += len(pred_label[0])

        def get_metric(self) -> dict[str, float]:
            return {"count": self.count}

        def reset(self) -> None:
            self.count = 0

    monkeypatch.setattr(METRICS, "_find_foreign", {"Counting": Counting}.get)
    metric = distillation(base_metric_name="Counting", main_indicator="count")
    metric({"Student": BATCHES[0], "Teacher": BATCHES[1]})
    assert metric.get_metric() == {"count": 4, "Teacher_count": 3}
