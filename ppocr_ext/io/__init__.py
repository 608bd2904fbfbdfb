"""Files: atomic writes, plain pickles, what ships with the package."""
