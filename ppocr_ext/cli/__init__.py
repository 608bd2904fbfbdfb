"""The command line: one module a command, each with ``NAME``, ``HELP``, ``add_arguments`` and ``run``."""
