"""What is computed of the packaging of ppocr-ext; the rest is in pyproject.toml."""

from __future__ import annotations

import re
from pathlib import Path

from setuptools import find_namespace_packages, find_packages, setup

ROOT = Path(__file__).resolve().parent


def version() -> str:
    """The version that ``ppocr_ext/__init__.py`` states, read without importing it."""
    text = (ROOT / "ppocr_ext" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    if found is None:
        raise RuntimeError("ppocr_ext/__init__.py states no __version__")
    return found.group(1)


def config_packages() -> list[str]:
    """``configs/`` and its folders as data packages below ``ppocr_ext``, for ``ppocr_ext.io.resources``."""
    folders = find_namespace_packages(str(ROOT / "configs"))
    return ["ppocr_ext.configs", *(f"ppocr_ext.configs.{folder}" for folder in folders)]


def long_description() -> str:
    """README.md for a package page, where pictures and links into the repository lead nowhere; their texts stay."""
    text = re.sub(r"^!\[.*\n+", "", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    return re.sub(r"\[([^\]]*)\]\((?!https?:)[^)]*\)", r"\1", text)


# Paddle imports setuptools wherever it runs, but requires it on Python 3.12 only; an environment made by
# uv, for one, has none.
PADDLE_RUNTIME = ["setuptools"]

# `make-dataset captcha` draws with the one, curves are drawn with the other.
QUICKSTART = ["captcha", "matplotlib"]

# paddle2onnx has no wheel for Python 3.13: there, these extras read ONNX files and do not write them.
PADDLE2ONNX = "paddle2onnx>=2.1,<3; python_version < '3.13'"

# Reads and writes `inference.onnx`. Tried: paddle2onnx 2.1.0, which takes onnx 1.17.0, and onnxruntime 1.31.1.
ONNX = ["onnxruntime>=1.17", PADDLE2ONNX, "onnx"]

# Computes frozen networks where it is faster than Paddle. Tried: openvino 2026.4.0; a major version may rename options.
OPENVINO = ["openvino>=2026,<2027", PADDLE2ONNX]

# Brings a released recogniser, PP-OCRv6 small, for `predict`: no other package that we found on PyPI has one of v6. A
# major version may move the file. Tried: rapidocr 3.10.0.
WEIGHTS = ["rapidocr>=3.10,<4", *ONNX]

# Tests with real weights need the file whose digest we know; where it is missing they are skipped.
REAL_WEIGHTS = ["rapidocr==3.10.0"]

# Searches for settings; with Ray also on several machines. Tried: optuna 5.0.0, ray 2.60.0.
TUNE = ["optuna>=4", "matplotlib"]

# Each of these watches a run; none is needed to train.
WRITERS = {"tensorboard": ["tensorboardX"], "visualdl": ["visualdl"], "wandb": ["wandb"]}
ALL_WRITERS = [package for packages in WRITERS.values() for package in packages]

EXTRAS = {
    # Paddle is an extra because its CPU and GPU builds install the same module and exclude each other.
    "cpu": ["paddlepaddle>=3,<4", *PADDLE_RUNTIME],
    # PyPI stops at 2.6.2 (Python up to 3.12), so that is what this extra brings where no Paddle is. No numpy is
    # pinned with it: 2.6.2 asks for >=1.13, and its CPU build runs our main job with numpy 1.26 and with 2.4
    # (docs/paddleocr.md).
    # Builds 3.x for GPU are on Paddle's own index, which a requirement cannot name:
    #   pip install paddlepaddle-gpu -i https://www.paddlepaddle.org.cn/packages/stable/cu126/
    # Installed first, such a build satisfies this extra, and is neither replaced nor given another numpy.
    "gpu": ["paddlepaddle-gpu>=2.6.2,<4", *PADDLE_RUNTIME],
    "quickstart": QUICKSTART,
    "onnx": ONNX,
    "openvino": OPENVINO,
    "weights": WEIGHTS,
    "tune": TUNE,
    "tune-ray": [*TUNE, "ray[tune]"],
    **WRITERS,
    "test": [
        *["pytest>=8", "pytest-xdist", "hypothesis"],
        *[*QUICKSTART, *ONNX, *OPENVINO, *TUNE, *ALL_WRITERS, *REAL_WEIGHTS],
    ],
}

setup(
    version=version(),
    long_description=long_description(),
    long_description_content_type="text/markdown",
    packages=[*find_packages(include=["ppocr_ext", "ppocr_ext.*"]), *config_packages()],
    package_dir={"ppocr_ext": "ppocr_ext", "ppocr_ext.configs": "configs"},
    package_data={"ppocr_ext": ["py.typed", "dictionaries/*"], "": ["*.yml", "*.txt", "*.json"]},
    extras_require=EXTRAS,
)
