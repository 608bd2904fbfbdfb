"""The images of tiny runs."""

from tiny_runs import captchas

__all__ = ["captchas"]
