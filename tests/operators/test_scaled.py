"""Products of small floats with scales, by PyTorch's recipes. The reference multiplies each element by its scale."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import ScalingType, SwizzleType, scaled_grouped_mm, scaled_mm
from torch.testing import assert_close

ROWS, WIDTH, COLUMNS = 160, 192, 96
TILES = SwizzleType.SWIZZLE_32_4_4
# The number of each code of 4 bits.
FLOAT4 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def floats(rows: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """A factor's rows, and what they mean."""
    if dtype == torch.float4_e2m1fn_x2:
        pairs = torch.randint(0, 256, (rows, WIDTH // 2), dtype=torch.uint8)
        halves = torch.stack([pairs % 16, pairs // 16], 2).flatten(1)
        return pairs.view(dtype), FLOAT4[halves.long()]
    given = torch.randn(rows, WIDTH).to(dtype)
    return given, given.float()


def scales(rows: int, width: int, dtype: torch.dtype) -> Tensor:
    if dtype == torch.float8_e8m0fnu:
        return torch.randint(124, 131, (rows, width), dtype=torch.uint8).view(dtype)
    return (torch.rand(rows, width) + 0.5).to(dtype)


def in_tiles(scale: Tensor) -> Tensor:
    """The order of tiles of 128 rows and 4 columns, element by element. Missing elements are NaN."""
    rows, width = scale.shape
    down, across = -(-rows // 128), -(-width // 4)
    result = torch.full((down * across * 512,), torch.nan)
    for row in range(rows):
        for column in range(width):
            tile = (row // 128) * across + column // 4
            result[tile * 512 + row % 32 * 16 + row % 128 // 32 * 4 + column % 4] = scale[row, column].float()
    return result.to(scale.dtype)


def blocks(rows: int, recipe: ScalingType, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The scales that are given, and those of all elements."""
    if recipe == ScalingType.TensorWise:
        scale = torch.tensor(0.75)
        return scale, scale.expand(rows, WIDTH)
    if recipe == ScalingType.RowWise:
        scale = scales(rows, 1, dtype)
        return scale, scale.expand(rows, WIDTH)
    if recipe == ScalingType.BlockWise128x128:
        scale = scales(-(-rows // 128), 4, dtype)  # the second and later ones are for the alignment
        return scale.t(), scale.repeat_interleave(128, 0)[:rows].repeat_interleave(128, 1)[:, :WIDTH]
    width = {ScalingType.BlockWise1x16: 16, ScalingType.BlockWise1x32: 32}.get(recipe, 128)
    scale = scales(rows, -(-WIDTH // width), dtype)
    given = scale if width == 128 else in_tiles(scale)
    return given, scale.float().repeat_interleave(width, 1)[:, :WIDTH]


E4M3, E5M2, E8M0, F4 = torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu, torch.float4_e2m1fn_x2
RECIPES = {
    "of the matrix": (E4M3, E5M2, torch.float32, ScalingType.TensorWise, ScalingType.TensorWise),
    "of rows": (E4M3, E4M3, torch.float32, ScalingType.RowWise, ScalingType.RowWise),
    "1x128": (E4M3, E4M3, torch.float32, ScalingType.BlockWise1x128, ScalingType.BlockWise1x128),
    "1x128 and 128x128": (E4M3, E4M3, torch.float32, ScalingType.BlockWise1x128, ScalingType.BlockWise128x128),
    "128x128 and 1x128": (E4M3, E4M3, torch.float32, ScalingType.BlockWise128x128, ScalingType.BlockWise1x128),
    "MXFP8": (E4M3, E4M3, E8M0, ScalingType.BlockWise1x32, ScalingType.BlockWise1x32),
    "MXFP4": (F4, F4, E8M0, ScalingType.BlockWise1x32, ScalingType.BlockWise1x32),
    "NVFP4": (F4, F4, E4M3, ScalingType.BlockWise1x16, ScalingType.BlockWise1x16),
}


@pytest.mark.parametrize("name", RECIPES)
def test_recipes(name: str, device: torch.device, mode: str) -> None:
    dtype_a, dtype_b, of_scales, recipe_a, recipe_b = RECIPES[name]
    (a, numbers_a), (b, numbers_b) = floats(ROWS, dtype_a), floats(COLUMNS, dtype_b)
    scale_a, of_a = blocks(ROWS, recipe_a, of_scales)
    scale_b, of_b = blocks(COLUMNS, recipe_b, of_scales)
    expected = (numbers_a * of_a) @ (numbers_b * of_b).t()
    if recipe_b == ScalingType.RowWise:
        scale_b = scale_b.t()
    swizzle = TILES if name in ("MXFP8", "MXFP4", "NVFP4") else None
    bias = torch.randn(COLUMNS).bfloat16()
    arguments = [a.to(device), b.t().to(device), scale_a.to(device), recipe_a, scale_b.to(device), recipe_b]
    result = scaled_mm(*arguments, swizzle, swizzle, bias.to(device), torch.float32)
    assert_close(result.cpu(), expected + bias.float(), rtol=1e-4, atol=1e-3)


def test_scales_of_blocks_and_of_the_matrix(device: torch.device) -> None:
    (a, numbers_a), (b, numbers_b) = floats(ROWS, F4), floats(COLUMNS, F4)
    scale_a, of_a = blocks(ROWS, ScalingType.BlockWise1x16, E4M3)
    scale_b, of_b = blocks(COLUMNS, ScalingType.BlockWise1x16, E4M3)
    recipes, swizzles = [ScalingType.BlockWise1x16, ScalingType.TensorWise], [TILES, SwizzleType.NO_SWIZZLE]
    global_a, global_b = torch.tensor(0.5), torch.tensor(3.0)
    result = scaled_mm(
        a.to(device),
        b.t().to(device),
        [scale_a.to(device), global_a.to(device)],
        recipes,
        [scale_b.to(device), global_b.to(device)],
        recipes,
        swizzles,
        swizzles,
    )
    expected = (numbers_a * of_a * global_a) @ (numbers_b * of_b * global_b).t()
    assert_close(result.cpu(), expected.bfloat16(), rtol=2e-2, atol=1e-2)


def test_the_older_operator_finds_the_recipe_by_the_shape(device: torch.device) -> None:
    (a, numbers_a), (b, numbers_b) = floats(ROWS, E4M3), floats(COLUMNS, E4M3)
    for recipe_b in (ScalingType.BlockWise1x128, ScalingType.BlockWise128x128):
        scale_a, of_a = blocks(ROWS, ScalingType.BlockWise1x128, torch.float32)
        scale_b, of_b = blocks(COLUMNS, recipe_b, torch.float32)
        scale_b = scale_b.t() if recipe_b == ScalingType.BlockWise1x128 else scale_b[:2]
        placed = [x.to(device) for x in (a, b.t(), scale_a, scale_b)]
        result = torch._scaled_mm(*placed, out_dtype=torch.bfloat16)
        assert_close(result.cpu(), ((numbers_a * of_a) @ (numbers_b * of_b).t()).bfloat16(), rtol=2e-2, atol=1e-2)


def test_scales_that_are_not_in_tiles_are_refused(device: torch.device) -> None:
    (a, _), (b, _) = floats(128, E4M3), floats(128, E4M3)
    scale = scales(128, 8, E8M0).to(device)
    with pytest.raises(ValueError, match="swizzle|SWIZZLE"):
        scaled_mm(a.to(device), b.t().to(device), scale, ScalingType.BlockWise1x32, scale, ScalingType.BlockWise1x32)


ENDS = [16, 16, 48, 96]


def groups() -> list[tuple[int, int]]:
    return list(zip([0, *ENDS[:-1]], ENDS, strict=True))


@pytest.mark.parametrize("is_compiled", [False, True])
@pytest.mark.parametrize("form", ["2d 3d", "3d 2d", "2d 2d", "3d 3d"])
def test_groups(form: str, is_compiled: bool, device: torch.device) -> None:
    count, rows, columns, width = len(ENDS), 48, 32, 64
    ends = None if form == "3d 3d" else torch.tensor(ENDS, dtype=torch.int32, device=device)
    shape_a = {"2d 3d": (ENDS[-1], width), "2d 2d": (rows, ENDS[-1])}.get(form, (count, rows, width))
    shape_b = {"3d 2d": (ENDS[-1], width), "2d 2d": (columns, ENDS[-1])}.get(form, (count, columns, width))
    a, b = torch.randn(shape_a).to(E4M3), torch.randn(shape_b).to(E4M3)
    scale_a = torch.rand(count * rows if form == "2d 2d" else shape_a[:-1])
    scale_b = torch.rand(count * columns if form == "2d 2d" else shape_b[:-1])
    if form == "2d 2d":
        sides = [(a[:, s:e], b[:, s:e]) for s, e in groups()]
        of_sides = list(zip(scale_a.view(count, rows), scale_b.view(count, columns), strict=True))
    else:
        of = lambda x, g, s, e: x[s:e] if len(x) == ENDS[-1] else x[g]  # noqa: E731
        sides = [(of(a, g, *ends), of(b, g, *ends)) for g, ends in enumerate(groups())]
        of_sides = [(of(scale_a, g, *ends), of(scale_b, g, *ends)) for g, ends in enumerate(groups())]
    products = [
        (x.float() * of_x[:, None]) @ (y.float() * of_y[:, None]).t()
        for (x, y), (of_x, of_y) in zip(sides, of_sides, strict=True)
    ]
    expected = {"2d 3d": torch.cat, "3d 2d": lambda each: torch.cat(each, 1)}.get(form, torch.stack)(products)

    def run(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor) -> Tensor:
        return scaled_grouped_mm(a, b.mT, scale_a, ScalingType.RowWise, scale_b, ScalingType.RowWise, offs=ends)

    call = torch.compile(run, fullgraph=True) if is_compiled else run
    result = call(*(x.to(device) for x in (a, b, scale_a, scale_b)))
    assert_close(result.cpu(), expected.bfloat16(), rtol=2e-2, atol=1e-2)
