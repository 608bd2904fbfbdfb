"""Experiments, each from nothing to a table; each goes on where it was stopped."""
