"""Write the numbers of a case of one CTC head: `python tests/write_network_case.py PADDLEOCR model_svtr_stn`.

PADDLEOCR is a checkout, whose own network is built; the file NAME.json of fixtures/networks says which. Weights and
images are those of tests/networks.py.
"""

from __future__ import annotations

import copy
import json
import sys
from typing import Any

import numpy as np
import paddle
from networks import FOLDER, array, image, load_weights, train_without_noise

GIVEN = ("kind", "config", "gain", "head_gain", "input", "smooth", "tolerance", "gradient_tolerance", "seed")
WIDTHS = (320, 104)


def main(checkout: str, name: str) -> None:
    """Run PaddleOCR's network and write both files of the case."""
    sys.path.insert(0, checkout)
    from ppocr.modeling.architectures import build_model

    path = FOLDER / f"{name}.json"
    case: dict[str, Any] = {"second_head": None}
    case |= {key: each for key, each in json.loads(path.read_text()).items() if key in GIVEN}
    network = build_model(copy.deepcopy(case["config"]))
    case["state_dict"] = {key: list(each.shape) for key, each in network.state_dict().items()}
    load_weights(network, case)
    height = int(case["input"].split("3, ")[1].split(",")[0])
    arrays = {f"label_{key}": np.zeros([2, 25], np.int64) for key in ("ctc", "gtc")}
    arrays |= {"length": np.zeros([2], np.int64), "valid_ratio": np.ones([2])}
    for mode, part in (("eval", "probabilities"), ("train", "ctc")):
        network.eval() if mode == "eval" else train_without_noise(network)
        for width in WIDTHS:
            with paddle.no_grad():
                found = network(image(case, height, width))
            arrays[f"{mode}_{part}_{width}"] = (found["ctc"] if isinstance(found, dict) else found).numpy()
    found = network(image(case, height, WIDTHS[0]))
    (found * paddle.to_tensor(array("cotangent_ctc", found.shape, case["seed"]))).sum().backward()
    gradients = {key: each.grad for key, each in network.named_parameters() if each.trainable}
    case["gradient_reaches_backbone"] = {"ctc": True}
    case["gradient_norms"] = {
        key: {"ctc": round(float(each.norm()), 6)} for key, each in gradients.items() if each is not None
    }
    case["parameters_without_gradient"] = [key for key, each in gradients.items() if each is None]
    path.write_text(json.dumps(case, indent=1) + "\n", encoding="utf-8")
    np.savez_compressed(FOLDER / f"{name}.npz", **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])
