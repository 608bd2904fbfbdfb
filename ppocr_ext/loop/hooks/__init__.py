"""Hooks of a run, one feature a file."""
