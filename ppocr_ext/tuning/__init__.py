"""Search for better settings: the space, its trials, the study that keeps them, and its results."""
