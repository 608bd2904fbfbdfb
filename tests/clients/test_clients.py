"""Real clients read what the trained network reads, each in an environment of its own and without network.

One command runs all, from the root of the repository:

    PPOCR_EXT_CLIENTS=/path/to/folder pytest -m clients tests/clients -s

It needs Linux, Python 3.11, the package registry for its first run, and 4 GB in the folder (`output/clients` if none
is named). In the folder it builds an environment for each client, and trains two students:
`quickstart/student` (`ppocr-ext quickstart --stages student`; policy squash) and `pad` (pad_model.yml: digits,
letters and spaces). What is there already is used as it is, so a run of your own can take the place of these:
put it, or a link to it, at `pad` or `quickstart`. `results.md` there has the rows of the table in docs/deploy.md.
On two cores that other work shared, `pad` took 16 minutes, and the tests with both students 25 minutes.

The lines that a client runs are those of the model card, and the command that `ppocr-ext export` printed. A client has
no network: it runs in a network namespace (`unshare -rn`), or, where the system does not allow one, behind a proxy that
does not exist; `results.md` says which. Without `-m clients` these tests are deselected.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from client_environments import WITHOUT_PADDLE, run_offline
from client_models import IMAGES, Student
from client_results import Comparison, Found, Results, compare

from ppocr_ext.export.clients import CLIENT_WIDTH
from ppocr_ext.recognition.ctc_text import Reading
from ppocr_ext.recognition.images import Kind

pytestmark = pytest.mark.clients
RUN_LINES = Path(__file__).with_name("run_lines.py")
LEAST_EQUAL = 0.998
KINDS = ("squash", "pad")


@dataclass(frozen=True)
class Client:
    """A client: its environment, the heading of its lines in the model card, and how it treats a *pad* model.

    Attributes:
        environment: its name.
        heading: in the model card.
        of_pad: the width policy under which it reads a *pad* model, and the widest input.
        replaced: text of the lines, and what takes its place.
    """

    environment: str
    heading: str
    of_pad: tuple[Kind, int | None]
    replaced: tuple[str, str] = ("", "")


WIDEN_TO_LIMIT: tuple[Kind, int | None] = ("widen", CLIENT_WIDTH)
WIDEN: tuple[Kind, int | None] = ("widen", None)
CLIENTS = {
    "PaddleOCR 3.7, oneDNN": Client("paddleocr37", "PaddleOCR 3.7, Python", WIDEN_TO_LIMIT),
    "PaddleOCR 3.7, without oneDNN": Client(
        "paddleocr37",
        "PaddleOCR 3.7, Python",
        WIDEN_TO_LIMIT,
        ('device="cpu"', 'device="cpu", enable_mkldnn=False'),
    ),
    "PaddleOCR 3.7, ONNX Runtime, no Paddle": Client(
        "paddleocr37_onnx", "PaddleOCR 3.7 with ONNX Runtime, Python", WIDEN_TO_LIMIT
    ),
    "RapidOCR 3.10": Client("rapidocr", "RapidOCR 3.10", WIDEN),
    "ONNX Runtime 1.31": Client("onnxruntime", "ONNX Runtime", ("pad", None)),
    "PaddleOCR 2.10, Paddle 3.3.1": Client("paddleocr210_paddle33", "PaddleOCR 2.10", WIDEN),
    "PaddleOCR 2.10, Paddle 2.6.2": Client("paddleocr210_paddle26", "PaddleOCR 2.10", WIDEN),
}

Read = Callable[..., list[Found]]


@pytest.fixture(scope="session")
def read_with(
    environment: Callable[[str], Path],
    student_of: Callable[[str], Student],
    tmp_path_factory: pytest.TempPathFactory,
) -> Read:
    """Return what a client reads in all images of a student, with the lines of the model card."""

    @cache
    def read(client: Client, kind: str, batch_size: int | None = None) -> list[Found]:
        student, folder = student_of(kind), tmp_path_factory.mktemp("client")
        exports = student.folder / "exported"
        lines = lines_of_card(exports / kind / "README.md", client.heading)
        assert client.replaced[0] in lines
        wide = [] if batch_size else student.wide
        images = [str(each.image) for each in (*student.samples, *wide)]
        job = {"lines": lines.replace(*client.replaced), "images": images, "batch_size": batch_size}
        (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
        python = environment(client.environment) / "python"
        run_offline([python, RUN_LINES, folder / "job.json", folder / "found.json"], exports, folder)
        return [tuple(each) for each in json.loads((folder / "found.json").read_text(encoding="utf-8"))]

    return read


@pytest.fixture(scope="session")
def network_reads(student_of: Callable[[str], Student]) -> Callable[..., list[Reading]]:
    """Return what the trained network of a student reads under a width policy."""
    return cache(lambda kind, *policy: student_of(kind).read(*policy))


def lines_of_card(card: Path, heading: str) -> str:
    """Return the lines under a heading of a model card."""
    _, _, rest = card.read_text(encoding="utf-8").partition(f"### {heading}\n\n```python\n")
    assert rest, heading
    return rest.partition("\n```")[0]


@pytest.mark.parametrize("kind", KINDS)
def test_the_network_reads_something(
    kind: str,
    student_of: Callable[[str], Student],
    network_reads: Callable[..., list[Reading]],
    results: Results,
) -> None:
    """Equal texts of a network that reads nothing would prove nothing."""
    samples = student_of(kind).samples
    assert len(samples) == IMAGES
    for policy in ("squash",) if kind == "squash" else ("pad", "widen"):
        limit = CLIENT_WIDTH if policy == "widen" else None
        found = network_reads(kind, policy, limit)
        right = sum(one.text == each.label for one, each in zip(found, samples, strict=False))
        with_space = sum(" " in one.text for one in found[: len(samples)])
        results.remarks.append(
            f"{kind} model, read by its network under {policy}: {right} of {IMAGES} right, {with_space} with a space."
        )
        assert len({one.text for one in found}) > 0.9 * len(samples)
        assert right > {"squash": 0.9, "pad": 0.2, "widen": 0.2}[policy] * len(samples)
        assert (with_space > 100) == (kind == "pad")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_reads_what_the_network_reads(
    name: str,
    kind: str,
    read_with: Read,
    network_reads: Callable[..., list[Reading]],
    results: Results,
) -> None:
    client = CLIENTS[name]
    found = read_with(client, kind)
    expected = network_reads(kind, *(client.of_pad if kind == "pad" else ("squash", None)))
    comparison = compare(found[:IMAGES], expected[:IMAGES])
    results.add(name, kind, comparison)
    if found[IMAGES:]:
        limited = network_reads(kind, *(client.of_pad if client.of_pad[0] == "pad" else WIDEN_TO_LIMIT))
        results.add(name, "wide", compare(found[IMAGES:], limited[IMAGES:]))
    errors = [error for text, error in found[:IMAGES] if text is None]
    assert comparison.share >= LEAST_EQUAL, errors[:3]
    assert comparison.difference < 1e-3  # a second softmax changes no text


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_batch_costs_in_paddleocr_3(kind: str, read_with: Read, results: Results) -> None:
    client = CLIENTS["PaddleOCR 3.7, oneDNN"]
    alone, together = read_with(client, kind)[:IMAGES], read_with(client, kind, 8)
    equal = sum(one[0] == other[0] for one, other in zip(alone, together, strict=True))
    results.remarks.append(
        f"PaddleOCR 3.7, {kind}, batch_size=8: {Comparison(equal, IMAGES, 0)} as with batch_size=1."
    )
    if kind == "squash":
        assert equal == IMAGES
    else:
        assert equal < LEAST_EQUAL * IMAGES  # as the card and docs/deploy.md say


@pytest.mark.parametrize("kind", KINDS)
def test_the_printed_command_reads_an_image(
    kind: str,
    environment: Callable[[str], Path],
    student_of: Callable[[str], Student],
    network_reads: Callable[..., list[Reading]],
    tmp_path: Path,
) -> None:
    student = student_of(kind)
    (line,) = re.findall(r"^ +(paddleocr text_recognition .*)$", student.printed, re.MULTILINE)
    policy = ("squash", None) if kind == "squash" else WIDEN_TO_LIMIT
    for number in (0, IMAGES - 1):
        program, *words = shlex.split(line)
        words[words.index("IMAGE")] = str(student.samples[number].image)
        printed = run_offline([environment("paddleocr37") / program, *words], student.folder, tmp_path)
        expected = network_reads(kind, *policy)[number].text
        assert expected and f"'rec_text': {expected!r}" in printed


def test_some_environments_have_no_paddle(environment: Callable[[str], Path]) -> None:
    for name in WITHOUT_PADDLE:
        packages = (environment(name).parent / "lib").glob("python*/site-packages/*")
        assert "paddle" not in {each.name for each in packages}
