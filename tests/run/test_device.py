"""What a run sets for the CPU."""

from __future__ import annotations

import pytest

from ppocr_ext.run.device import is_amd_with_avx2

INFO = "processor\t: 0\nvendor_id\t: {vendor}\nmodel name\t: some\nflags\t\t: fpu sse2 {flags} bmi1\n"


@pytest.mark.parametrize(
    ("vendor", "flags", "expected"),
    [
        ("AuthenticAMD", "avx avx2", True),
        ("AuthenticAMD", "avx avx2_vnni", False),
        ("GenuineIntel", "avx avx2", False),
    ],
)
def test_amd_processors_with_avx2_are_told_from_others(vendor: str, flags: str, expected: bool) -> None:
    assert is_amd_with_avx2(INFO.format(vendor=vendor, flags=flags)) is expected
