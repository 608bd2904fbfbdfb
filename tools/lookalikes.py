#!/usr/bin/env python3
"""The same as `ppocr-ext lookalikes`."""

if __name__ == "__main__":
    from run_command import run

    run("lookalikes")
