"""Files of feature centers, as `ppocr-ext export-center` writes them."""

from __future__ import annotations

import numpy as np

from ppocr_ext.characters.center_table import CenterTable


def centers_file(path, centers, ids=None, characters=None, **meta):
    """Write centers [classes, features] of the class ids (0 and so on) with these names; return the path as text."""
    ids = np.arange(len(centers)) if ids is None else np.array(ids, np.int64)
    names = tuple(map(str, ids) if characters is None else characters)
    counts, variance = np.full(len(ids), 2), np.ones(len(ids))
    CenterTable(ids, names, np.asarray(centers, np.float32), counts, variance, meta).save(path)
    return str(path)
