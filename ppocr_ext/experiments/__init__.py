"""Experiments whose results stand in docs/results.md; each goes on where it was stopped."""
