"""Optimizers and learning-rate schedules by PaddleOCR's names; importing this registers them.

The learning rate changes at every step. ``group_lr: true``, which PaddleOCR uses for the last stage of VisionLAN, is an
error; write ``lr_mult: {"*": 0.1, "head.MLM_VRM.MLM.*": 1.0, "head.MLM_VRM.Prediction.pp_share.*": 1.0,
"head.MLM_VRM.Prediction.w_share.*": 1.0}``.

Keys of ``Optimizer``:
    name: the optimizer.
    lr: the schedule: its ``name`` (default ``Const``) and its keys.
    weight_decay: L2 decay of all parameters; or ``regularizer: {name: L1 or L2, factor: F}`` instead.
    clip_norm: largest norm of each gradient.
    clip_norm_global: largest norm of all gradients together.
    lr_mult: ``{pattern: factor}``: other rates for parts of the network.

Keys of ``Optimizer.lr``:
    name: the schedule, default ``Const``.
    learning_rate: the highest rate, except for ``OneCycle`` and ``Piecewise``.
    warmup_epoch: epochs (may be a fraction) in which the rate rises linearly from 0 before the schedule starts.
"""

from ppocr_ext.optim.optimizers import build_lr_scheduler, build_optimizer, option_errors

__all__ = ["build_lr_scheduler", "build_optimizer", "option_errors"]
