"""Read the operators and weights of an inference model without running it: Paddle's two forms, and ONNX.

Weights: ``.pdiparams`` has the tensors one after another, in the order of their sorted names.
Graph: ``inference.json`` is JSON, ``inference.pdmodel`` and ONNX are protobuf messages.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ppocr_ext.errors import MissingPackageError, WeightsError
from ppocr_ext.io.protobuf import MAX_FIELDS, fields
from ppocr_ext.limits import MAX_RECORD_BYTES, most_memory, read_at_most
from ppocr_ext.messages import INSTALL_ONNX

MAX_MODEL_BYTES = 2 << 30  # protobuf has no longer messages
# types of Paddle's VarType: float16, float32, float64, and integers
_TYPES = {
    1: np.int16,
    22: np.uint16,
    4: np.float16,
    5: np.float32,
    6: np.float64,
    0: np.bool_,
    2: np.int32,
    3: np.int64,
    20: np.uint8,
    21: np.int8,
}
_TYPE, _SIZE = 1, 2  # fields of the message before a tensor
# Our name of an operator, and its names in Paddle's old and new form and in ONNX. The last three return the numbers of
# their first input: in another type, in another shape, or a part of them or another order.
_NAMES = {
    "conv": ("conv2d", "depthwise_conv2d", "Conv"),
    "norm": ("batch_norm", "batch_norm_", "BatchNormalization"),
    "layer_norm": ("layer_norm", "LayerNormalization"),
    "matmul": ("matmul", "matmul_v2", "MatMul"),
    "add": ("add", "elementwise_add", "Add"),
    "multiply": ("multiply", "elementwise_mul", "Mul"),
    "rnn": ("rnn", "LSTM"),
    "to_type": ("cast", "assign", "Cast", "Identity"),
    "to_shape": (
        *("reshape", "reshape2", "unsqueeze", "unsqueeze2", "squeeze"),
        *("Reshape", "Unsqueeze", "Squeeze", "Flatten"),
    ),
    "to_part": ("Slice", "Split", "Transpose"),
}
_KINDS = {name: kind for kind, names in _NAMES.items() for name in names}
_QUANTIZED = (
    "QuantizeLinear",
    "DequantizeLinear",
    "ConvInteger",
    "MatMulInteger",
    "QLinearConv",
    "quantize_linear",
)
# operators of ONNX by which a converter makes a weight of other weights
_CONSTANT = (
    "Constant",
    "Identity",
    "Cast",
    "Reshape",
    "Squeeze",
    "Unsqueeze",
    "Slice",
    "Concat",
    "Transpose",
    "Add",
)
# the order of inputs, where the old form sorts them by name
_INPUTS = {
    "conv": ("Input", "Filter"),
    "norm": ("X", "Scale", "Bias", "Mean", "Variance"),
    "layer_norm": ("X", "Scale", "Bias"),
    "rnn": ("Input", "WeightList"),
}
_OF_PIR_NORM = (0, 3, 4, 1, 2)  # image, factor, shift, mean, variance of batch_norm_
_OUTPUT = "fetch"  # Paddle's operator whose inputs are the outputs of the graph
_NO_VALUES = (_OUTPUT, "feed")


class Operator(NamedTuple):
    """An operator of a graph.

    Attributes:
        kind: a key of ``_NAMES``, or the file's own name of it.
        inputs: names of weights and of values, in the order of ONNX.
        outputs: names of values.
    """

    kind: str
    inputs: Sequence[str]
    outputs: Sequence[str]


class GraphFile(NamedTuple):
    """A graph as its file describes it.

    Attributes:
        weights: the arrays by name; float16 is converted to float32.
        operators: in the order of the data: each after those that its inputs come from, from the first input on. This
            order does not depend on that of the file.
    """

    weights: Mapping[str, np.ndarray]
    operators: Sequence[Operator]


def read_graph(graph: Path, weights: Path | None) -> GraphFile:
    """Return the operators and weights of an inference model.

    Args:
        graph: an ONNX file, ``inference.json`` or ``inference.pdmodel``.
        weights: the ``.pdiparams`` file; None for ONNX.

    Raises:
        MissingPackageError: the package that reads the file is not installed.
        WeightsError: the weights are quantized.
        Exception: an exception of any class, for a damaged file.
    """
    if weights is None:
        arrays, operators = _read_onnx(graph)
    else:
        read = _read_pir if graph.suffix == ".json" else _read_program
        shapes, operators = read(read_at_most(graph, MAX_RECORD_BYTES))
        arrays = _read_weights(read_at_most(weights, MAX_MODEL_BYTES), shapes)
    if any(each.kind in _QUANTIZED for each in operators) or any(
        array.dtype in (np.int8, np.uint8) and array.ndim > 1 for array in arrays.values()
    ):
        raise WeightsError(
            f"{graph}: its weights are quantized to integers, which cannot be trained. Fix: give the model in "
            f"float32 or float16.",
            code="quantized_weights",
        )
    return GraphFile(
        {
            name: array.astype(np.float32) if array.dtype == np.float16 else array
            for name, array in arrays.items()
        },
        list(_in_order(operators)),
    )


def _in_order(operators: Sequence[Operator]) -> Iterator[Operator]:
    """Yield the operators that the outputs depend on, each after those that its inputs come from."""
    makers = {name: operator for operator in operators for name in operator.outputs}
    waiting = [(each, False) for each in operators if each.kind == _OUTPUT][::-1]
    seen: set[int] = set()
    while waiting:
        operator, is_ready = waiting.pop()
        if is_ready:
            yield operator
        elif id(operator) not in seen:
            seen.add(id(operator))
            waiting.append((operator, True))
            waiting += [(makers[name], False) for name in operator.inputs[::-1] if name in makers]


def _read_onnx(file: Path) -> tuple[dict[str, np.ndarray], list[Operator]]:
    try:
        import onnx
        from onnx.reference import ReferenceEvaluator
    except ImportError as error:
        raise MissingPackageError(
            f"{file} cannot be read without the package onnx. Fix: {INSTALL_ONNX}", code="missing_package"
        ) from error
    model = onnx.load_model(file)
    graph = model.graph
    versions = {each.domain: each.version for each in model.opset_import}
    arrays = {
        each.name: onnx.numpy_helper.to_array(each)
        for each in graph.initializer
        if each.data_type != onnx.TensorProto.STRING
    }
    left = 2 * most_memory(file.stat().st_size)  # a converter copies weights, and makes float32 of float16
    operators = [Operator(_OUTPUT, [each.name for each in graph.output], [])]
    for node in graph.node:
        # NumPy would keep each text at the length of the longest
        has_text = any(
            each.s
            or each.strings
            or onnx.TensorProto.STRING in (each.t.data_type, each.i if each.name == "to" else None)
            for each in node.attribute
        )
        if node.op_type in _CONSTANT and not has_text and all(name in arrays for name in node.input):
            given = [arrays[name] for name in node.input]
            # the values of a sum alone may be larger than all that it gets
            if left < 8 * (np.broadcast(*given).size if node.op_type == "Add" else sum(map(np.size, given))):
                raise ValueError("the constants made of its weights are larger than weights can be")
            values = ReferenceEvaluator(node, opsets=versions).run(
                None, dict(zip(node.input, given, strict=True))
            )
            left -= sum(each.nbytes for each in values)
            arrays.update(zip(node.output, values, strict=True))
            continue
        operators.append(Operator(_KINDS.get(node.op_type, node.op_type), node.input, node.output))
    return arrays, operators


def _read_pir(content: bytes) -> tuple[dict[str, list[int]], list[Operator]]:
    """Return the shapes of the weights by name, and the operators."""
    (region,) = json.loads(content)["program"]["regions"]
    names: dict[int, str] = {}
    shapes: dict[str, list[int]] = {}
    operators = []
    for entry in region["blocks"][0]["ops"]:
        made = entry["O"] if isinstance(entry["O"], list) else [entry["O"]]
        if entry["#"] == "p":  # a weight
            names[made[0]["%"]] = entry["A"][3]
            if 0 not in made[0]["TT"]["D"][1]:  # the state of an LSTM, which is not in the file of weights
                shapes[entry["A"][3]] = made[0]["TT"]["D"][1]
            continue
        own = entry["#"].rpartition(".")[2]
        inputs = [names.get(each["%"], f"%{each['%']}") for each in entry.get("I", ())]
        if own == "batch_norm_":
            inputs = [inputs[at] for at in _OF_PIR_NORM]
        operators.append(Operator(_KINDS.get(own, own), inputs, [f"%{each['%']}" for each in made]))
    return shapes, operators


def _read_program(content: bytes) -> tuple[dict[str, list[int]], list[Operator]]:
    """Do the same as :func:`_read_pir` for the old form."""
    from paddle.base.proto import framework_pb2

    program = framework_pb2.ProgramDesc()
    program.ParseFromString(content)
    block = program.blocks[0]
    field = "dense_tensor" if hasattr(block.vars[0].type, "dense_tensor") else "lod_tensor"  # before Paddle 3
    shapes = {
        each.name: list(getattr(each.type, field).tensor.dims)
        for each in block.vars
        if each.persistable and each.name not in _NO_VALUES
    }
    operators = []
    for each in block.ops:
        inputs = {entry.parameter: list(entry.arguments) for entry in each.inputs}
        kind = _KINDS.get(each.type, each.type)
        order = _INPUTS.get(kind, sorted(inputs, key=lambda name: (name != "X", name)))
        listed = [name for key in order for name in inputs.get(key, ())]
        operators.append(Operator(kind, listed, [name for entry in each.outputs for name in entry.arguments]))
    return shapes, operators


def _read_weights(content: bytes, shapes: Mapping[str, Sequence[int]]) -> dict[str, np.ndarray]:
    """Return the arrays of a ``.pdiparams`` file by name; ``shapes`` are those of the graph.

    Raises:
        ValueError: the file is truncated, or has other arrays than the graph.
    """
    arrays = dict(zip(sorted(shapes), read_tensors(content), strict=True))
    for name, array in arrays.items():
        if list(array.shape) != list(shapes[name]):
            raise ValueError(
                f"{name} is {list(array.shape)} in the weights, but {list(shapes[name])} in the graph"
            )
    return arrays


def read_tensors(content: bytes) -> Iterator[np.ndarray]:
    """Yield the arrays of a ``.pdiparams`` file: without a copy, in the order of the file.

    Raises:
        ValueError: it is empty, truncated or something else.
    """
    at = described = 0  # the second one counts bytes before tensors

    def take(dtype: Any, count: int = 1) -> np.ndarray:
        nonlocal at
        if at + count * np.dtype(dtype).itemsize > len(content):
            raise ValueError(f"it is truncated (found {len(content):,} bytes)")
        array = np.frombuffer(content, dtype, count, at)
        at += array.nbytes
        return array

    while at < len(content) or not at:
        start = at
        (version,), (levels,), (inner,), (size,) = map(take, (np.uint32, np.uint64, np.uint32, np.uint32))
        described += int(size)
        if version or levels or inner or described > MAX_FIELDS:
            raise ValueError(f"byte {start} starts no tensor")
        numbers = list(fields(memoryview(take(np.uint8, int(size)).tobytes())))
        dims = [value for key, value in numbers if key == _SIZE and isinstance(value, int)]
        kind = dict(numbers).get(_TYPE)
        if kind not in _TYPES:
            raise ValueError(f"byte {start} starts a tensor of an unknown type ({kind})")
        yield take(_TYPES[kind], math.prod(dims)).reshape(dims)
