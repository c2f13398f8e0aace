"""Functions on JAX arrays, called with tensors: in each mode, compiled, and with invalid arguments."""

from __future__ import annotations

import enum
import functools
import traceback
from typing import Any, Literal, Optional

import pytest
import torch

jax = pytest.importorskip("jax")
jnp = jax.numpy

import torchtpu.pallas as pallas  # noqa: E402
from torchtpu import _C  # noqa: E402
from torchtpu.kernels.store import counters  # noqa: E402

from tests.helpers import assert_same  # noqa: E402
from tests.kernels.samples import FUNCTIONS  # noqa: E402


@pallas.custom_jax_kernel
def relu(x):  # type: ignore[no-untyped-def] (it needs no annotations)
    return jax.nn.relu(x)


class Kind(enum.Enum):
    PLAIN = 1
    SHIFTED = 2


@functools.partial(pallas.jax_op, "torchtpu_tests::scale")
def scale(
    x: jax.Array,
    factor: float,
    y: Optional[jax.Array] = None,  # noqa: UP045 (both forms are read)
    kind: Kind = Kind.PLAIN,
    how: Literal["up", "down"] = "up",
    *,
    shape: tuple[int, ...] = (1, 2),
) -> jax.Array:
    assert isinstance(kind, Kind)
    assert isinstance(shape, tuple)
    result = x * factor if how == "up" else x / factor
    result = result if y is None else result + y
    return result + 1 if kind is Kind.SHIFTED else result * shape[0]


def two(device: torch.device | str = "cpu") -> list[torch.Tensor]:
    torch.manual_seed(7)
    return [torch.randn(8, 16).to(device), torch.randn(16, 4).to(device)]


def test_decorator_on_a_function_without_annotations(device: torch.device, mode: str) -> None:
    x = torch.randn(5, 3)
    assert_same(relu(x.to(device)), x.relu())
    assert relu.__name__ == "relu"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_and_their_gradients(name: str, device: torch.device) -> None:
    ours, torchs = FUNCTIONS[name]
    kernel = pallas.custom_jax_kernel(ours, name=name)

    def run(function: Any, device: torch.device | str) -> Any:
        # Small numbers: in sums of large ones that cancel each other, the order of the terms shows.
        inputs = [(0.1 * each).requires_grad_() for each in two(device)]
        results = function(*inputs)
        results = results if isinstance(results, tuple) else (results,)
        sum((each * each).sum() for each in results).backward()
        return [each.detach() for each in results], [each.grad for each in inputs]

    assert_same(run(kernel, device), run(torchs, "cpu"))


def test_a_chunk_of_fused_is_one_program(device: torch.device) -> None:
    kernel = pallas.custom_jax_kernel(FUNCTIONS["softmax"][0], name="softmax")
    x, w = two(device)
    w.requires_grad_()

    def step() -> torch.Tensor:
        w.grad = None
        loss = (kernel(x * 2, w) ** 2).sum()
        loss.backward()
        return loss

    with torch.tpu.set_eager_mode("fused"):
        step()
        torch.tpu.synchronize()
        traced = counters["traced"]
        with torch.tpu.explain() as explanation:
            step()
            torch.tpu.synchronize()
    assert len(explanation.runs) == 1
    assert counters["traced"] == traced


