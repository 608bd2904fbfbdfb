"""PaddleOCR's own center export, changed as people change it by hand, in a process of its own.

``python hand_patched.py CHECKOUT CONFIG OUT``: runs the checkout's ``tools/export_center.py`` on a config of one
MultiHead recogniser, and writes ``OUT``, a pickle of ``{class id: (center, frames)}``. The script itself writes
``train_center.pkl`` to the current folder. What is changed, in memory alone: a CTCHead gives its features in
evaluation too, and the lines are read in evaluation mode and without gradients.
"""

import importlib
import pickle
import runpy
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

UNUSED = (
    "imgaug",
    "imgaug.augmenters",
    "huggingface_hub",
)  # by evaluation; not every machine can import them


def stand_in_for_what_is_unused() -> None:
    """Let modules be imported that only training needs."""
    for name in UNUSED:
        try:
            importlib.import_module(name)
        except Exception:  # imgaug on numpy 2 fails in its own way
            sys.modules[name] = MagicMock()


def give_features_in_evaluation(head_class: Any) -> None:
    """``forward`` gives (features, probabilities), features being the input of the last linear layer."""
    forward = head_class.forward

    def patched(self: Any, x: Any, targets: Any = None) -> Any:
        seen: list[Any] = []
        layer = self.fc if self.mid_channels is None else self.fc2
        handle = layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
        out = forward(self, x, targets)
        handle.remove()
        return seen[0], out

    head_class.forward = patched


def read_in_evaluation_mode(program: Any, counts: dict[int, int]) -> None:
    """``get_center`` in eval mode and without gradients; ``counts`` gets the frames of each class."""
    import paddle

    get_center, update_center = program.get_center, program.update_center

    def counting(*arguments: Any) -> Any:
        centers = update_center(*arguments)
        counts.update({int(c): int(entry[1]) for c, entry in centers.items()})
        return centers

    def in_evaluation(model: Any, *arguments: Any) -> Any:
        model.eval()
        with paddle.no_grad():
            return get_center(model, *arguments)

    program.update_center, program.get_center = counting, in_evaluation


def main(checkout: str, config: str, out: str) -> None:
    """Run the changed export."""
    sys.path.insert(0, checkout)
    stand_in_for_what_is_unused()
    program = importlib.import_module("tools.program")
    give_features_in_evaluation(importlib.import_module("ppocr.modeling.heads.rec_ctc_head").CTCHead)
    counts: dict[int, int] = {}
    read_in_evaluation_mode(program, counts)
    script = Path(checkout, "tools", "export_center.py")
    sys.argv = [str(script), "-c", config]
    runpy.run_path(str(script), run_name="__main__")
    with Path("train_center.pkl").open("rb") as stream:
        centers = pickle.load(stream)
    with Path(out).open("wb") as stream:
        pickle.dump({int(c): (center, counts[int(c)]) for c, center in centers.items()}, stream)


if __name__ == "__main__":
    main(*sys.argv[1:])
