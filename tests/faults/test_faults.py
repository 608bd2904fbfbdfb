"""Each planted fault is named by the first tool that can know it, with what to do; its twin raises nothing."""

from __future__ import annotations

from collections import Counter
from typing import Any

import config_faults
import data_faults
import part_faults
import pytest
import step_faults
import weight_faults
from planted import REMEDY, Fault, Place

QUICK = (*config_faults.FAULTS, *data_faults.FAULTS, *weight_faults.FAULTS, *part_faults.FAULTS)
TRAINED = tuple(pytest.param(fault, marks=pytest.mark.e2e) for fault in step_faults.FAULTS)
FAULTS = (*QUICK, *step_faults.FAULTS)


def twins() -> list[Any]:
    """One fault for each twin: several faults may share one."""
    by_twin = {}
    for fault in QUICK:
        right = id(fault.right) if callable(fault.right) else repr(sorted(fault.right.items()))
        by_twin.setdefault(f"{fault.tool.__name__} {fault.kind} {right} {fault.step[1]}", fault)
    return [*by_twin.values()]


@pytest.mark.parametrize("fault", [*QUICK, *TRAINED], ids=lambda fault: fault.name)
def test_a_fault_is_named_with_its_remedy(fault: Fault, place: Place) -> None:
    found = fault.found(place, is_wrong=True)
    assert {(each.level, each.code) for each in found} == {(fault.level, fault.code)}, found
    text = "\n".join(each.text for each in found)
    for fact in fault.names:
        assert fact in text, text
    assert any(word in text for word in REMEDY), text


@pytest.mark.parametrize("fault", twins(), ids=lambda fault: fault.name)
def test_its_twin_raises_nothing(fault: Fault, place: Place) -> None:
    assert fault.found(place, is_wrong=False) == []


@pytest.mark.e2e
def test_the_twins_of_bad_steps_raise_nothing_in_one_run(place: Place) -> None:
    assert step_faults.twins(place) == []


def test_names_of_faults_differ() -> None:
    assert [name for name, count in Counter(fault.name for fault in FAULTS).items() if count > 1] == []