@pytest.mark.usefixtures("fresh_dynamo")
def test_compiled_graphs_hold_kernels(device: torch.device) -> None:
    kernel = pallas.custom_jax_kernel(FUNCTIONS["several"][0], name="several")

    def loss(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        product, total = kernel(x.sin(), w)
        return (scale(product, 2.0, kind=Kind.SHIFTED) ** 2).sum() + total.sum()

    def expected(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return ((x.sin() @ w * 2 + 1) ** 2).sum() + w.sum()

    compiled = torch.compile(loss, fullgraph=True)
    x, w = two(device)
    w.requires_grad_()
    compiled(x, w).backward()
    w.grad = None
    with torch.tpu.explain() as explanation:
        value = compiled(x, w)
        value.backward()
        torch.tpu.synchronize()
    assert len(explanation.runs) == 2
    x, other = two()
    other.requires_grad_()
    result = expected(x, other)
    result.backward()
    assert_same((value, w.grad), (result, other.grad))


def test_compile_step_is_one_program(device: torch.device) -> None:
    kernel = pallas.custom_jax_kernel(FUNCTIONS["gelu"][0], name="gelu")
    x, w = two(device)
    w.requires_grad_()
    optimizer = torch.optim.SGD([w], lr=0.1)

    @torch.tpu.compile_step
    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = kernel(x, w).square().sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    losses = [step(x).item() for _ in range(3)]
    with torch.tpu.explain() as explanation:
        step(x)
        torch.tpu.synchronize()
    assert len(explanation.runs) == 1
    x, w = two()
    w.requires_grad_()
    for loss in losses:
        value = FUNCTIONS["gelu"][1](x, w).square().sum()
        assert loss == pytest.approx(value.item(), rel=1e-5)
        (gradient,) = torch.autograd.grad(value, w)
        w = (w - 0.1 * gradient).detach().requires_grad_()


@pytest.mark.usefixtures("fresh_dynamo")
def test_sizes_that_change(device: torch.device) -> None:
    doubled = pallas.custom_jax_kernel(lambda x: jnp.concatenate([x, x + 1])[::3], name="doubled")

    def function(x: torch.Tensor) -> torch.Tensor:
        return scale(doubled(torch.cat([x, x])), 2.0) + x.shape[0]

    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(function, dynamic=True, fullgraph=True)
    for count in (4, 6, 9):
        x = torch.randn(count, 3)
        y = torch.cat([x, x])
        assert_same(compiled(x.to(device)), torch.cat([y, y + 1])[::3] * 2 + count)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_exported_programs_hold_kernels(device: torch.device) -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return scale(x.cos(), 3.0)

    x = torch.randn(4, 3)
    exported = torch.export.export(Model(), (x.to(device),))
    assert "torchtpu_tests.scale" in exported.graph_module.code
    assert_same(exported.module()(x.to(device)), x.cos() * 3)


def test_fixed_values_optional_tensors_and_lists(device: torch.device) -> None:
    x = torch.randn(4, 3)
    y = x.to(device)
    assert_same(scale(y, 2.0), x * 2.0)
    assert_same(scale(y, 2.0, y, Kind.SHIFTED), x * 2.0 + x + 1)
    assert_same(scale(y, factor=4.0, how="down", shape=(3, 1)), x / 4.0 * 3)
    assert_same(torch.ops.torchtpu_tests.scale(y, 2.0), x * 2.0)

    @functools.partial(pallas.jax_op, "torchtpu_tests::combine")
    def combine(xs: list[jax.Array], pair: tuple[jax.Array, jax.Array], power: int) -> tuple[jax.Array, jax.Array]:
        return sum(xs) ** power, pair[0] - pair[1]

    assert_same(combine([y, y + 1], (y, y * 3), 2), ((2 * x + 1) ** 2, x - x * 3))

    @functools.partial(pallas.jax_op, "torchtpu_tests::nothing")
    def nothing(x: jax.Array) -> Optional[jax.Array]:  # noqa: UP045
        return None

    assert nothing(y) is None
    power = pallas.custom_jax_kernel(lambda x, n: x**n, name="power", static_argnums=1)
    assert_same((power(y, 2), power(y, 3)), (x**2, x**3))
    bound = pallas.custom_jax_kernel(functools.partial(lambda x, n: x + n, n=5), name="bound")
    assert_same(bound(y), x + 5)
    nested = pallas.custom_jax_kernel(lambda x, other: {"sum": x + other[0], "none": None, "list": [x]}, name="nested")
    assert_same(nested(y, (y,)), {"sum": x + x, "none": None, "list": [x]})


def test_dtypes(device: torch.device) -> None:
    double = pallas.custom_jax_kernel(lambda x: x + x, name="double")
    for dtype in (torch.bfloat16, torch.float16, torch.int8, torch.int32, torch.uint8, torch.complex64):
        x = torch.tensor([1, 2, 3]).to(dtype)
        assert_same(double(x.to(device)), x + x)
    flip = pallas.custom_jax_kernel(lambda x: ~x, name="flip")
    assert_same(flip(torch.tensor([True, False], device=device)), torch.tensor([False, True]))


def test_int64_is_never_cut(device: torch.device) -> None:
    take = pallas.custom_jax_kernel(lambda x, places: jnp.take(x, places, axis=0), name="take")
    x = torch.randn(6, 3)
    assert_same(take(x.to(device), torch.tensor([5, 0, 2]).to(device)), x[[5, 0, 2]])
    with pytest.raises(RuntimeError, match="take: a tensor of int64 holds a number that int32 does not"):
        take(x.to(device), torch.tensor([5, 2**40]).to(device)).cpu()
    with pytest.raises(TypeError, match="float64, and JAX computes in 32 bits"):
        relu(torch.zeros(3, dtype=torch.float64, device=device))


def test_errors_are_raised_at_the_call(device: torch.device, mode: str) -> None:
    x = torch.randn(3, 4, device=device)

    @pallas.custom_jax_kernel
    def fails(x):  # type: ignore[no-untyped-def]
        raise LookupError("in the traced function")

    with pytest.raises(LookupError, match="in the traced function") as error:
        fails(x)
    assert traceback.extract_tb(error.value.__traceback__)[-1].name == "fails"
    product = pallas.custom_jax_kernel(lambda x, y: x @ y, name="product")
    with pytest.raises(TypeError, match="contracting dimensions"):
        product(x, x)
    with pytest.raises(TypeError, match="argument 1 must be a tensor, not int"):
        product(x, 3)
    power = pallas.custom_jax_kernel(lambda x, n: x**n, name="power", static_argnums=1)
    with pytest.raises(ValueError, match="argument 1 is static, and is given a tensor"):
        power(x, x)
    words = pallas.custom_jax_kernel(lambda x: "a word", name="words")
    with pytest.raises(TypeError, match="a kernel returns arrays"):
        words(x)
    assert torch.isfinite(x).all()  # tensors that were not donated stay usable


def test_wrong_operators() -> None:
    for name in ("scale", "a::b::c", "a::"):
        with pytest.raises(ValueError, match="namespace::name"):
            pallas.jax_op(name, lambda x: x)
    with pytest.raises(ValueError, match="parameter x of .* has no annotation"):
        pallas.jax_op("torchtpu_tests::bare", lambda x: x)

    def twice(x: jax.Array) -> jax.Array:
        return x

    with pytest.raises(RuntimeError, match="another function is the operator"):
        pallas.jax_op("torchtpu_tests::scale", twice)
    with pytest.raises(ValueError, match="input_output_aliases"):
        pallas.custom_jax_kernel(twice, donate_argnums=0, input_output_aliases={1: 0})


def test_results_are_written_into_aliased_inputs(device: torch.device) -> None:
    add = pallas.custom_jax_kernel(lambda x, y: x + y, name="add", input_output_aliases={0: 0})
    x, y = torch.ones(3, device=device), torch.full((3,), 2.0, device=device)
    assert_same(add(x, y), torch.full((3,), 3.0))
    assert_same(x, torch.full((3,), 3.0))


def test_donated_arguments_are_not_readable(device: torch.device, mode: str) -> None:
    kept, x, y = (torch.ones(64, 64, device=device) for _ in range(3))
    add = pallas.custom_jax_kernel(lambda x, y: x + y, name="add", donate_argnums=0)
    result = add(x, y)
    after = kept + 1
    with pytest.raises(RuntimeError, match="Buffer has been deleted or donated.*to add"):
        (x[0] * 2).cpu()
    assert_same(result, torch.full((64, 64), 2.0))  # what does not depend on the tensor is not lost
    assert_same(after, torch.full((64, 64), 2.0))
    x.copy_(y)
    assert_same(add(x, y), torch.full((64, 64), 2.0))
    x.set_(result)
    assert_same(x, torch.full((64, 64), 2.0))


@pytest.mark.parametrize("mode", ["strict", "fused"])
def test_donated_memory_is_reused(mode: str, device: torch.device) -> None:
    double = pallas.custom_jax_kernel(lambda x: x * 2, name="double", donate_argnums=0)
    with torch.tpu.set_eager_mode(mode):
        x = torch.ones(1 << 20, device=device)
        y = double(x)
        torch.tpu.synchronize()
        _C.begin_explaining(with_texts=True)
        z = double(y)
        explanation = _C.end_explaining()
        assert "jax.buffer_donor = true" in explanation["programs"][0]["text"]
    assert_same(z[:2], torch.full((2,), 4.0))


def test_a_written_argument_is_no_other_program(device: torch.device) -> None:
    add = pallas.custom_jax_kernel(lambda x, y: x + y, name="add", input_output_aliases={0: 0})
    with torch.tpu.set_eager_mode("strict"):
        x, y = torch.ones(1 << 20, device=device), torch.ones(1 << 20, device=device)
        with torch.tpu.explain() as explanation:
            add(x, y)
            torch.tpu.synchronize()
        assert len(explanation.runs) == 1
        assert_same(x[:2], torch.full((2,), 2.0))


def test_donation_and_backward(device: torch.device) -> None:
    square = pallas.custom_jax_kernel(lambda x: x * x, name="square", donate_argnums=0)
    x = torch.ones(8, device=device, requires_grad=True)
    result = square(x * 3)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


def test_donated_lists_and_operators(device: torch.device) -> None:
    @functools.partial(pallas.jax_op, "torchtpu_tests::total", donate_argnums=0)
    def total(xs: list[jax.Array], factor: float) -> jax.Array:
        return sum(xs[1:], xs[0]) * factor

    xs = [torch.ones(4, device=device) for _ in range(3)]
    assert_same(total(xs, 2.0), torch.full((4,), 6.0))
    for x in xs:
        with pytest.raises(RuntimeError, match="deleted or donated.*torchtpu_tests::total"):
            x.cpu()


def test_opcheck(device: torch.device) -> None:
    x = torch.randn(4, 3, device=device)
    torch.library.opcheck(scale._opoverload, (x, 2.0))
    torch.library.opcheck(scale._opoverload, (x, 2.0, x))
    torch.library.opcheck(scale._opoverload, (x.clone().requires_grad_(), 2.0))


def test_batches(device: torch.device) -> None:
    product = pallas.custom_jax_kernel(lambda x, y: x @ y, name="product")
    x, y = torch.randn(3, 4, 5), torch.randn(5, 2)
    assert_same(torch.vmap(product, (0, None))(x.to(device), y.to(device)), x @ y)
    z = torch.randn(5, 3, 2)
    assert_same(torch.vmap(product, (0, 1))(x.to(device), z.to(device)), torch.vmap(torch.mm, (0, 1))(x, z))
    assert_same(torch.vmap(lambda each: scale(each, 2.0))(x.to(device)), x * 2)


def test_torch_tpu_has_them() -> None:
    assert torch.tpu.pallas is pallas
