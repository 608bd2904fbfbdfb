"""Make messages for any exception, also from Paddle or a worker process of a loader, and parts of messages."""

from __future__ import annotations

import difflib
import errno
import json
import logging
import os
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ppocr_ext.errors import PPOCRExtError

LOG = logging.getLogger("ppocr_ext")
INSTALL_PADDLE = "pip install 'ppocr-ext[cpu]'"
# The extras leave paddle2onnx out where it has no wheel, see setup.py.
_LEFT_OUT = " (for Python 3.13 this leaves out paddle2onnx, which writes ONNX: use Python 3.12)"
_PADDLE2ONNX = _LEFT_OUT if sys.version_info >= (3, 13) else ""
INSTALL_ONNX = f"pip install 'ppocr-ext[onnx]'{_PADDLE2ONNX}"
INSTALL_OPENVINO = f"pip install 'ppocr-ext[openvino]'{_PADDLE2ONNX}"
INSTALL_QUICKSTART = "pip install 'ppocr-ext[quickstart]'"
INSTALL_LIBRARIES = "apt-get install -y libgl1 libglib2.0-0 libgomp1"
# What OpenCV and Paddle load of these; images of containers often lack them.
_LIBRARY = re.compile(r"lib(GL|glib|gthread|xcb|gomp)\S*: cannot open shared object file")
DEBUG = "(run again with --debug to see where)"
_WORKER = re.compile(r"DataLoader worker\(\d+\) caught \w+ with message:\n")
# The last line of a traceback: the exception's dotted name, then its message.
_LAST_LINE = re.compile(r"^(?P<type>[A-Za-z_][\w.]*): (?P<message>.*)", re.MULTILINE | re.DOTALL)
_PADDLE_ERROR = re.compile(r"^\([A-Z]\w+\) ")
# Places in Paddle's source, and hints for its authors.
_PADDLE_NOISE = re.compile(r"\s*\[Hint: .*|\s*\(at [^()]*:\d+\)|\s*\[operator < [^<>]* > error\]", re.DOTALL)
# All of Unicode's category "Cc" except tab and line feed, line and paragraph separators, characters that change the
# direction of text, and halves of surrogate pairs.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_REPLACED = re.compile(r"\\u[0-9a-f]{4}")
_WITHIN_PARAGRAPH = re.compile(r"(?<=[^\s:])\n(?=\S)")
_GAP = re.compile(r"(?<=\S) {2,}")  # between two columns
_MARGIN = re.compile(r" *(?:# )?")
_LINE_START = 1500  # characters that a message keeps of a very long line
_LINE_END = 500
_FIXES = {
    errno.ENOSPC: "free some space, or write to another place",
    errno.EACCES: "choose a folder that you may write to",
    errno.EPERM: "choose a folder that you may write to",
    errno.EROFS: "choose a folder that can be written to",
    errno.EEXIST: "choose another name, or move that file away",
    errno.ENOTDIR: "choose another name, or move that file away",
    errno.EISDIR: "give the name of a file, not of a folder",
    errno.EMFILE: "close other programs, or raise the limit: `ulimit -n 4096`",
}
_PACKAGE_FIXES = {
    "paddle": INSTALL_PADDLE,
    "captcha": INSTALL_QUICKSTART,
    "matplotlib": INSTALL_QUICKSTART,
    "optuna": "pip install 'ppocr-ext[tune]'",
    "ray": "pip install 'ppocr-ext[tune-ray]'",
}
_OTHER_PACKAGE = (
    "pip install ppocr-ext (in a clone: pip install .); `ppocr-ext doctor` shows what is still missing."
)
MEMORY = (
    "Not enough memory. Fix: use a smaller Train.loader.batch_size_per_card (Eval.loader… in an evaluation), or fewer "
    "loader.num_workers"
)
WORKER_ENDED = (
    "A worker process of a loader has ended, killed for lack of memory or of shared memory. Fix: use fewer "
    "loader.num_workers, set loader.use_shared_memory: false, or give more of it (docker run --shm-size 8g)."
)
_KILLED_WORKER = "DataLoader process (pid"  # Paddle's own error, which it raises wherever the run is


def printable(text: str) -> str:
    """Return ``text`` with control characters, and marks that change its direction, written as ``\\u001b``.

    Line ends, tabs and characters of any script stay. In a JSON string and between double quotes in YAML, the result
    means the same.
    """
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def unprintable(text: str) -> str:
    """Return ``text`` with the character for each ``\\u001b``, also for the ``\\u005c`` of a backslash."""
    return _REPLACED.sub(lambda found: chr(int(found[0][2:], 16)), text)


