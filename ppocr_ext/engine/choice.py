"""Which engine is the fastest for a graph: measured once, and kept beside the graph."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np

from ppocr_ext.engine.graph_cache import note_file
from ppocr_ext.engine.graph_maker import GraphMaker, NetworkGraph, chunk_size, first_line
from ppocr_ext.engine.request_graph import ImageShape
from ppocr_ext.engine.runners import PADDLE, other_engines
from ppocr_ext.io.atomic import write_text
from ppocr_ext.limits import read_json_object
from ppocr_ext.messages import LOG

WORTH = 300.0  # seconds that Paddle must have to compute; to open and time the others takes about 15
MARGIN = 0.95  # of Paddle's seconds, which another engine may take at most
_ROUNDS = 3  # after one to warm up


def kept_choice(maker: GraphMaker, image_shape: ImageShape, dtype: str) -> str | None:
    """Return the engine that was chosen at an earlier start with this processor, threads and packages, if any."""
    file, engine = _file(maker, image_shape, dtype), ""
    try:
        engine = str(read_json_object(file)["engine"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError):
        LOG.info("%s is damaged: the engines are timed again", file)
    if engine in (PADDLE, *other_engines(dtype)):
        return engine
    with suppress(OSError):
        file.unlink()  # else none could be kept
    return None


def choose(
    maker: GraphMaker, graph: NetworkGraph, image_shape: ImageShape, width: int, dtype: str, images: int
) -> tuple[str, NetworkGraph]:
    """Time the engines that are installed, if Paddle would compute for ``WORTH`` or longer, and keep the choice.

    Args:
        maker: of the graphs.
        graph: Paddle's.
        image_shape: of that graph.
        width: of the images of the run.
        dtype: of the computation.
        images: that will be computed.

    Returns:
        The fastest engine with its graph; Paddle unless another one is at least 5 % faster. One that fails is left
        out; if it may not fail another time, the choice is not kept. Processes that choose at the same time take the
        choice of the first one; Paddle where they cannot.
    """
    graphs, seconds = {PADDLE: graph}, {PADDLE: float("inf")}
    count, may_pass = chunk_size(image_shape[1], width), False
    probe = maker.probe(count, image_shape, width)
    if _seconds(graphs, *probe, rounds=1)[PADDLE] / count * images < WORTH:
        return PADDLE, graph
    for engine in other_engines(dtype):
        try:
            other = maker.open(image_shape, width, engine, dtype)
            timed = _seconds({PADDLE: graph, engine: other}, *probe, rounds=_ROUNDS)
        except Exception as error:  # whatever the library makes of the graph, also when it runs
            LOG.info("%s: %s is left out: %s", maker.name, engine, first_line(error))
            may_pass |= not maker.refuses(image_shape, engine, dtype)
        else:
            graphs[engine] = other
            seconds |= timed | {PADDLE: min(seconds[PADDLE], timed[PADDLE])}
    best = min(seconds, key=lambda engine: seconds[engine])
    engine = best if seconds[best] <= MARGIN * seconds[PADDLE] else PADDLE
    times = ", ".join(f"{name} {time:.4f}" for name, time in seconds.items())
    LOG.info("%s is computed by %s; seconds of %d images: %s", maker.name, engine, count, times)
    if may_pass:
        return engine, graphs[engine]
    _keep(_file(maker, image_shape, dtype), {"engine": engine, "seconds": seconds, "images": count})
    engine = kept_choice(maker, image_shape, dtype) or engine
    return (engine, graphs[engine]) if engine in graphs else (PADDLE, graph)


def _file(maker: GraphMaker, image_shape: ImageShape, dtype: str) -> Path:
    facts = (maker.threads, sorted(other_engines(dtype).items()), MARGIN)
    return note_file(maker.key(image_shape), f"choice-{dtype}", *facts)


def _keep(file: Path, choice: Mapping[str, object]) -> None:
    """Write the choice, unless there is one."""
    with suppress(OSError), tempfile.NamedTemporaryFile("w", dir=file.parent, prefix=".part-") as part:
        json.dump(choice, part)
        part.flush()
        try:
            with suppress(FileExistsError):  # another process was first
                os.link(part.name, file)
        except OSError:  # this file system has no hard links
            write_text(file, json.dumps(choice))


def _seconds(
    graphs: Mapping[str, NetworkGraph], images: np.ndarray, target: np.ndarray | None, rounds: int
) -> dict[str, float]:
    """Return the seconds of each graph's fastest pass, taken in turns after one to warm up."""
    found = dict.fromkeys(graphs, float("inf"))
    for turn in range(rounds + 1):
        for engine, graph in graphs.items():
            began = time.perf_counter()
            graph.run(images, target)
            if turn:
                found[engine] = min(found[engine], time.perf_counter() - began)
    return found
