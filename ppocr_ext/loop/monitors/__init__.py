"""Find a training that has collapsed: measurements, rules with ranges of healthy runs, and the NRTR reading."""
