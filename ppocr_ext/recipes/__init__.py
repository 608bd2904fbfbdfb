"""Jobs of several runs: the quickstart."""
