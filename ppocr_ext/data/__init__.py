"""Label files, their check before training, and the labels of a batch."""
