"""What a run sets for the CPU."""

import os
import sys

import pytest

from ppocr_ext.run import context
from ppocr_ext.run.context import is_amd_with_avx2, tune_cpu

INFO = "processor\t: 0\nvendor_id\t: {vendor}\nmodel name\t: some\nflags\t\t: fpu sse2 {flags} bmi1\n"


@pytest.mark.parametrize(
    ("vendor", "flags", "expected"),
    [
        ("AuthenticAMD", "avx avx2", True),
        ("AuthenticAMD", "avx avx2_vnni", False),
        ("GenuineIntel", "avx avx2", False),
    ],
)
def test_amd_processors_with_avx2_are_told_from_others(vendor, flags, expected):
    assert is_amd_with_avx2(INFO.format(vendor=vendor, flags=flags)) is expected


@pytest.mark.skipif(sys.platform != "linux", reason="other systems are left as they are")
@pytest.mark.parametrize(
    ("vendor", "given", "expected"),
    [("AuthenticAMD", None, "5"), ("AuthenticAMD", "", ""), ("GenuineIntel", None, None)],
)
def test_mkl_is_told_on_a_processor_of_amd_alone(monkeypatch, tmp_path, vendor, given, expected):
    monkeypatch.setenv("MKL_DEBUG_CPU_TYPE", given or "")
    if given is None:
        monkeypatch.delenv("MKL_DEBUG_CPU_TYPE")
    (tmp_path / "cpuinfo").write_text(INFO.format(vendor=vendor, flags="avx2"))
    monkeypatch.setattr(context, "_CPU_INFO", tmp_path / "cpuinfo")
    tune_cpu()
    assert os.environ.get("MKL_DEBUG_CPU_TYPE") == expected
