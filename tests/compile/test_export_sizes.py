"""Exported programs whose sizes change up to a bound."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
import torchtpu.export
from torch import Tensor, nn
from torch.export import Dim
from torchtpu.export.expressions import value_of

from tests.compile.test_export import run_in_jax


class Normalised(nn.Module):
    """Reduces along changing sizes. Padding must not affect the result."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 6)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.inner(x)
        return y.softmax(0), (y - y.mean(0)).square().sum() / x.shape[0]


class Strided(nn.Module):
    """The result's length is an expression of the input's length, and a number follows from it."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(3, 5, 3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        return self.convolution(x) * (x.shape[2] / 2)


class Spectra(nn.Module):
    """A Fourier transform, and windows of a width that changes."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.fft.fft2(x).abs(), nn.functional.unfold(x[None, :, :2], (1, 3))


class Repeated(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.cat([x, x], 1).cumsum(1) + y


batch, length = Dim("batch", min=2, max=32), Dim("length", min=5, max=40)


class Enlarged(nn.Module):
    """A batch norm with unused statistics, a recurrence, and composites that PyTorch keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv1d(3, 8, 3, padding=1), nn.BatchNorm1d(8), nn.ReLU(), nn.MaxPool1d(2))
        self.recurrence = nn.GRU(4, 5, batch_first=True)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        enlarged = nn.functional.interpolate(self.body(x), scale_factor=2.0)
        return enlarged, self.recurrence(x[:, :, :4])[0]


MODELS = {
    "enlarged": (Enlarged, ({0: batch},), lambda n, _: (torch.randn(n, 3, 8),)),
    "normalised": (Normalised, ({0: batch},), lambda n, _: (torch.randn(n, 4),)),
    "strided": (Strided, ({0: batch, 2: length},), lambda n, m: (torch.randn(n, 3, m),)),
    "spectra": (Spectra, ({1: batch, 2: length},), lambda n, m: (torch.randn(3, n, m),)),
    "repeated": (Repeated, ({1: length}, {1: 2 * length}), lambda _, m: (torch.randn(3, m), torch.randn(3, 2 * m))),
    "tokens": (
        lambda: nn.Sequential(nn.Embedding(11, 8), nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)),
        ({0: batch, 1: length},),
        lambda n, m: (torch.randint(0, 11, (n, m)),),
    ),
}
SIZES = ((3, 17), (2, 5), (32, 40), (7, 8), (31, 39))


def exported_model(name: str, weights: str = "inside") -> tuple[nn.Module, torchtpu.export.StableHLO]:
    make, dims, inputs = MODELS[name]
    model = make().eval()
    program = torch.export.export(model, inputs(4, 12), dynamic_shapes=dims)
    return model, torchtpu.export.to_stablehlo(program, weights)


def results_of(model: nn.Module, inputs: tuple[Tensor, ...]) -> list[Tensor]:
    results = model(*inputs)
    return [each.detach() for each in (results if isinstance(results, tuple) else [results])]


@pytest.mark.parametrize("name", MODELS)
def test_is_served_at_any_size(name: str, device: torch.device, tmp_path: Path) -> None:
    """One program serves all sizes."""
    model, exported = exported_model(name, "beside" if name == "strided" else "inside")
    exported.save(tmp_path / "program.pt")
    serve = torchtpu.export.load(tmp_path / "program.pt", device)
    for i, sizes in enumerate(SIZES):
        inputs = MODELS[name][2](*sizes)
        before = torch.tpu.cache_stats()["compiles"]
        actual = serve(*(each.to(device) for each in inputs))
        torch.tpu.synchronize()
        assert torch.tpu.cache_stats()["compiles"] - before <= (i == 0)
        for result, expected in zip(actual, results_of(model, inputs), strict=True):
            torch.testing.assert_close(result.cpu(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_runs_in_jax(name: str, tmp_path: Path) -> None:
    """The test pads inputs with values that must not matter, and passes the numbers."""
    model, exported = exported_model(name)
    inputs = MODELS[name][2](7, 11)
    sizes = {symbol.name: (inputs[symbol.input].shape[symbol.dim]) for symbol in exported.symbols}
    padded = []
    for value, spec in zip(inputs, exported.inputs, strict=True):
        whole = torch.full(spec.shape, torch.nan if spec.dtype.is_floating_point else 10, dtype=spec.dtype)
        whole[tuple(map(slice, value.shape))] = value
        padded.append(whole)
    numbers = [value_of(number.expression, sizes) for number in exported.numbers]
    given = [torch.tensor(value, dtype=number.dtype) for value, number in zip(numbers, exported.numbers, strict=True)]
    actual = run_in_jax(exported, (*padded, *given), tmp_path)
    for result, expected in zip(actual, results_of(model, inputs), strict=True):
        real = result[tuple(map(slice, expected.shape))]
        torch.testing.assert_close(real, expected, rtol=1e-4, atol=1e-5)


def test_says_what_the_module_takes() -> None:
    _, exported = exported_model("strided")
    (x,), (y,) = exported.inputs, exported.outputs
    assert x.shape == (32, 3, 40)
    assert y.shape == (32, 5, 19)
    expressions = [number.expression for number in exported.numbers]
    n, m = (symbol.name for symbol in exported.symbols)
    assert [size if isinstance(size, int) else expressions[size.number] for size in x.sizes] == [n, 3, m]
    assert exported.symbols[0][1:] == (0, 0, 1, 0, 2, 32)
    assert exported.symbols[1][1:] == (0, 2, 1, 0, 5, 40)
    at_21 = [value_of(each, {n: 4, m: 21}) for each in expressions]
    assert at_21[y.sizes[2].number] == 10  # type: ignore[union-attr]
    assert at_21[-1] == 10.5
    assert exported.numbers[-1].dtype == torch.float64


def test_refuses_sizes_beyond_the_bounds(device: torch.device) -> None:
    _, exported = exported_model("repeated")
    serve = torchtpu.export.Program(exported, device)
    ones = [torch.ones(3, size, device=device) for size in (4, 6, 12, 41, 82)]
    with pytest.raises(ValueError, match="x may be 5 to 40 long in dimension 1, not 41"):
        serve(ones[3], ones[4])
    with pytest.raises(ValueError, match="not 4"):
        serve(ones[0], ones[1])
    with pytest.raises(ValueError, match=r"y must be torch.float32 of shape \[3, 12\]"):
        serve(ones[1], ones[0])
    with pytest.raises(ValueError, match=r"x must be torch.float32 of shape \[3, s\d+\]"):
        serve(ones[1].int(), ones[2])
    assert serve(ones[1], ones[2])[0].shape == (3, 12)


def test_refuses_what_has_no_bound() -> None:
    x = torch.randn(3, 4)
    unbounded = torch.export.export(nn.Linear(4, 2), (x,), dynamic_shapes=({0: Dim("batch")},))
    with pytest.raises(ValueError, match="input has no upper bound in dimension 0"):
        torchtpu.export.to_stablehlo(unbounded)

    class Chosen(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x[x > 0] + 1

    with pytest.raises(NotImplementedError, match="data decide"):
        torchtpu.export.to_stablehlo(torch.export.export(Chosen(), (x,)))

    class Factors(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.linalg.svd(x @ x.mT)[0]

    dims = ({0: Dim("batch", max=8)},)
    # Singular vectors could lie in the padding.
    with pytest.raises(NotImplementedError, match=r"svd.*bounded"):
        torchtpu.export.to_stablehlo(torch.export.export(Factors(), (x,), dynamic_shapes=dims))


def test_values_of_expressions() -> None:
    names = {"s0": 7, "s1": 3}
    for expression in (
        "s0//2 - s1",
        "2*s0 % 4",
        "max(s0, s1)**2",
        "-s0 / 2",
        "math.ceil(s0 / s1)",
        "1.5*torch.sym_float(s1)",
    ):
        expected = eval(expression, {"math": math, "torch": torch}, names)
        actual = value_of(expression, names)
        assert actual == expected
        assert type(actual) is type(expected)
    for expression in ("__import__('os')", "s0.real", "s2", "[s0]", "'a' * 9", "s0 if s1 else 1", "max(s0, key=s1)"):
        with pytest.raises(NotImplementedError):
            value_of(expression, names)


def test_is_written_for_a_platform() -> None:
    """A TPU's compiler has no products of int64 matrices."""

    class Product(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x @ x

    program = torch.export.export(Product(), (torch.randint(0, 9, (4, 4)),))
    texts = {platform: torchtpu.export.to_stablehlo(program, platform=platform).text for platform in ("tpu", None)}
    assert "tensor<4x4xi64>) -> tensor<4x4xi64>" in texts[None]
    assert texts["tpu"] != texts[None]
    with pytest.raises(ValueError, match="platform must be"):
        torchtpu.export.to_stablehlo(program, platform="gpu")  # type: ignore[arg-type]
