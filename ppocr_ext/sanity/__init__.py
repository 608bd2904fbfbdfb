"""Test whether a network learns one batch by heart, and test the structure of its heads."""
