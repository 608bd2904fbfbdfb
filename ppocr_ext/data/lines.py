"""The old name of :mod:`ppocr_ext.synth.lines`, for one version."""

import sys
import warnings

from ppocr_ext.synth import lines

warnings.warn("ppocr_ext.data.lines is ppocr_ext.synth.lines now", DeprecationWarning, stacklevel=2)
sys.modules[__name__] = lines
