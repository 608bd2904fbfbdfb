"""Facts for all other parts of the package; this part imports nothing of it."""
