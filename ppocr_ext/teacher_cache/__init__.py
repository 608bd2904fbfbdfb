"""Stored outputs of a frozen teacher: written once by `ppocr-ext cache-teacher`, looked up in training."""
