"""Label files, their check before training, and images made as they are asked for."""
