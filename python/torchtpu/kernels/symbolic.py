"""The shapes of a call's results for symbolic sizes, by `jax.eval_shape`."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import sympy
import torch

from torchtpu.kernels.calls import Call

# In the sizes that JAX prints.
FUNCTIONS = {"floordiv": operator.floordiv, "mod": operator.mod, "max": torch.sym_max, "min": torch.sym_min}

Shapes = list[tuple[torch.dtype, list[Any]]]


def result_shapes(call: Call, tensors: Sequence[torch.Tensor]) -> Shapes | None:
    """The dtype and the sizes of each result. None if the function needs known sizes, such as a Pallas kernel whose
    blocks depend on them."""
    from torchtpu.kernels.imports import import_jax

    jax = import_jax(str(call))
    from jax import export

    from torchtpu.kernels.calls import Spec
    from torchtpu.kernels.store import remember_structure
    from torchtpu.kernels.tracing import Results, array_like, to_torch

    sizes: dict[str, Any] = {}
    symbols: dict[Any, str] = {}
    texts = [[_text(size, symbols, sizes) for size in tensor.shape] for tensor in tensors]
    scope = export.SymbolicScope()
    arrays = []
    for tensor, text in zip(tensors, texts, strict=True):
        like = array_like(Spec(tensor.dtype, ()))
        shape = (
            jax.export.symbolic_shape(", ".join(text) + ("," if len(text) == 1 else ""), scope=scope) if text else ()
        )
        arrays.append(jax.ShapeDtypeStruct(shape, like.dtype))
    results = Results()
    try:
        shapes = jax.eval_shape(results.of(call.function()), *arrays)
    except Exception:
        return None
    remember_structure(call, results.structure)

    def size_of(dim: Any) -> Any:
        # JAX's own evaluation asks for ints. What it prints are sums of products, and calls of FUNCTIONS.
        return dim if isinstance(dim, int) else eval(str(dim).replace("^", "**"), {**FUNCTIONS, **sizes})

    return [(to_torch(each.dtype), [size_of(dim) for dim in each.shape]) for each in shapes]


def _text(size: Any, symbols: dict[Any, str], sizes: dict[str, Any]) -> str:
    """A size in JAX's syntax; adds its symbols, and the size that each names."""
    if not isinstance(size, torch.SymInt):
        return str(size)
    expression = sympy.expand(size.node.expr)
    if not expression.is_polynomial():  # such as a rounded quotient: a symbol of its own
        symbols.setdefault(expression, f"n{len(symbols)}")
        sizes[symbols[expression]] = size
        return symbols[expression]
    for symbol in expression.free_symbols:
        if symbol not in symbols:
            symbols[symbol] = f"n{len(symbols)}"
            environment: Any = size.node.shape_env
            sizes[symbols[symbol]] = size if expression == symbol else environment.create_symintnode(symbol, hint=None)
    return str(expression.xreplace({symbol: sympy.Symbol(name) for symbol, name in symbols.items()})).replace("**", "^")
