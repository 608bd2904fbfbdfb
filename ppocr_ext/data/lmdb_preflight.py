"""The old name of :mod:`ppocr_ext.data.preflight`, for one version."""

import sys
import warnings

from ppocr_ext.data import preflight

warnings.warn(
    "ppocr_ext.data.lmdb_preflight is ppocr_ext.data.preflight now", DeprecationWarning, stacklevel=2
)
sys.modules[__name__] = preflight
