"""Does it learn: one batch learned by heart, and tests of a head's structure."""
