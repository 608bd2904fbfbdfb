"""Files of a checkpoint: names, journal, weights, class rows, training state."""
