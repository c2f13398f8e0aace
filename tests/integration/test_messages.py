"""torch's messages that the shim reads (`csrc/messages.h`), checked with the installed torch."""

import re
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

HEADER = Path(__file__).parents[2] / "csrc" / "messages.h"


def meta(*sizes):
    return torch.empty(*sizes, device="meta")


@pytest.fixture(scope="module")
def operators():
    library = torch.library.Library("torchtpu_messages", "DEF")
    library.define("without_kernel(Tensor x) -> Tensor")

    @torch.library.custom_op("torchtpu_messages::counted", mutates_args=())
    def counted(x: torch.Tensor) -> torch.Tensor:
        return x.nonzero()

    @counted.register_fake
    def _(x):
        return x.new_empty(torch.library.get_ctx().new_dynamic_size(), 1)

    yield torch.ops.torchtpu_messages
    library._destroy()


def with_fake(call):
    with FakeTensorMode():
        call(torch.empty(1))


def convolve_as_a_backend_must():
    image = torch.ones(1, 1, 3, 3)
    torch.ops.aten.convolution_overrideable(image, image, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)


def alerts():
    torch.use_deterministic_algorithms(True)
    try:
        torch.median(meta(2), 0)
    finally:
        torch.use_deterministic_algorithms(False)


# Each message, code that makes torch raise it, and the exception.
HEARD = {
    "Could not run '": (NotImplementedError, lambda ops: ops.without_kernel(torch.ones(1))),
    "Meta": (NotImplementedError, lambda ops: ops.without_kernel(meta(1))),
    "meta": (NotImplementedError, lambda _: meta(1).cpu()),
    "TORCH_LIBRARY_IMPL": (NotImplementedError, lambda _: convolve_as_a_backend_must()),
    "DataDependentOutputException": (Exception, lambda _: with_fake(torch.Tensor.item)),
    "DynamicOutputShapeException": (Exception, lambda _: with_fake(torch.nonzero)),
    "UnsupportedOperatorException": (Exception, lambda ops: with_fake(ops.without_kernel)),
    "meta tensor": (RuntimeError, lambda _: meta(1).item()),
    "with meta Tensors": (Exception, lambda ops: ops.counted(meta(1))),
    "does not have a deterministic implementation": (RuntimeError, lambda _: alerts()),
    "select(): index 0 out of range": (IndexError, lambda _: meta(0, 3).select(0, 0)),
    "not implemented for 'Half'": (RuntimeError, lambda _: torch.linalg.qr(torch.ones(2, 2, dtype=torch.half))),
    "not implemented for 'BFloat16'": (RuntimeError, lambda _: torch.linalg.qr(torch.ones(2, 2, dtype=torch.bfloat16))),
}


def test_all_messages_are_here():
    lists = re.findall(r"constexpr const char\* \w+\[\] = \{(.*?)\};", HEADER.read_text(), flags=re.DOTALL)
    assert {message for entries in lists for message in re.findall(r'"(.*?)"', entries)} == set(HEARD)


@pytest.mark.parametrize("message", HEARD)
def test_torch_says_it(message, operators):
    kind, provoke = HEARD[message]
    with pytest.raises(kind) as raised:
        provoke(operators)
    assert message in f"{type(raised.value).__name__}: {raised.value}"


def test_a_meta_kernel_needs_a_fake_tensor():
    """An AttributeError of a meta kernel is no refusal."""
    weight = torch.empty(1, 1, 32, 1, device="meta", dtype=torch.int32)
    with pytest.raises(AttributeError, match="no attribute 'fake_device'"):
        torch._weight_int4pack_mm(meta(1, 32), weight, 32, meta(1, 8, 2))
