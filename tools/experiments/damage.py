"""Damage files at random: bits, lengths, numbers, types; or replace a file by a link, a folder, a pipe."""

from __future__ import annotations

import io
import json
import os
import pickle
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import yaml

_DEEP: list[Any] = []
for _ in range(300):
    _DEEP = [_DEEP]
VALUES = [
    None, True, -1, 0, 7, 10**9, 10**18, 10**30, 0.5, 1e308, float("nan"), float("inf"), "", "a", "\x1b[31m\x9b\u202e",
    "../" * 8 + "etc/passwd", "x" * 70_000, [], [1, "a", None], {}, {"a": {"b": 1}}, _DEEP,
]  # fmt: skip
_NUMBERS = b"-1 0 1e999 nan -1e-400 1:59:59 0x7fffffffffffffff".split() + [b"9" * 30, b"9" * 5000]
_BYTES = [
    b"\0",
    b"\xff" * 8,
    b"\x7f\xff\xff\xff",
    b"\n",
    b"\t",
    b"\x1b]0;title\x07",
    b"[" * 3000,
    b"\xe2\x80\xae",
]
_CELLS = [b'"', b"'=1+1", b"\\u001b", b"\xe2\x80\xa8", b"../../etc/passwd", b"/dev/zero", b""]
_ARRAYS = [np.zeros(0), np.full(3, np.nan), np.array(["a", "\x1b"]), np.zeros((0, 5), "int8"), np.array(3)]


def damage(file: Path, draw: random.Random, secret: Path) -> str:
    """Damage ``file``, or replace it by something else; return what was done.

    Args:
        file: exists.
        draw: makes the choices.
        secret: a file that a link may lead to; nothing may change it.
    """
    kind = draw.random()
    if kind < 0.12:
        return _replace(file, draw, secret)
    change = _CHANGES.get(file.suffix)
    if change is not None and kind < 0.65:
        try:
            content, text = change(file.read_bytes(), draw)
        except (ValueError, yaml.YAMLError, OverflowError, RecursionError) as error:  # it cannot be written
            content, text = _bytes(file.read_bytes(), draw)
            text += f" ({type(error).__name__})"
    else:
        content, text = _bytes(file.read_bytes(), draw)
    file.write_bytes(content)
    return text


def _replace(file: Path, draw: random.Random, secret: Path) -> str:
    file.unlink()
    links = {"device": Path("/dev/zero"), "link": secret, "dangling link": file.with_name("nowhere")}
    sizes = {"sparse": 3 << 30, "small sparse": 100 << 20, "empty": 0}
    what = draw.choice(["pipe", "folder", "missing", *links, *sizes])
    if what == "pipe":
        os.mkfifo(file)
    elif what == "folder":
        file.mkdir()
    elif what in links:
        file.symlink_to(links[what])
    elif what in sizes:
        with file.open("wb") as stream:
            stream.truncate(sizes[what])
    return what


def _bytes(content: bytes, draw: random.Random) -> tuple[bytes, str]:
    """Change bytes anywhere, or near the start, where files keep sizes."""
    data = bytearray(content)
    end = len(data) if draw.random() < 0.5 else min(len(data), 256)
    places = [draw.randrange(end + 1) for _ in range(draw.randint(1, 12))]
    how = draw.choice(["flip", "cut", "insert", "remove", "repeat", "number", "overwrite"])
    if how == "cut":
        del data[places[0] :]
    for at in places:
        if how == "flip" and at < len(data):
            data[at] ^= 1 << draw.randrange(8)
        elif how == "insert":
            data[at:at] = draw.choice(_BYTES)
        elif how == "overwrite":
            new = draw.choice(_BYTES)[:8]
            data[at : at + len(new)] = new
    if how == "remove":
        del data[places[0] : places[0] + draw.randint(1, 200)]
    elif how == "repeat":
        data[places[0] : places[0]] = bytes(data[places[0] : places[0] + 200]) * draw.choice([1, 50, 2000])
    elif how == "number":
        numbers = list(re.finditer(rb"\d+", content))
        if numbers:
            number = draw.choice(numbers)
            data[number.start() : number.end()] = draw.choice(_NUMBERS)
    return bytes(data), how


