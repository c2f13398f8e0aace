"""Exported programs on a device, without the code of the model."""

from __future__ import annotations

import hashlib
import os
import re
from typing import Any

import torch

from torchtpu import _C
from torchtpu.export.expressions import value_of
from torchtpu.export.lower import described
from torchtpu.export.stablehlo import Multiple, Spec, StableHLO


def load(path: str | os.PathLike[str], device: torch.device | str = "tpu") -> Program:
    """Loads a file of [`StableHLO.save`]. The result is called with tensors of that device."""
    return Program(StableHLO.load(path), device)


class Program:
    """An exported program on a device. It takes its inputs in order, without the weights, and returns a tuple of
    outputs."""

    def __init__(self, exported: StableHLO, device: torch.device | str = "tpu") -> None:
        self.device = torch.empty(0, device=device).device
        self.inputs = exported.inputs[len(exported.weights) :]
        self.outputs = exported.outputs
        self._numbers, self._symbols = exported.numbers, exported.symbols
        # For the sizes of earlier calls: the module's numbers, and the shapes of the inputs.
        self._known: dict[tuple[int, ...], tuple[list[int | float], list[list[int]]]] = {}
        self._weights = [weight.to(self.device) for weight in exported.weights.values()]
        self._call = self._compiled(exported)

    def _compiled(self, exported: StableHLO) -> _C.CompiledGraph:
        entry, functions = _renamed(exported.text)
        inputs, outputs = exported.inputs, exported.outputs
        count = len(inputs) + len(exported.numbers)
        # The types of the results. No other code reads the module's types.
        results = range(count, count + len(outputs))
        nodes: list[tuple[str, list[Any], int]] = [
            ("full", [("size", ("zs", _dims(spec))), ("fill_value", ("n", 0)), _dtype(spec)], 1) for spec in outputs
        ]
        arguments: list[tuple[str, Any]] = [("functions", ("s", functions)), ("entry", ("s", entry))]
        arguments += [("inputs", ("vs", list(range(count)))), ("like", ("vs", list(results)))]
        nodes.append(("torchtpu::call", arguments, len(results)))
        graph = (count, nodes, [each + len(results) for each in results])
        sources = list(range(len(results)))
        kinds = "t" * len(inputs) + "n" * len(exported.numbers)
        described_outputs = [(*described(spec), _strides(spec)) for spec in outputs]
        bounds: Any = None
        if exported.numbers:
            sizes = [(len(inputs) + i, number.capacity) for i, number in enumerate(exported.numbers) if number.capacity]
            changing = [(i, _dims(spec), _strides(spec)) for i, spec in enumerate(inputs) if _changes(spec)]
            dims = [_dims(spec) for spec in outputs]
            bounds = (sizes, changing, [*([each] for each in dims), dims])
        return _C.CompiledGraph(
            "an exported program", graph, kinds, [], described_outputs, sources, self.device.index, [], bounds
        )

    def __call__(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if len(inputs) != len(self.inputs):
            raise TypeError(f"the program takes {len(self.inputs)} tensors, not {len(inputs)}")
        for spec, value in zip(self.inputs, inputs, strict=True):
            if value.device != self.device or value.dtype != spec.dtype or value.dim() != len(spec.shape):
                self._refuse(spec, value, self._shape_in_words(spec))
        numbers, shapes = self._sizes(inputs)
        for spec, value, shape in zip(self.inputs, inputs, shapes, strict=True):
            if list(value.shape) != shape:
                self._refuse(spec, value, str(shape))
        return tuple(self._call([*self._weights, *(value.detach() for value in inputs), *numbers]))

    def _sizes(self, inputs: tuple[torch.Tensor, ...]) -> tuple[list[int | float], list[list[int]]]:
        """The module's numbers, and the shapes that they require of the inputs."""
        given = tuple(inputs[symbol.input].size(symbol.dim) for symbol in self._symbols)
        if given not in self._known:
            names: dict[str, int] = {}
            for symbol, size in zip(self._symbols, given, strict=True):
                value, remainder = divmod(size - symbol.rest, symbol.factor)
                if remainder or not symbol.low <= value <= symbol.high:
                    low, high = (symbol.factor * limit + symbol.rest for limit in (symbol.low, symbol.high))
                    steps = "" if symbol.factor == 1 else f" in steps of {symbol.factor}"
                    raise ValueError(
                        f"{self.inputs[symbol.input].name} may be {low} to {high}{steps} long in dimension "
                        f"{symbol.dim}, not {size}"
                    )
                names[symbol.name] = value
            numbers = [value_of(number.expression, names) for number in self._numbers]
            shapes = [
                [size.factor * int(numbers[size.number]) if isinstance(size, Multiple) else size for size in spec.sizes]
                for spec in self.inputs
            ]
            self._known[given] = numbers, shapes
        return self._known[given]

    def _shape_in_words(self, spec: Spec) -> str:
        def word(size: int | Multiple) -> str:
            if isinstance(size, int):
                return str(size)
            expression = self._numbers[size.number].expression
            return expression if size.factor == 1 else f"{size.factor}*({expression})"

        return f"[{', '.join(map(word, spec.sizes))}]"

    def _refuse(self, spec: Spec, value: torch.Tensor, shape: str) -> None:
        given = f"{value.dtype} of shape {list(value.shape)} on {value.device}"
        raise ValueError(f"{spec.name} must be {spec.dtype} of shape {shape} on {self.device}, not {given}")


def _renamed(text: str) -> tuple[str, str]:
    """The functions of a module with names that no other module has, and the name of its `@main`."""
    prefix = f"m{hashlib.sha256(text.encode()).hexdigest()[:16]}_"
    functions = text[text.index("{") + 1 : text.rindex("}")].replace("func.func public ", "func.func private ")
    for name in re.findall(r"^func\.func private @(\w+)\(", functions, re.MULTILINE):
        functions = re.sub(rf"(func\.(?:func private|call) )@{name}\(", rf"\1@{prefix}{name}(", functions)
    return f"{prefix}main", functions


def _dtype(spec: Spec) -> tuple[str, tuple[str, int]]:
    return "dtype", ("d", described(spec)[0])


def _dims(spec: Spec) -> list[tuple[int, list[int]]]:
    """The dimensions in the form that the core takes."""
    return [
        (most, [size.number] if isinstance(size, Multiple) else [])
        for most, size in zip(spec.shape, spec.sizes, strict=True)
    ]


def _changes(spec: Spec) -> bool:
    return any(isinstance(size, Multiple) for size in spec.sizes)


def _strides(spec: Spec) -> list[int]:
    return list(torch.empty(spec.shape, device="meta").stride())
