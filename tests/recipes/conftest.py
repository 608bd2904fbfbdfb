"""A tiny distillation on a handful of CAPTCHAs: everything a run has, in seconds."""

from tiny_runs import captchas, tiny

__all__ = ["captchas", "tiny"]