def _change_value(tree: Any, draw: random.Random, values: list[Any] = VALUES) -> tuple[Any, str]:
    """Replace, remove or rename a value of nested dicts and lists."""
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
        for key in keys:
            places.append((node, key))
            walk(node[key])

    walk(tree)
    if not places or draw.random() < 0.05:
        value = draw.choice(values)
        return value, f"all is {str(value)[:30]!r}"
    node, key = draw.choice(places)
    if draw.random() < 0.15:
        del node[key]
        return tree, f"{key!r} is removed"
    if isinstance(node, dict) and draw.random() < 0.15:
        new = draw.choice([5, "\x1b[2J", "", None, "x" * 3000])
        node[new] = node.pop(key)
        return tree, f"{key!r} is called {str(new)[:20]!r}"
    node[key] = draw.choice(values)
    return tree, f"{key!r} is {str(node[key])[:30]!r}"


def _json(content: bytes, draw: random.Random) -> tuple[bytes, str]:
    tree, text = _change_value(json.loads(content), draw)
    return json.dumps(tree).encode(), text


def _json_line(content: bytes, draw: random.Random) -> tuple[bytes, str]:
    lines = content.splitlines(keepends=True)
    number = draw.randrange(len(lines))
    line, text = _json(lines[number], draw)
    lines[number] = line + b"\n"
    return b"".join(lines), f"line {number + 1}: {text}"


def _yaml(content: bytes, draw: random.Random) -> tuple[bytes, str]:
    tree, text = _change_value(yaml.safe_load(content), draw)
    return yaml.safe_dump(tree, allow_unicode=draw.random() < 0.5, sort_keys=False).encode(), text


def _pickle(content: bytes, draw: random.Random) -> tuple[bytes, str]:
    values = [*VALUES, *_ARRAYS, b"\xff", (1, 2), {1: 2}, {(1, 2): 3}, {2**70: 1}, {1, 2}]
    tree, text = _change_value(pickle.loads(content), draw, values)  # this program has written it
    return pickle.dumps(tree, draw.choice([2, 4])), text


def _npz(content: bytes, draw: random.Random) -> tuple[bytes, str]:
    with np.load(io.BytesIO(content)) as whole:
        arrays = dict(whole)
    name = draw.choice(sorted(arrays))
    value = arrays.pop(name)
    changes: dict[str, Callable[[], Any]] = {
        "float": lambda: value.astype("float64") if value.dtype.kind in "iufb" else value,
        "text": lambda: value.astype("U"),
        "flat": lambda: value.reshape(-1),
        "empty": lambda: value[:0] if value.ndim else value,
        "longer": lambda: np.concatenate([value, value]) if value.ndim else value,
        "scalar": lambda: np.array(3),
        "wide": lambda: np.repeat(value, 3, axis=-1) if value.ndim else value,
    }
    how = draw.choice(["gone", "renamed", "value", *changes])
    if how != "gone":
        arrays["other" if how == "renamed" else name] = changes.get(how, value.copy)()
        if how == "value" and value.size and value.dtype.kind in "iuf":
            spoilt = arrays[name].reshape(-1)
            spoilt[draw.randrange(len(spoilt))] = draw.choice([-1, 120, 2**31 - 1])
            arrays[name] = spoilt.reshape(value.shape)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue(), f"{name}: {how}"


def _table(content: bytes, draw: random.Random) -> tuple[bytes, str]:
    rows = [line.split(b"\t") for line in content.split(b"\n")]
    row = draw.choice(rows)
    cells = [*_NUMBERS, *_BYTES, *_CELLS]
    how = draw.choice(["cell", "more", "fewer"])
    if how == "cell":
        row[draw.randrange(len(row))] = draw.choice(cells)
    elif how == "more":
        row += [draw.choice(cells)] * draw.choice([1, 1000])
    else:
        row.pop()
    return b"\n".join(b"\t".join(row) for row in rows), how


_CHANGES: dict[str, Callable[[bytes, random.Random], tuple[bytes, str]]] = {
    ".json": _json,
    ".jsonl": _json_line,
    ".yml": _yaml,
    ".npz": _npz,
    **dict.fromkeys((".pdparams", ".pdopt", ".states", ".pkl"), _pickle),
    **dict.fromkeys((".tsv", ".txt"), _table),
}
