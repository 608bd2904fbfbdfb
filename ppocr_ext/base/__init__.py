"""Facts that every room may read; this room imports nothing of the package."""
