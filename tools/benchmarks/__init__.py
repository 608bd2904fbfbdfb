"""What training and centers cost, as ratios measured in one run."""
