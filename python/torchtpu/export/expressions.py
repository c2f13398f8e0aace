"""Evaluates expressions from a file: only arithmetic on numbers and names."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
}
# In PyTorch's notation.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "min": min,
    "max": max,
    "math.floor": math.floor,
    "math.ceil": math.ceil,
    "math.trunc": math.trunc,
    "torch.sym_float": float,
    "torch._sym_sqrt": math.sqrt,
}


def value_of(expression: str, names: Mapping[str, int]) -> int | float:
    """The value of an expression. NotImplementedError for anything but arithmetic: code from a file is never run."""

    def value(node: ast.AST) -> Any:
        match node:
            case ast.Constant(value=int() | float() as number):
                return number
            case ast.Name(id=name) if name in names:
                return names[name]
            case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
                return OPERATORS[type(op)](value(left), value(right))
            case ast.UnaryOp(op=op, operand=operand) if type(op) in OPERATORS:
                return OPERATORS[type(op)](value(operand))
            case ast.Call(func=function, args=args, keywords=[]) if ast.unparse(function) in FUNCTIONS:
                return FUNCTIONS[ast.unparse(function)](*map(value, args))
        raise NotImplementedError(f"{ast.unparse(node)} in a size, {expression}")

    return value(ast.parse(expression, mode="eval").body)
