"""What each of two processes runs: a step of center loss on lines of its own. Its centers go to the folder given."""

import sys
from pathlib import Path

import numpy as np
import paddle
import paddle.distributed as dist

from ppocr_ext.losses import CenterLoss

CLASSES, DIM = 6, 5


def lines(rank):
    """Features and logits; of class 5 process 0 alone has frames."""
    rng = np.random.default_rng(rank)
    features = rng.normal(size=[3 + rank, 12, DIM]).astype("float32")
    logits = rng.normal(size=[3 + rank, 12, CLASSES]).astype("float32")
    if rank:
        logits[..., 5] = -9.0
    return features, logits


def steps(batches):
    """State after two steps: centers form in the first, and move in the second."""
    loss = CenterLoss(CLASSES, DIM, update="ema", momentum=0.5)
    for features, logits in batches:
        loss((paddle.to_tensor(features), paddle.to_tensor(logits)), [])
    return {name: value.numpy() for name, value in loss.state_dict().items()}


if __name__ == "__main__":
    dist.init_parallel_env()
    rank = dist.get_rank()
    features, logits = lines(rank)
    np.savez(Path(sys.argv[1]) / f"{rank}.npz", **steps([(features, logits), (features + 1.0, logits)]))