def for_people(text: str) -> str:
    """Return ``text`` for a message: :func:`printable`, and only the start and the end of very long lines."""
    return "\n".join(_cut(line) for line in printable(text).split("\n"))


def _cut(line: str) -> str:
    left_out = len(line) - _LINE_START - _LINE_END
    if left_out <= 0:
        return line
    return f"{line[:_LINE_START]} … {left_out:,} characters left out … {line[-_LINE_END:]}"


def shortened(names: Sequence[str], most: int, separator: str = ", ") -> str:
    """Return the first ``most`` of ``names`` joined, and how many more there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return separator.join(names[:most]) + more


def fit(text: str, width: int | None = None) -> str:
    """Return ``text`` with long lines wrapped at spaces.

    Lines at the left margin form paragraphs, which end at an empty line or a colon. In an indented line with two
    columns, the second is wrapped below its start, or moves below the first. A command, in which
    nothing in quotes has a space, continues after a backslash.

    Args:
        text: the lines.
        width: columns; None for those of the terminal. If the output goes elsewhere, lines stay as they are.
    """
    columns = width or shutil.get_terminal_size((sys.maxsize, 0)).columns
    lines: list[str] = []
    for line in _WITHIN_PARAGRAPH.sub(" ", text).split("\n"):
        head, *tail = _GAP.split(line, maxsplit=1)
        column = len(line) - len(tail[0]) if tail else 0
        if len(line) <= columns:
            lines.append(line)
        elif column > columns // 2:
            lines += [fit(head, columns), fit(f"      {tail[0]}", columns)]
        else:
            is_command = not tail and head.startswith(f"  {PROGRAM} ")
            end, margin = (" \\", "      ") if is_command else ("", _MARGIN.findall(line[column:])[0])
            wrapped = textwrap.wrap(
                line[column:],
                columns - len(end),
                initial_indent=line[:column],
                subsequent_indent=" " * column + margin,
                break_long_words=False,
                break_on_hyphens=False,
            )
            lines.append(f"{end}\n".join(wrapped))
    return "\n".join(lines)


def did_you_mean(name: object) -> str:
    """Return the hint ``" Did you mean 'x'?"``, to append to a sentence; empty if ``name`` is None."""
    return "" if name is None else f" Did you mean {name!r}?"


def near_match(name: str, known: Iterable[Any], cutoff: float = 0.75) -> str | None:
    """Return the known name that ``name`` misspells, in any case of letters; None if none is near.

    Args:
        name: the name that the user wrote.
        known: the names that exist.
        cutoff: least similarity (difflib's ratio). The default is for refusing a key; for a hint, 0.6 is enough.
    """
    by_folded = {str(each).casefold(): str(each) for each in sorted(known, key=str)}
    near = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=cutoff)
    return by_folded[near[0]] if near else None


def path_hint(name: str) -> str:
    """Return the right form of a missing path with ``\\``, ``D:``, ``~`` or spaces at its ends; empty for others."""
    # Path.expanduser would drop "./", and fail for an unknown user
    right = os.path.expanduser(name.strip().replace("\\", os.sep))  # noqa: PTH111
    if re.match("[A-Za-z]:/", right):
        return f" It is a path of Windows; in WSL it is {f'/mnt/{right[0].lower()}{right[2:]}'!r}."
    return did_you_mean(None if right == name else right)


def is_misspelling(name: str, known: Iterable[str]) -> bool:
    """Return True if ``name`` is near a known name, but is not that name with an addition (``MyCTCHead``)."""
    near = near_match(name, known)
    return near is not None and abs(len(near) - len(name)) <= 1


def lacks_library(error: BaseException) -> bool:
    """Return True if an import failed for lack of a library that ``INSTALL_LIBRARIES`` installs."""
    return isinstance(error, ImportError) and _LIBRARY.match(str(error)) is not None


def error_text(error: BaseException) -> str:
    """Return the message for a user, which says what happened, and the fix if it is known.

    The message for an unexpected exception says that ``--debug`` shows where it was raised.
    """
    kind, message = _without_traceback(str(error))
    if isinstance(error, PPOCRExtError) or kind.startswith("ppocr_ext.") and kind.endswith("Error"):
        return message
    if isinstance(error, ModuleNotFoundError):
        package = (error.name or "").partition(".")[0]
        reason = "Paddle is not installed" if package == "paddle" else str(error)
        return f"{reason}. Fix: {_PACKAGE_FIXES.get(package, _OTHER_PACKAGE)}"
    if lacks_library(error):
        return f"{error}. Fix: {INSTALL_LIBRARIES}"
    if isinstance(error, OSError) and error.errno is not None:
        name = error.filename2 or error.filename  # for a rename, the final name, not the temporary one
        fix = _FIXES.get(error.errno)
        if error.errno == errno.ENOSPC and not name:  # such as a lock between processes
            fix = "free some space, or give more shared memory (docker run --shm-size 8g)"
        return f"{f'{name}: ' if name else ''}{error.strerror or error}.{f' Fix: {fix}.' if fix else ''}"
    if isinstance(error, MemoryError):
        detail = _paddle_message(str(error))
        text = f"{MEMORY}{f' ({detail})' if detail else ''}."
    elif isinstance(error, RecursionError):
        text = f"Something is nested too deeply, or refers to itself: {error}."
    elif message == WORKER_ENDED or _KILLED_WORKER in message:
        text = WORKER_ENDED
    elif not _PADDLE_ERROR.match(message) and "Error Message Summary" not in message:
        text = f"internal error: {kind or type(error).__name__}: {message}"
    elif "ResourceExhausted" in message or "Out of memory" in message:
        text = f"{MEMORY} ({_paddle_message(message)})."
    else:
        text = f"Paddle failed: {_paddle_message(message)}"
    return f"{text} {DEBUG}"


def end_text(error: BaseException) -> str:
    """Return the message of the exception that ended a run, without the hint at ``--debug``."""
    if not isinstance(error, Exception):  # a signal
        return type(error).__name__
    return error_text(error).removesuffix(DEBUG).rstrip()


def _paddle_message(text: str) -> str:
    """Return Paddle's own sentence, without its C++ traceback and other noise."""
    summary = text.rpartition("Error Message Summary:")[2]
    lines = [line for line in summary.splitlines() if line.strip() and not line.startswith("-----")]
    return _PADDLE_NOISE.sub("", "\n".join(lines)).strip()


def _without_traceback(text: str) -> tuple[str, str]:
    """Return (exception, message) from the traceback that a worker process sent, or ``("", text)`` without one."""
    if not _WORKER.match(text):
        return "", text
    last = _LAST_LINE.search(text.rpartition('\n  File "')[2])
    return (last["type"], last["message"].strip()) if last else ("", text.splitlines()[0])


def metric_text(name: str, value: float) -> str:
    """Return a metric of an evaluation in a line of the log, such as ``acc 98.70 %`` or ``1 - NED 0.9794``."""
    if name.endswith(("acc", "acc_with_space")):
        return f"{name} {100 * value:.2f} %"
    return f"{name.replace('norm_edit_dis', '1 - NED')} {value:.4f}"


PROGRAM = "ppocr-ext"


def command_line(name: str, *words: str | Path, host: str | None = None) -> str:
    """Return the command ``ppocr-ext NAME WORDS``, with ``--host DIR`` if one is given, quoted for a shell."""
    options = [] if host is None else ["--host", host]
    return shlex.join([PROGRAM, name, *options, *map(str, words)])


def run_command(name: str, checkpoint: Path, host: str | None) -> str:
    """Return the command ``name`` for a checkpoint of a run, with the config of its run folder."""
    if (name, checkpoint.name) == ("train", "latest"):
        return command_line(name, "--resume", checkpoint.parent, host=host)
    if (name, checkpoint.name) == ("eval", "best_accuracy"):
        return command_line(name, checkpoint.parent, host=host)
    config = checkpoint.parent / "config.yml"
    weights = setting("Global.checkpoints", checkpoint)
    return command_line(name, "-c", config, "-o", weights, host=host)


def setting(key: str, value: str | Path) -> str:
    """Return ``KEY=VALUE`` for ``-o``, quoted so that YAML reads the same text back."""
    return f"{key}={yaml_text(str(value))}"


def yaml_text(text: str) -> str:
    """Return ``text`` on one line of YAML, in quotes unless it is read back as it is."""
    import yaml  # the command line starts faster without it

    plain = re.fullmatch(r"[A-Za-z_./~][\w./~ -]*[\w]", text) is not None and yaml.safe_load(text) == text
    return text if plain else json.dumps(text, ensure_ascii=False)
