#!/usr/bin/env python3
"""The same as `ppocr-ext doubtful`."""

if __name__ == "__main__":
    from run_command import run

    run("doubtful")
