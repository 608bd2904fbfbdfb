"""Evaluate a recogniser, and count what it confuses."""
