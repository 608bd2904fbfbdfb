"""A checkout as host, each time in a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_checkout import FILES, run_python, write_checkout

# A host that imports imgaug, and an imgaug that does what the real one does on numpy 2.
IMGAUG = {
    "ppocr/data/__init__.py": "import imgaug\n",
    "first/imgaug/__init__.py": "raise AttributeError('`np.sctypes` was removed in NumPy 2.0.')\n",
}
TRAINING_PACKAGES = ("ppocr/modeling/", "ppocr/losses/", "ppocr/optimizer/", "ppocr/metrics/")

REPORT_ERROR = """
from ppocr_ext.errors import PPOCRExtError
from ppocr_ext.host import open_host
try:
    open_host()
except PPOCRExtError as error:
    print(type(error).__name__, error)
"""


def test_a_checkout_gives_what_we_lack_and_imports_nothing_else(tmp_path: Path) -> None:
    code = """
import sys
from ppocr_ext.host import open_host
from ppocr_ext.registry import BACKBONES, LOSSES
host = open_host()
assert open_host() is host and open_host(host.root) is host
assert host.form == "checkout" and host.grafted == [], host.grafted
assert sys.path[-1] == str(host.root), sys.path
import ppocr.modeling.architectures as theirs
assert theirs.build_model({}) == "of the host"
before = {name for name in sys.modules if name.startswith("ppocr.modeling.backbones")}
assert not before, before
assert BACKBONES.get("Net").task == "rec"
assert LOSSES.get("TheirLoss").__module__ == "ppocr.losses.rec_loss"
assert "ppocr.modeling.backbones.rec_other" not in sys.modules
assert BACKBONES.build("make_other", {}).__class__.__name__ == "Original"
found = [BACKBONES.get(name).__name__ for name in ("Alias", "Unlisted", "DetOnly")]
assert found == ["Original", "Unlisted", "DetOnly"], found
assert host.component_names("loss") == ["OneLoss", "TheirLoss", "ThreeLoss", "TwoLoss"]
assert host.component_names("optimizer") == host.component_names("neck") == []  # there is no such file
try:
    BACKBONES.get("Helper")  # which several files define
except Exception as error:
    assert error.code == "unknown_component", error
else:
    raise AssertionError("no error")
try:
    BACKBONES.get("Nett")
except Exception as error:
    assert "Did you mean 'Net'" in str(error), error
try:
    BACKBONES.get("Zebra")
except Exception as error:
    assert "From the host: Alias, Net, make_other" in str(error), error
try:
    BACKBONES.get("Broken")
except Exception as error:
    assert "pip install package_of_nobody" in str(error), error
else:
    raise AssertionError("no error")
assert "paddle" not in sys.modules
print("done")
"""
    result = run_python(code, home=write_checkout(tmp_path))
    assert result.stdout == "done\n", result.stderr
    assert "encryption" not in result.stderr
    assert "a warning that matters" in result.stderr


def test_calls_through_the_facade(tmp_path: Path) -> None:
    code = """
import ppocr_ext.host
host = ppocr_ext.host.open_host()
saves, model = [], []
config = {"Global": {"popped": 1}, "profiler_options": None}
host.train(config, model, log_writer="writer", amp_dtype="unknown to this host",
           replacements={"save_model": saves.append, "export": None})
assert saves == ["latest"] and model == [(None, "writer")], (saves, model)
assert config == {"Global": {"popped": 1}, "profiler_options": None}, config
import tools.program, ppocr.utils.utility
assert tools.program.save_model.__module__ == "ppocr.utils.save_load"
assert not hasattr(tools.program, "export")
try:
    host.train(config, None, replacements={"save_model": saves.append})  # which has no `append`
    raise AssertionError("no error")
except AttributeError:
    assert tools.program.save_model.__module__ == "ppocr.utils.save_load"
save_model = vars(tools.program).pop("save_model")
try:
    host.train(config, model, replacements={"save_model": saves.append})
    raise AssertionError("no error")
