"""From a folder of labelled images to a config that is ready to train."""
