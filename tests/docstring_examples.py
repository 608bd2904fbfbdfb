"""Run the example that a docstring begins with."""

from collections.abc import Mapping
from doctest import DocTestParser, DocTestRunner


def check_example(documented: object, names: Mapping[str, object]) -> None:
    """Check that an example follows the first sentence of a docstring, and that it gives what it says.

    ``names`` are the variables that it uses.
    """
    text = documented.__doc__ or ""
    assert text.split("\n\n")[1].lstrip().startswith(">>> ")
    said: list[str] = []
    example = DocTestParser().get_doctest(text, dict(names), "example", None, None)
    result = DocTestRunner().run(example, out=said.append)
    assert (result.failed, result.attempted) == (0, 1), "".join(said)
