"""Write LMDBs of text lines, as PaddleOCR reads them."""

from __future__ import annotations

import cv2
import lmdb
import numpy as np

IMAGE = cv2.imencode(".png", np.full((8, 24, 3), 200, np.uint8))[1].tobytes()


def write_lmdb(folder, labels, count=None, images=None, **others):
    """Write an LMDB; a label or an image None is not written. ``images``: by the number of the sample, from 1."""
    folder.mkdir(parents=True)
    images = images or {}
    with lmdb.open(str(folder), map_size=1 << 24) as environment, environment.begin(write=True) as put:
        for number, label in enumerate(labels, start=1):
            if label is not None:
                put.put(b"label-%09d" % number, label if isinstance(label, bytes) else label.encode())
            image = images.get(number, IMAGE)
            if image is not None:
                put.put(b"image-%09d" % number, image)
        put.put(b"num-samples", str(len(labels) if count is None else count).encode())
        for key, value in others.items():
            put.put(key.encode(), value)
    return folder
