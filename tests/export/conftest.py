"""One small recogniser for all tests of this folder, and one export of it."""

from one_conv import exported, trained

__all__ = ["exported", "trained"]
