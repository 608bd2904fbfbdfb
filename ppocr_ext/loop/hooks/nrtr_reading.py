"""Read images with the NRTR branch during a training, beside the CTC reading of an evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import paddle

from ppocr_ext.losses.base_loss import required_outputs
from ppocr_ext.modeling import BaseModel, DistillationModel
from ppocr_ext.modeling.head_request import HeadRequest
from ppocr_ext.recognition.ctc_text import read_sequence
from ppocr_ext.run.run import Run

_GREEDY = HeadRequest(frozenset({"gtc"}), decode=True, as_dict=False)


class NrtrReader:
    """Decode greedily with the NRTR branch of the sub-model that a run evaluates.

    Args:
        run: a training run.

    Attributes:
        exists: that sub-model has an NRTR branch, and the loss trains it.
    """

    def __init__(self, run: Run) -> None:
        network = run.network
        name = None
        if isinstance(network, DistillationModel):
            name = getattr(run.metric, "key", None)
            network = network.models.get(str(name))
        head = getattr(network, "head", None)
        has_branch = isinstance(network, BaseModel) and "gtc" in getattr(head, "branches", ())
        self.exists = has_branch and (name, "gtc") in (required_outputs(run.loss) or ())
        self._run = run
        self._network = network

    def read(self, images: Sequence[np.ndarray]) -> list[str]:
        """Return the texts.

        Args:
            images: normalised, float [C, H, W]; narrower ones are padded with zeros on the right.
        """
        if len({image.shape[:2] for image in images}) > 1:
            return [text for image in images for text in self.read([image])]
        width = max(image.shape[2] for image in images)
        padded = [np.pad(image, ((0, 0), (0, 0), (0, width - image.shape[2]))) for image in images]
        amp = self._run.amp
        model = self._run.model
        was_training = model.training
        model.eval()
        try:
            # not as a decorator: Paddle's would leave gradients switched off after a call inside a call
            with (
                paddle.no_grad(),
                paddle.amp.auto_cast(
                    enable=amp.scaler is not None,
                    custom_white_list=amp.white_list,
                    custom_black_list=amp.black_list,
                    level=amp.level,
                    dtype=amp.dtype,
                ),
            ):
                # not a compiled `forward`: it would be compiled anew for each shape
                output: Any = BaseModel.forward(
                    self._network, paddle.to_tensor(np.stack(padded)), request=_GREEDY
                )
        finally:
            if was_training:
                model.train()
        ids = output["head_out"] if isinstance(output, dict) else output
        sequences = zip(ids[0].numpy(), ids[1].numpy(), strict=True)
        return [read_sequence(*each, self._run.charset).text for each in sequences]
