"""LMDBs of text lines: read, checked, written."""
