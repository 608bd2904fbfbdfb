"""Faults that tests plant into a run: a bad value in one step."""

import numpy as np

from ppocr_ext.loop.events import Hook


class Plant(Hook):
    """Call ``fault(run)`` right before the batches of the steps with these numbers (from 1) are seen."""

    def __init__(self, fault, *steps):
        self.fault, self.steps, self.positions, self.applied = fault, steps, [], []

    def on_start(self, run, training):
        self.run = run
        self._plant(training.start.global_step)

    def on_step(self, step):
        self.positions.append(step.position.global_step)
        self._plant(step.position.global_step)

    def _plant(self, steps_done):
        if steps_done + 1 in self.steps:
            self.fault(self.run)


def infinite_pixel(run):
    """One pixel of the fourth image is infinite."""
    change_next_images(run, lambda images: images.__setitem__((3, 0, 5, 5), np.inf))


def times_1e19(run):
    """The whole batch is too large, and finite."""
    change_next_images(run, lambda images: images.__imul__(np.float32(1e19)))


def change_next_images(run, change):
    def before_forward(layer, inputs):
        hook.remove()
        images = inputs[0].numpy().copy()
        change(images)
        inputs[0].set_value(images)

    hook = run.network.register_forward_pre_hook(before_forward)


def nan_weights(run):
    """The CTC classifier has no number left."""
    weight = getattr(run.network, "Student", run.network).head.ctc_head.fc.weight
    weight.set_value(np.full(weight.shape, np.nan, "float32"))


def nan_loss(run):
    """A part of the next loss is NaN."""
    losses = run.training.loss.losses
    real = losses["NRTRLoss"]

    def once(predicts, batch):
        losses["NRTRLoss"] = real
        return {"loss": real(predicts, batch)["loss"] * float("nan")}

    losses["NRTRLoss"] = once


def blanks_alone(run):
    """The CTC classifier gives the blank all probability."""
    bias = run.network.head.ctc_head.fc.bias
    bias.set_value(60.0 * np.eye(1, bias.shape[0], dtype="float32")[0])


def one_text(run):
    """The CTC classifier reads class 3 in every frame of every image."""
    classifier = run.network.head.ctc_head.fc
    classifier.weight.set_value(np.zeros(classifier.weight.shape, "float32"))
    classifier.bias.set_value(30.0 * np.eye(1, classifier.bias.shape[0], 3, dtype="float32")[0])


def end_alone(run):
    """The NRTR branch, or a decoder alone, gives ``</s>``, class 3, all probability at every place."""
    decoder = getattr(run.network.head, "gtc_head", run.network.head)
    norm, projection = decoder.decoder[-1].norm3, decoder.tgt_word_prj.weight
    norm.weight.set_value(np.zeros(norm.weight.shape, "float32"))
    norm.bias.set_value(np.ones(norm.bias.shape, "float32"))
    rows = np.zeros(projection.shape, "float32")
    rows[:, 3] = 1.0
    projection.set_value(rows)
