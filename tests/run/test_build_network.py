"""A part that cannot be built is named by its place in the config, or by that of its option from the command line."""

import pytest
from error_codes import raises_code

from ppocr_ext.config import load, resolve_charset, with_class_counts
from ppocr_ext.errors import ModelError
from ppocr_ext.host import open_host
from ppocr_ext.io.atomic import write_text
from ppocr_ext.run.run import build_network

PART = "Architecture.Models.Student.Backbone"


@pytest.mark.parametrize(
    ("option", "path", "code"),
    [
        (f"{PART}.dims=[16, 17, 32]", f"{PART}.dims", "bad_value"),
        (f"{PART}={{name: SVTRv2, dims: [16, 17]}}", f"{PART}.dims", "length_mismatch"),
        (f"{PART}.dims={{}}", f"{PART}.dims", "length_mismatch"),
        (f"{PART}.dims=16", PART, "bad_value"),
    ],
)
def test_the_part_at_fault_is_named(tiny, tmp_path, option, path, code):
    write_text(tmp_path / "my.yml", tiny("distill").to_yaml())
    config = load([tmp_path / "my.yml"], [option])
    config = with_class_counts(config, resolve_charset(config, open_host().find_file))
    with raises_code(ModelError, code, f"{path}: "):
        build_network(config, resolve_charset(config, open_host().find_file))
