"""The seams of the host's loop, on modules made up here."""

from __future__ import annotations

from types import ModuleType

import pytest
from error_codes import raises_code

from ppocr_ext.errors import HostError
from ppocr_ext.host.facade import replaced_globals


def make_program() -> ModuleType:
    program = ModuleType("program")
    program.__file__ = "/somewhere/tools/program.py"
    exec(  # a function whose globals are the module's, as in the host
        "def save_model():\n    return 'theirs'\n"
        "def build_dataloader():\n    return 'their loader'\n"
        "def train():\n    return save_model(), build_dataloader()\n",
        vars(program),
    )
    return program


def test_globals_are_replaced_inside_and_restored_after() -> None:
    program = make_program()
    with replaced_globals(program, {"save_model": lambda: "ours", "build_dataloader": lambda: "our loader"}):
        assert program.train() == ("ours", "our loader")
    assert program.train() == ("theirs", "their loader")


def test_they_are_restored_when_the_loop_is_left_by_an_exception() -> None:
    program = make_program()
    with pytest.raises(KeyboardInterrupt), replaced_globals(program, {"save_model": lambda: "ours"}):
        raise KeyboardInterrupt
    assert program.train() == ("theirs", "their loader")


def test_what_the_host_never_had_is_not_added() -> None:
    program = make_program()
    with replaced_globals(program, {"export": lambda: "ours"}):
        assert not hasattr(program, "export")
    assert not hasattr(program, "export")


def test_a_loop_without_save_model_is_refused() -> None:
    program = make_program()
    del program.save_model
    with (
        raises_code(HostError, "unsupported_host", "/somewhere/tools/program.py", "save_model"),
        replaced_globals(program, {"save_model": lambda: "ours"}),
    ):
        pytest.fail("the context was entered")
