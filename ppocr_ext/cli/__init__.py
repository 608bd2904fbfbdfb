"""The command line: one module for each command, with ``EPILOG``, ``add_arguments`` and ``run``."""
