"""Files of others are opened in `limits.py` alone: a plain `open` waits for a pipe and reads a sparse file whole."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from house import modules

# what may be opened plainly: files that this process has just written, that ship with the package, or of the system
ALLOWED = {
    "ppocr_ext.io.plain_pickle": "np.load of a stream that open_regular returned",
    "ppocr_ext.io.resources": "shipped dictionaries, and one of the same size",
    "ppocr_ext.io.atomic": "/proc",
    "ppocr_ext.messages": "a word of a command line",
    "ppocr_ext.run.context": "/proc/cpuinfo",
    "ppocr_ext.run.logs": "a log that it opens to write",
    "ppocr_ext.run.team": "what another process of the run has written",
    "ppocr_ext.run.loader": "an exception of a worker, in memory",
    "ppocr_ext.loop.launch": "logs of the processes that it has started",
    "ppocr_ext.loop.signals": "the log of the process that it has started",
    "ppocr_ext.loop.hooks.collapse_rules": "a table that ships with the package",
    "ppocr_ext.checkpoint.official_weights": "a table that ships with the package, and files of the cache",
    "ppocr_ext.host.facade": "the code of the host, which is imported anyway",
    "ppocr_ext.export.exporter": "what it has just written",
    "ppocr_ext.synth.lines.painting": "photos of the user's own folder",
}
READERS = {"read_text", "read_bytes", "imread", "fromfile", "loadtxt", "genfromtxt", "memmap"}
LOADERS = {
    "np.load",
    "numpy.load",
    "json.load",
    "pickle.load",
    "pickle.loads",
    "yaml.safe_load",
    "cv2.imread",
}


def plain_reads(tree: ast.AST) -> Iterator[int]:
    """Yield the lines of calls that open a file, or take its content, without a limit."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        method = name.rpartition(".")[2] if isinstance(node.func, ast.Attribute) else ""
        mode = node.args[0] if node.args else next((k.value for k in node.keywords if k.arg == "mode"), None)
        reads = mode is None or (isinstance(mode, ast.Constant) and str(mode.value).startswith("r"))
        if name == "open" or name in LOADERS or method in READERS or (method == "open" and reads):
            yield node.lineno


def test_no_other_module_opens_files_plainly() -> None:
    found = {name: list(plain_reads(tree)) for name, tree in modules().items()}
    assert {name: lines for name, lines in found.items() if lines and name not in ALLOWED} == {}
    assert [name for name in ALLOWED if not found[name]] == []
