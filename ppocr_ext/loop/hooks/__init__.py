"""Hooks of a run, one feature each."""
