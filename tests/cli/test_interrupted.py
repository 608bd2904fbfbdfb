from __future__ import annotations

import types

import pytest

from ppocr_ext.cli import main as module


def test_ctrl_c_in_the_midst_of_an_import_is_an_interruption(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(args: object) -> int:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as fault:
            raise ImportError("initialization failed") from fault

    command = types.SimpleNamespace(HELP="", add_arguments=lambda parser: None, run=run)
    monkeypatch.setattr(module.importlib, "import_module", lambda name: command)
    assert module.main(["doctor"]) == 130
    assert capsys.readouterr().err == "interrupted\n"
