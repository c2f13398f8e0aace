"""Names of operators in the table."""

from __future__ import annotations

from torch._ops import OpOverload

from torchtpu.kernels.registry import is_kernel


def name_of(operator: OpOverload) -> str:
    """The name in the core's notation: "add.Tensor", "relu" for a default overload, "prims::rev" outside aten."""
    namespace, _, name = operator._schema.name.partition("::")
    if operator._schema.overload_name:
        name = f"{name}.{operator._schema.overload_name}"
    return name if namespace == "aten" else f"{namespace}::{name}"


def has_row(operator: OpOverload, rows: frozenset[str]) -> bool:
    """Whether the table can lower the operator, or it is a kernel."""
    return name_of(operator) in rows or is_kernel(operator)
