#!/usr/bin/env python3
"""The same as `ppocr-ext sanity`."""

if __name__ == "__main__":
    from run_command import run

    run("sanity")
