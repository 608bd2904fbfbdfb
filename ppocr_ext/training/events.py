"""The old name of :mod:`ppocr_ext.loop.events`, for one version."""

import sys
import warnings

from ppocr_ext.loop import events

warnings.warn("ppocr_ext.training.events is ppocr_ext.loop.events now", DeprecationWarning, stacklevel=2)
sys.modules[__name__] = events
