"""The command line: one module a command, each with ``EPILOG``, ``add_arguments`` and ``run``."""
