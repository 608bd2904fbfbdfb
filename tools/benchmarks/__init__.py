"""What ``tools/benchmark.py`` measures. A command calls ``measure_COMMAND`` of the module of its name.

- Commands: ``step`` (``processes`` with ``--processes``), ``engine``, ``infer`` and ``labels``. ``whole`` is the
  command ``all``, ``whole_rows`` its table.
- Their parts: ``X_worker`` is what the processes of X do, ``X_data`` what they are given.
- Shared: ``fresh`` starts a process for some work, ``processes`` some that take steps together, ``memory`` measures
  peaks, ``limits`` the arithmetic limit, ``peer`` finds a checkout of PaddleOCR, ``sizes`` has the two sizes of
  networks, ``table`` prints, ``charts`` draws.
"""
