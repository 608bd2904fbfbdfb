"""``python -m ppocr_ext.host NAME …``: a script of PaddleOCR's ``tools/``, with PaddleOCR completed first.

The packaged PaddleOCR ships ``tools/infer_rec.py``, ``tools/eval.py`` and others, but not the networks that they
build: run as they are, they end in an import error.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence

from ppocr_ext.errors import HostError, PPOCRExtError
from ppocr_ext.host import Host, open_host

USAGE = "usage: python -m ppocr_ext.host NAME [options of that script], such as: infer_rec -c config.yml"


def main(arguments: Sequence[str]) -> int:
    """Run the host's ``tools/NAME.py`` as if it were called by itself; 2 if it cannot be started."""
    if not arguments or arguments[0].startswith("-"):
        print(USAGE, file=sys.stderr)
        return 2
    name, *rest = arguments
    try:
        host = open_host()
        module = _module_of(name, host)
    except PPOCRExtError as reason:
        print(f"error: {reason}", file=sys.stderr)
        return 2
    sys.argv = [str(host.root / "tools" / f"{name}.py"), *rest]
    runpy.run_module(module, run_name="__main__")
    return 0


def _module_of(name: str, host: Host) -> str:
    scripts = sorted(file.stem for file in (host.root / "tools").glob("*.py") if file.stem != "__init__")
    if name not in scripts:
        raise HostError(f"{host.root}/tools has no {name}.py; it has: {', '.join(scripts)}.")
    return f"tools.{name}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
