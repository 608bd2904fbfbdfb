"""Networks compiled for their device: the graph of what is asked for, its files, and what runs it."""
