"""What ``tools/benchmark.py`` measures. A command calls ``measure_COMMAND`` of the module with its name.

- Commands: ``step``, ``engine``, ``infer``, ``labels``; ``whole`` is the command ``all``, with the table
  ``whole_rows``, the chart ``charts``, the inputs ``export_center_data`` and ``step_data``, and the work ``stepping``,
  ``passes`` and ``limits``.
- Shared: ``fresh`` starts a process, ``memory`` measures peaks, ``peer`` imports a checkout of PaddleOCR, ``sizes`` has
  the two sizes of networks, ``table`` prints.
"""
