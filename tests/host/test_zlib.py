"""Paddle 2.6 exports an old zlib; a Python whose zlib is a module of its own must bind to the system's first."""

from __future__ import annotations

from fake_checkout import run_python


def test_whatever_uses_zlib_after_paddle_lives() -> None:
    code = "import ppocr_ext, paddle, zlib; print(zlib.decompress(zlib.compress(b'alive')).decode())"
    result = run_python(code)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.endswith("alive\n")
