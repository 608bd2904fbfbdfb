"""``python -m ppocr_ext.host NAME …``: complete PaddleOCR, then run a script of its ``tools/``.

The packaged PaddleOCR has ``tools/eval.py`` and others, but not the networks that they build, so they end with an
import error. Scripts that read images or export models are refused, since their results would be wrong.
"""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Sequence

from ppocr_ext.errors import HostError, PPOCRExtError
from ppocr_ext.host import open_host

USAGE = "usage: python -m ppocr_ext.host NAME [options of that script], such as: eval -c config.yml"

# Name of a refused script, or first word of the name: what it does wrong with our models, and what to run instead.
_REFUSED = {
    "export_center": (
        "the script has to be changed by hand for a MultiHead recogniser",
        "ppocr-ext export-center -c config.yml -o Global.pretrained_model=WEIGHTS",
    ),
    "export": (
        "the script fails on our models, or writes one of another input size",
        "ppocr-ext export -c config.yml -o Global.pretrained_model=WEIGHTS",
    ),
    "infer": (
        "the script does not resize images as training did (it ignores `padding: false`)",
        "ppocr-ext predict MODEL IMAGES",
    ),
}


def main(arguments: Sequence[str]) -> int:
    """Run the host's ``tools/NAME.py`` as a program; return 2 if it cannot be started."""
    if not arguments or arguments[0].startswith("-"):
        print(USAGE, file=sys.stderr)
        return 2
    name, *rest = arguments
    name = name.removeprefix("tools/").removesuffix(".py")
    try:
        if (reason := _refusal(name)) is not None:
            raise HostError(f"{name}: {reason[0]}.\nFix: {reason[1]}", code="refused_script")
        host = open_host()
        files = (host.root / "tools").glob("*.py")
        scripts = sorted(file.stem for file in files if file.stem != "__init__" and not _refusal(file.stem))
        if name not in scripts:
            raise HostError(
                f"{host.root}/tools has no {name}.py; it has: {', '.join(scripts)}.", code="missing_file"
            )
    except PPOCRExtError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    sys.argv = [str(host.root / "tools" / f"{name}.py"), *rest]
    runpy.run_module(f"tools.{name}", run_name="__main__")
    return 0


def _refusal(name: str) -> tuple[str, str] | None:
    """Return what a script does wrong with our models, and what to run instead; None if it is accepted."""
    return _REFUSED.get(name) or _REFUSED.get(re.split(r"[_./]", name)[0])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
