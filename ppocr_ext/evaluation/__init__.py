"""Evaluate a recogniser, and compare what was read."""
