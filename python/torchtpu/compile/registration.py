"""Registers the device and the backend with Dynamo, when other code imports it: this import takes seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchtpu.when_imported import call_when_imported

if TYPE_CHECKING:
    from torch import Tensor

DYNAMO = "torch._dynamo"
INDUCTOR = "torch._inductor.compile_fx"
FLEX_ATTENTION = "torch.nn.attention.flex_attention"


def register_with_dynamo() -> None:
    """Registers the backend and the device interface now, or when Dynamo is imported; the same for inductor and flex
    attention."""
    call_when_imported(DYNAMO, _register)
    call_when_imported(FLEX_ATTENTION, _admit_to_flex_attention)
    call_when_imported(INDUCTOR, _register_with_inductor)


def _register_with_inductor(_: object) -> None:
    from torchtpu.compile.inductor import compile_tpu_graphs

    compile_tpu_graphs()


def _register(_: object) -> None:
    import torch
    from torch._dynamo import trace_rules
    from torch._dynamo.backends.registry import register_backend
    from torch._dynamo.device_interface import get_interface_for_device, register_interface_for_device

    from torchtpu.compile import artifacts, backend  # noqa: F401 (registers the artifacts)
    from torchtpu.compile.device_interface import TpuInterface
    from torchtpu.operators import references

    references.call_with_dynamo()
    get_interface_for_device("cpu")  # registers torch's own interfaces, with a placeholder for "tpu" ...
    register_interface_for_device("tpu", TpuInterface)  # ... which this one replaces
    for package in ("torchtpu.tpu", "torchtpu.graphs", "torchtpu.operators"):
        trace_rules.add(package)  # Dynamo must not trace it, like torch itself
    register_backend(backend.tpu, name="tpu")
    if hasattr(torch.compiler, "set_default_backend"):  # since torch 2.15
        backend.others = torch.compiler.get_default_backend()
        torch.compiler.set_default_backend("tpu")


def _admit_to_flex_attention(flex_attention: Any) -> None:
    """Adds "tpu" to flex attention's list of devices, which is a constant of one function.

    `docs/upstream/pytorch_flex_attention_of_a_backend.patch` would make this unnecessary.
    """
    refuse = getattr(flex_attention, "_validate_device", None)
    if refuse is None:
        return

    def validate(query: Tensor, key: Tensor, value: Tensor) -> None:
        if query.device.type != "tpu":
            refuse(query, key, value)

    flex_attention._validate_device = validate
