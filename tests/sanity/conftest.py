"""Configs of tiny networks, and of those of the quickstart with short texts."""

from sanity_runs import short_texts
from tiny_runs import captchas, tiny

__all__ = ["captchas", "short_texts", "tiny"]
