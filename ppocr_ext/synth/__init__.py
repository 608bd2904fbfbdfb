"""Drawn data: text lines, CAPTCHAs, glyphs of fonts."""
