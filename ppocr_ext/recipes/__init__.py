"""Whole jobs made of several runs, such as the quickstart."""
