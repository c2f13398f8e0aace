"""`torch_tpu._internal.pallas.pallas`: functions of JAX's arrays that are called with tensors, as helion calls them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from torchtpu.compat import custom_kernels
from torchtpu.kernels.calls import Kernel, Layout, fixed
from torchtpu.kernels.operators import specs_of
from torchtpu.kernels.store import text_of


class JaxCallable:
    """A function of JAX's arrays, with the attributes that clients read."""

    def __init__(
        self,
        name: str,
        jit_fn: Callable[..., Any],
        trace_key: str = "",
        static_argnums: Sequence[int] = (),
        donate_argnums: Sequence[int] | None = None,
        input_output_aliases: Mapping[int, int] | None = None,
        mesh: Any = None,
        input_partition_specs: Any = None,
        output_partition_specs: Any = None,
    ) -> None:
        if mesh is not None and mesh.size > 1:
            raise NotImplementedError(f"{name}: kernels across devices")
        self.name = name
        self.jit_fn = jit_fn
        self.trace_key = trace_key or name
        self.static_argnums = tuple(static_argnums)
        self.input_output_aliases = dict(input_output_aliases or {})
        self.donate_argnums = list(self.input_output_aliases if donate_argnums is None else donate_argnums)
        self.mesh = mesh
        self.input_partition_specs = input_partition_specs
        self.output_partition_specs = output_partition_specs
        # By the key of a call: tensors like the results with how they are nested, and the kernel's key.
        self.output_shapes: dict[Any, tuple[list[torch.Tensor], Any]] = {}
        self.kernel_key_to_mlir_fingerprint: dict[Any, str] = {}
        self._kernel = Kernel(name, jit_fn)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        key = _get_kernel_invocation_key(self.trace_key, args, kwargs, self.static_argnums)
        tensors = [each for i, each in enumerate(args) if i not in self.static_argnums]
        if key not in self.output_shapes:
            self._trace(key, args, kwargs, tensors)
        shapes, tree = self.output_shapes[key]
        results = custom_kernels.call_custom_kernel(
            self.name, self.kernel_key_to_mlir_fingerprint[key], inputs=tensors, output_shapes=shapes
        )
        for argument, result in self.input_output_aliases.items():
            tensors[argument].copy_(results[result])
        return tree.unflatten(results)

    def _trace(self, key: Any, args: Sequence[Any], kwargs: Mapping[str, Any], tensors: list[torch.Tensor]) -> None:
        numbers = iter(range(len(args)))
        places = [fixed(each) if i in self.static_argnums else ("t", next(numbers)) for i, each in enumerate(args)]
        kernel = self._kernel
        if not tensors:
            kernel = Kernel(self.name, _after_one(self.jit_fn))
            places, tensors = [("t", 0), *places], [custom_kernels.witness("meta")]
        call = kernel.call(Layout(tuple(places), tuple((name, fixed(each)) for name, each in kwargs.items())))
        text = text_of(call, specs_of(tensors))
        self.output_shapes[key] = (
            [torch.empty(spec.shape, dtype=spec.dtype, device="meta") for spec in text.results],
            Tree(text.structure),
        )
        self.kernel_key_to_mlir_fingerprint[key] = text.entry
        custom_kernels.add(self.name, text.entry, call)


def _after_one(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with another array before its arguments."""

    def call(_: Any, *args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


class Tree:
    """How results are nested."""

    def __init__(self, structure: Any) -> None:
        self.structure = structure

    def unflatten(self, results: Sequence[Any]) -> Any:
        """The results, nested as the function returned them."""
        from torchtpu.pallas import _nested

        return _nested(self.structure, results, [0])


def _get_kernel_invocation_key(
    trace_key: str, args: Sequence[Any], kwargs: Mapping[str, Any], static_argnums: Sequence[int]
) -> Any:
    shapes = [(each.shape, each.dtype) if isinstance(each, torch.Tensor) else (type(each), each) for each in args]
    return (trace_key, tuple(shapes), tuple(kwargs.items()), tuple(static_argnums))


def jax_placeholder(tensor: torch.Tensor) -> Any:
    """The array that JAX traces with in place of a tensor."""
    from torchtpu.kernels.calls import Spec
    from torchtpu.kernels.tracing import array_like

    return array_like(Spec(tensor.dtype, tuple(tensor.shape)))


def get_default_pallas_mesh() -> Any:
    """The devices that kernels run across.

    Raises NotImplementedError: kernels run on one device.
    """
    raise NotImplementedError("kernels across devices")


__all__ = ["JaxCallable", "get_default_pallas_mesh", "jax_placeholder"]
