"""Facts about characters: centers, look-alikes, names of symbols."""
