"""Describe labels and images before a training: counts, rare characters, doubtful text, duplicates; no Paddle."""
