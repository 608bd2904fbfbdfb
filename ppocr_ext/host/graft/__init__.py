"""Packages of ``ppocr`` that the paddleocr wheel lacks, re-exporting ours.

This folder is put on ``ppocr.__path__``, so ``ppocr.modeling`` is ``modeling`` here.
"""
