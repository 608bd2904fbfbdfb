#!/usr/bin/env python3
"""The same as `ppocr-ext blend`."""

if __name__ == "__main__":
    from run_command import run

    run("blend")
