"""Find the layers with weights in a graph: convolutions, norms, linear layers, affines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ppocr_ext.errors import PPOCRExtError, WeightsError
from ppocr_ext.inference.graph_file import GraphFile, Operator, read_graph
from ppocr_ext.modeling.restore import Norm, Unit


def read_units(graph: Path, weights: Path | None) -> list[Unit]:
    """Return the layers with weights of an inference model in the order of the data.

    A bias, a BatchNorm and an affine that directly follow a convolution become part of its unit.

    Args:
        graph: an ONNX file, ``inference.json`` or ``inference.pdmodel``.
        weights: the ``.pdiparams`` file; None for ONNX.

    Raises:
        MissingPackageError: the package that reads the file is not installed.
        WeightsError: a file is damaged, the two files do not belong together, or the weights are quantized.
    """
    try:
        search = _Search(read_graph(graph, weights))
        for operator in search.graph.operators:
            search.read(operator)
    except PPOCRExtError:
        raise
    except Exception as error:  # protobuf and onnx raise any class
        raise WeightsError(
            f"{graph}: its graph or weights cannot be read ({type(error).__name__}: {error}). Fix: get the files "
            f"again; graph and weights must be of one model.",
            code="damaged_file",
        ) from error
    return [
        unit for unit in search.units if unit.bias is not None or unit.kind not in ("affine", "layer_norm")
    ]


@dataclass
class _Search:
    """The state of a search.

    Attributes:
        graph: the graph.
        units: those that are found.
        makers: the unit whose output a value is, by the name of the value.
        aliases: a weight, or the weights of a list, by the name of a value with the same numbers.
        factors: the unit before an affine, if any, by the name of its product with the factor.
        moved: values whose numbers another operator has only moved. ONNX multiplies parts of an attention by a number.
    """

    graph: GraphFile
    units: list[Unit] = field(default_factory=list)
    makers: dict[str, Unit] = field(default_factory=dict)
    aliases: dict[str, list[str]] = field(default_factory=dict)
    factors: dict[str, Unit | None] = field(default_factory=dict)
    moved: set[str] = field(default_factory=set)

    def weight(self, name: str) -> np.ndarray | None:
        """Return the weight that a value is; None for a value that depends on the images."""
        (name, *_) = self.aliases.get(name, [name])
        found = self.graph.weights.get(name)
        return found if found is not None and found.dtype.kind == "f" else None

    def array(self, name: str) -> np.ndarray:
        """Return a weight.

        Raises:
            ValueError: it depends on the images.
        """
        found = self.weight(name)
        if found is None:
            raise ValueError(f"{name} is no weight")
        return found

    def read(self, operator: Operator) -> None:
        """Read the next operator."""
        kind, inputs, outputs = operator
        if kind in ("to_type", "to_shape", "to_part") and inputs:
            self._read_move(kind, inputs[0], outputs)
        elif kind == "combine":
            self.aliases[outputs[0]] = list(inputs)
        elif kind == "conv":
            bias = self.weight(inputs[2]) if len(inputs) > 2 else None
            self._new(Unit("conv", inputs[1], self.array(inputs[1]), bias), outputs[0])
        elif kind == "layer_norm":
            factor, shift = map(self.array, inputs[1:3])
            self._new(Unit("layer_norm", inputs[1], factor, shift), outputs[0])
        elif kind == "norm":
            self._read_norm(inputs, outputs[0])
        elif kind == "rnn":
            self._read_rnn(inputs, outputs[0])
        elif kind == "matmul":
            matrix = self.weight(inputs[1])
            if matrix is not None and matrix.ndim == 2:
                self._new(Unit("linear", inputs[1], matrix), outputs[0])
        elif kind in ("add", "multiply"):
            for value, name in (inputs[:2], inputs[1::-1]):
                weight = self.weight(name)
                if weight is not None and self.weight(value) is None:
                    self._read_factor(kind, value, name, weight, outputs[0])
                    break

    def _read_move(self, kind: str, value: str, outputs: Sequence[str]) -> None:
        if self.weight(value) is not None and kind != "to_part":
            self.aliases[outputs[0]] = self.aliases.get(value, [value])
            return
        if kind != "to_type" or value in self.moved:
            self.moved.update(outputs)
        if kind != "to_part" and value in self.makers:
            self.makers[outputs[0]] = self.makers[value]

    def _new(self, unit: Unit, output: str) -> None:
        self.units.append(unit)
        self.makers[output] = unit

    def _read_norm(self, inputs: Sequence[str], output: str) -> None:
        norm = Norm(*map(self.array, inputs[1:5]))
        before = self.makers.get(inputs[0])
        if before is None or before.kind != "conv" or before.norm or before.affine:
            self._new(Unit("norm", inputs[1], norm.factor, norm=norm), output)
        else:
            before.norm = norm
            self.makers[output] = before

    def _read_rnn(self, inputs: Sequence[str], output: str) -> None:
        """Read an LSTM: in Paddle one operator for all layers, in ONNX one for each."""
        names = [name for each in dict.fromkeys(inputs[1:]) for name in self.aliases.get(each, [each])]
        arrays = [array for name in names if (array := self.weight(name)) is not None]
        if arrays and arrays[0].ndim == 3:  # ONNX; after these, it may have the first state
            cells = [array for cell in zip(*arrays[:3], strict=True) for array in _cell_of_onnx(*cell)]
            if self.units and self.units[-1].kind == "rnn":
                self.units[-1].arrays += cells
                return
        else:  # all matrices, then all biases
            half = len(arrays) // 2
            pairs = zip(range(0, half, 2), range(half, len(arrays), 2), strict=True)
            cells = [arrays[at] for matrix, bias in pairs for at in (matrix, matrix + 1, bias, bias + 1)]
        self._new(Unit("rnn", names[0], cells[0], arrays=cells), output)

    def _read_factor(self, kind: str, value: str, name: str, weight: np.ndarray, output: str) -> None:
        """Read a weight that is added to a value or multiplied with it."""
        maker = self.makers.get(value)
        if kind == "multiply":
            if weight.shape == (1,) and value not in self.moved:
                self._new(Unit("affine", name, weight), output)
                self.factors[output] = maker
            elif weight.ndim == 1 and weight.size > 1:  # of a LayerNorm that ONNX has in parts
                self._new(Unit("layer_norm", name, weight), output)
        elif maker is None or maker.kind == "rnn" or maker.bias is not None or maker.norm is not None:
            return
        elif (maker.kind != "affine" or weight.shape == (1,)) and (
            weight.size == maker.kernel.shape[0 if maker.kind == "conv" else -1]
        ):
            maker.bias = weight.reshape(-1)
            before = self.factors.get(value)
            if before is not None and before.kind == "conv" and before.affine is None:
                before.affine = (maker.kernel, maker.bias)
                self.units.remove(maker)
                maker = before
            self.makers[output] = maker


def _cell_of_onnx(kernel: np.ndarray, recurrent: np.ndarray, bias: np.ndarray) -> list[np.ndarray]:
    """Return the four arrays of a direction of an LSTM with Paddle's order of gates: input, forget, cell, output."""
    listed = (kernel, recurrent, *np.split(bias, 2))
    return [np.concatenate([np.split(array, 4)[gate] for gate in (0, 2, 3, 1)]) for array in listed]
