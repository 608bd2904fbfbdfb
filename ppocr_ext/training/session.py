"""The old name of :mod:`ppocr_ext.loop.session`, for one version."""

import sys
import warnings

from ppocr_ext.loop import session

warnings.warn("ppocr_ext.training.session is ppocr_ext.loop.session now", DeprecationWarning, stacklevel=2)
sys.modules[__name__] = session