except ppocr_ext.errors.HostError as error:
    assert error.code == "unsupported_host" and "save_model" in str(error), error
tools.program.save_model = save_model
assert host.evaluate("model", "loader", scaler=None) == {"acc": 1.0, "fps": 2.0}
host.set_seed(7)
assert ppocr.utils.utility.SEEDS == [7]
section, settings = {"name": "CTCLabelDecode"}, {"use_space_char": True}
assert host.build_post_process(section, settings)(None) == ({}, settings)
assert section == {"name": "CTCLabelDecode"}
try:
    host.build_post_process({"name": "Nothing"}, {})
except ppocr_ext.errors.ConfigError as error:
    assert "PostProcess.name" in str(error) and "'Nothing'" in str(error), error
else:
    raise AssertionError("no error")
assert host.find_file("ppocr/utils/words.txt") == host.root / "ppocr/utils/words.txt"
assert host.find_file("nowhere.txt") is None
print("done")
"""
    result = run_python(code, home=write_checkout(tmp_path))
    assert result.stdout == "done\n", result.stderr


def test_the_hosts_tools_are_imported_although_another_tools_comes_first(tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "tools").mkdir(parents=True)
    (other / "tools" / "__init__.py").write_text("raise RuntimeError('the wrong tools')\n")
    host = write_checkout(tmp_path / "host")
    code = "from ppocr_ext.host import open_host; open_host(); import tools.program as p; print(p.__file__)"
    result = run_python(code, home=host, first_on_path=other)
    assert result.stdout.strip() == str(host / "tools" / "program.py"), result.stderr


def test_another_tools_imported_before_is_an_error_that_names_it(tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "tools").mkdir(parents=True)
    (other / "tools" / "__init__.py").write_text("")
    host = write_checkout(tmp_path / "host")
    result = run_python("import tools\n" + REPORT_ERROR, home=host, first_on_path=other)
    assert result.stdout.startswith("HostError Another package called 'tools'"), result.stderr
    assert str(other / "tools") in result.stdout
    assert str(host) in result.stdout


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param(
            {"ppocr/data/__init__.py": "import package_of_nobody\n"},
            ["No module named 'package_of_nobody'", "pip install package_of_nobody"],
            id="a package is missing",
        ),
        pytest.param(
            IMGAUG,
            ["np.sctypes", "'numpy<2'", "leave out --host and PADDLEOCR_HOME"],
            id="imgaug on numpy 2",
        ),
        pytest.param(
            {**IMGAUG, **dict.fromkeys(name for name in FILES if name.startswith(TRAINING_PACKAGES))},
            ["np.sctypes", "'numpy<2'", "PaddleOCR 2.10 needs neither: pip install 'paddleocr>=2.10,<3'"],
            id="imgaug on numpy 2, in a wheel",
        ),
        pytest.param(
            {"ppocr/utils/save_load.py": None},
            ["No module named 'ppocr.utils.save_load'", "Use a complete checkout"],
            id="a file of the host is missing",
        ),
        pytest.param(
            {"tools/program.py": "1 / 0\n"},
            ["tools.program", "ZeroDivisionError: division by zero. Run again with --debug"],
            id="anything else",
        ),
    ],
)
def test_a_host_that_cannot_be_imported_is_explained(
    tmp_path: Path, changes: dict[str, str | None], expected: list[str]
) -> None:
    home = write_checkout(tmp_path, changes)
    result = run_python(REPORT_ERROR, home=home, first_on_path=home / "first")
    assert result.stdout.startswith("HostError "), result.stderr
    for words in expected:
        assert words in result.stdout


def test_one_process_holds_one_host(tmp_path: Path) -> None:
    first, second = write_checkout(tmp_path / "first"), write_checkout(tmp_path / "second")
    code = f"""
from ppocr_ext.errors import HostError
from ppocr_ext.host import open_host
open_host({str(first)!r})
try:
    open_host({str(second)!r})
except HostError as error:
    assert error.code == "host_in_use" and {str(first)!r} in str(error), error
    print("refused")
"""
    assert run_python(code).stdout == "refused\n"
