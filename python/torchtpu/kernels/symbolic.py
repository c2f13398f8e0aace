"""The shapes of a call's results for symbolic sizes, by `jax.eval_shape`."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import sympy
import torch

from torchtpu.kernels.calls import Call

# In the sizes that JAX prints.
FUNCTIONS = {"floordiv": operator.floordiv, "mod": operator.mod, "max": torch.sym_max, "min": torch.sym_min}

Shapes = list[tuple[torch.dtype, list[Any]]]

# A function is tried with multiples of this size, which the blocks of kernels divide.
TRIED = 512


def result_shapes(call: Call, tensors: Sequence[torch.Tensor]) -> Shapes | None:
    """The dtype and the sizes of each result. None if the function needs known sizes, such as a Pallas kernel whose
    blocks depend on them."""
    from torchtpu.kernels.imports import import_jax

    jax = import_jax(str(call))
    if call.kernel.padding is not None:
        return _padded_shapes(call, tensors)
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
        # JAX's own evaluation takes only ints. Its text has sums of products, and calls of FUNCTIONS.
        return dim if isinstance(dim, int) else eval(str(dim).replace("^", "**"), {**FUNCTIONS, **sizes})

    return [(to_torch(each.dtype), [size_of(dim) for dim in each.shape]) for each in shapes]


def _padded_shapes(call: Call, tensors: Sequence[torch.Tensor]) -> Shapes | None:
    """The same for a function that takes padding. It is only called with capacities, so it may need known sizes: it is
    tried with two sets of them. None if a size of a result is neither one of an argument nor constant."""
    sizes = {str(size): size for tensor in tensors for size in tensor.shape if isinstance(size, torch.SymInt)}
    # The ratio of both sizes differs between symbols, so a multiple of one symbol is not mistaken for another symbol.
    tries = [
        {text: TRIED * (i + 1) for i, text in enumerate(sizes)},
        {text: TRIED * (2 * len(sizes) - i) for i, text in enumerate(sizes)},
    ]
    try:
        first, second = (_shapes_at(call, tensors, each) for each in tries)
    except Exception:
        return None
    found: Shapes = []
    for (dtype, dims), (_, others) in zip(first, second, strict=True):
        shape: list[Any] = []
        for pair in zip(dims, others, strict=True):
            same = [size for text, size in sizes.items() if (tries[0][text], tries[1][text]) == pair]
            if not same and pair[0] != pair[1]:
                return None
            shape.append(same[0] if same else pair[0])
        found.append((dtype, shape))
    return found


def _shapes_at(call: Call, tensors: Sequence[torch.Tensor], sizes: Mapping[str, int]) -> Shapes:
    """The dtype and the sizes of each result, for sizes of symbols by their text."""
    import jax

    from torchtpu.kernels.calls import Spec
    from torchtpu.kernels.chips import tracing_for
    from torchtpu.kernels.store import remember_structure, target
    from torchtpu.kernels.tracing import Results, array_like, to_torch

    def known(size: Any) -> int:
        return sizes[str(size)] if isinstance(size, torch.SymInt) else int(size)

    specs = [Spec(each.dtype, tuple(map(known, each.shape))) for each in tensors]
    results = Results()
    with tracing_for(target()[1]):
        shapes = jax.eval_shape(results.of(call.function()), *map(array_like, specs))
    remember_structure(call, results.structure)
    return [(to_torch(each.dtype), list(each.shape)) for each in shapes]


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
