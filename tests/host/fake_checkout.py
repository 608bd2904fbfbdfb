"""A PaddleOCR checkout of a few lines, written by the tests that need one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from waiting import HANG

REPOSITORY = Path(__file__).resolve().parents[2]

FILES = {
    "tools/__init__.py": "",
    "tools/program.py": """\
from ppocr.utils.save_load import save_model
from ppocr.data import build_dataloader

def train(config, model, log_writer=None):
    config["Global"].pop("popped")
    model.append((config["profiler_options"], log_writer))
    save_model("latest")

def eval(model, valid_dataloader):
    return {"acc": 1.0, "fps": 2.0}
""",
    "ppocr/__init__.py": "",
    "ppocr/utils/__init__.py": "",
    "ppocr/utils/words.txt": "a\n",
    "ppocr/utils/logging.py": """\
import logging

def get_logger():
    return logging.getLogger("ppocr")
""",
    "ppocr/utils/utility.py": "def set_seed(seed):\n    SEEDS.append(seed)\n\nSEEDS = []\n",
    "ppocr/utils/save_load.py": """\
from ppocr.utils.logging import get_logger

get_logger().warning("Skipping import of the encryption module.")
get_logger().warning("a warning that matters")

def save_model(name):
    raise RuntimeError("the host's own save_model ran")
""",
    "ppocr/data/__init__.py": """\
def build_dataloader(config, mode, device, logger, seed=None):
    raise AssertionError("set elsewhere")
""",
    "ppocr/postprocess/__init__.py": """\
def build_post_process(config, global_config=None):
    name = config.pop("name")
    assert name in ["CTCLabelDecode"], "post process only support ['CTCLabelDecode']"
    return lambda preds: (config, global_config)
""",
    "ppocr/modeling/architectures/__init__.py": "def build_model(config):\n    return 'of the host'\n",
    "ppocr/modeling/backbones/__init__.py": """\
def build_backbone(config, model_type):
    if model_type == "det" or model_type == "table":
        from .det_net import Net
        from .det_only import DetOnly
    elif model_type == "rec" or model_type == "cls":
        from .rec_net import Net
        from .rec_other import make_other, Original as Alias
    elif model_type == "e2e":
        from .e2e_net import Net
""",
    "ppocr/modeling/backbones/det_net.py": "class Net:\n    task = 'det'\n\nclass Helper:\n    pass\n",
    "ppocr/modeling/backbones/rec_net.py": "class Net:\n    task = 'rec'\n",
    "ppocr/modeling/backbones/rec_other.py": """\
class Original:
    pass

class Unlisted:
    pass

def make_other():
    return Original()
""",
    "ppocr/modeling/backbones/det_only.py": "class DetOnly:\n    pass\n\nclass Helper:\n    pass\n",
    "ppocr/modeling/backbones/rec_broken.py": "import package_of_nobody\n\nclass Broken:\n    pass\n",
    "ppocr/losses/__init__.py": """\
from .rec_loss import TheirLoss
from ppocr.losses.one_loss import OneLoss
try:
    from .two_loss import TwoLoss
except ImportError:
    TwoLoss = None

def build_loss(config):
    from paddle import nn
    from . import helpers
    if config["name"] == "ThreeLoss":
        from .three_loss import ThreeLoss
""",
    "ppocr/losses/one_loss.py": "class OneLoss:\n    pass\n",
    "ppocr/losses/rec_loss.py": "class TheirLoss:\n    pass\n",
    "ppocr/optimizer/__init__.py": "",
    "ppocr/optimizer/learning_rate.py": "class TheirSchedule:\n    pass\n",
    "ppocr/metrics/__init__.py": "",
}


def write_checkout(root: Path, changes: dict[str, str | None] | None = None) -> Path:
    """Write the checkout below ``root``; ``changes`` replaces files, or leaves out those that are None."""
    for name, text in {**FILES, **(changes or {})}.items():
        if text is None:
            continue
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def run_python(
    code: str, home: Path | str | None = None, first_on_path: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run ``code`` in a process of its own, since a process can hold one host only."""
    paths = [str(path) for path in (first_on_path, REPOSITORY) if path is not None]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    environment.pop("PADDLEOCR_HOME", None)
    if home is not None:
        environment["PADDLEOCR_HOME"] = str(home)
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        timeout=HANG,
    )
