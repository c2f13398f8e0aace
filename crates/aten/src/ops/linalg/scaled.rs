//! Products of matrices of small floats whose elements are multiples of scales.
//!
//! result[i, j] = sum over k of a[i, k] scale_a[i, k] b[k, j] scale_b[k, j], plus a bias of each column.
//!
//! Scales are of the whole matrix, of each row of `a` and column of `b`, or of blocks of them. The sum is of float32, so
//! `use_fast_accum` changes nothing.

use error::ErrorKind;
use stablehlo::{DType, DotDims, Value};

use crate::common::matrices::transposed;
use crate::cx::Cx;
use crate::error::{Error, Result, scalar_type_name};
use crate::ops::linalg::matmul::{plus_self, rounded};
use crate::row::{Row, all_bounded, one};

pub(crate) const ROWS: &[Row] = &all_bounded([
    one(&["_scaled_mm"], |cx| {
        let (a, b) = (left(cx, "self")?, right(cx, "mat2")?);
        let (scale_a, scale_b) = (cx.tensor("scale_a")?, cx.tensor("scale_b")?);
        // Scales of `b` are transposed, as `b` is.
        let scale_b = if scale_b.rank() == 2 { transposed(scale_b) } else { scale_b };
        let (recipe_a, recipe_b) = (Recipe::of(a, scale_a)?, Recipe::of(b, scale_b)?);
        let product = with_bias(cx, product(a, &[(recipe_a, scale_a)], b, &[(recipe_b, scale_b)])?);
        let product = match cx.tensor_or_none("scale_result") {
            Some(scale) => product * scale.convert(DType::F32).reshape(&[]),
            None => product,
        };
        rounded(cx, product)
    }),
    one(&["_scaled_mm_v2"], |cx| {
        let (a, b) = (left(cx, "self")?, right(cx, "mat2")?);
        rounded(cx, with_bias(cx, product(a, &scales(cx, "a")?, b, &scales(cx, "b")?)?))
    }),
    one(&["_scaled_addmm"], |cx| {
        let (a, b) = (left(cx, "mat1")?, right(cx, "mat2")?);
        rounded(cx, plus_self(cx, product(a, &scales(cx, "a")?, b, &scales(cx, "b")?)?)?)
    }),
]);

/// The groups of elements that share a scale, in the order of PyTorch's `ScalingType`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Recipe {
    TensorWise,
    RowWise,
    Block1x16,
    Block1x32,
    Block1x128,
    Block128x128,
}

use Recipe::*;

impl Recipe {
    const ALL: [Recipe; 6] = [TensorWise, RowWise, Block1x16, Block1x32, Block1x128, Block128x128];

    /// The recipe of a scale, from its type and shape.
    fn of(factor: Value<'_>, scale: Value<'_>) -> Result<Recipe> {
        let (rows, blocks) = (factor.dim(0), count(factor.dim(1), 128));
        match scale.dtype() {
            DType::F8E8M0FNU => return Ok(Block1x32),
            DType::F8E4M3FN => return Ok(Block1x16),
            _ if scale.numel() == 1 => return Ok(TensorWise),
            _ => {}
        }
        match scale.dims()[..] {
            [outer, 1] if outer == rows => Ok(RowWise),
            [outer, inner] if outer == rows && inner == blocks => Ok(Block1x128),
            [outer, inner] if outer == count(rows, 128) && inner == blocks => Ok(Block128x128),
            _ => Err(Error::runtime("Invalid scaling configuration.")),
        }
    }

    /// The number of neighbours in a row that share a scale.
    fn width(self) -> i64 {
        match self {
            Block1x16 => 16,
            Block1x32 => 32,
            _ => 128,
        }
    }
}

/// The scales that `_scaled_mm_v2` has for a factor, "a" or "b".
fn scales<'b>(cx: &Cx<'b>, side: &str) -> Result<Vec<(Recipe, Value<'b>)>> {
    let swizzles = cx.ints(&format!("swizzle_{side}"))?;
    let recipes = cx.ints(&format!("recipe_{side}"))?;
    let mut scales = Vec::new();
    for (i, (scale, recipe)) in cx.tensors(&format!("scale_{side}"))?.into_iter().zip(recipes).enumerate() {
        let recipe = usize::try_from(recipe).ok().and_then(|recipe| Recipe::ALL.get(recipe).copied());
        let recipe = recipe.ok_or_else(|| Error::runtime("Invalid scaling configuration."))?;
        let is_swizzled = swizzles.get(i) == Some(&SWIZZLE_32_4_4);
        if matches!(recipe, Block1x16 | Block1x32) && !is_swizzled {
            let message = format!("scale_{side} must be swizzled to SWIZZLE_32_4_4 format");
            return Err(Error::new(ErrorKind::Value, message));
        }
        scales.push((recipe, scale));
    }
    Ok(scales)
}

/// PyTorch's `SwizzleType` of scales in tiles.
const SWIZZLE_32_4_4: i64 = 1;

/// The left factor of a product.
fn left<'b>(cx: &Cx<'b>, name: &str) -> Result<Value<'b>> {
    numbers(cx.tensor(name)?, "mat_a")
}

/// The right factor, transposed: its columns as rows.
fn right<'b>(cx: &Cx<'b>, name: &str) -> Result<Value<'b>> {
    numbers(transposed(cx.tensor(name)?), "mat_b")
}

/// bfloat16 holds all numbers of 8 and 4 bits.
fn numbers<'b>(factor: Value<'b>, name: &str) -> Result<Value<'b>> {
    match factor.dtype() {
        DType::F4E2M1FNX2 => Ok(unpacked(factor)),
        dtype if dtype.is_float8() => Ok(factor.convert(DType::BF16)),
        dtype => {
            let dtype = scalar_type_name(dtype);
            Err(Error::runtime(format!("Expected {name} to be Float8 matrix got {dtype}")))
        }
    }
}

/// A factor times the scales of its blocks.
fn scaled<'b>(factor: Value<'b>, recipe: Recipe, scale: Value<'b>) -> Result<Value<'b>> {
    if matches!(recipe, TensorWise | RowWise) {
        return Ok(factor);
    }
    if factor.is_bounded() || scale.is_bounded() {
        scale.builder().refuse_bounded("scales of blocks");
    }
    let (rows, length, width) = (factor.dim(0), factor.dim(1), recipe.width());
    let blocks = count(length, width);
    let of_rows = match recipe {
        Block1x16 | Block1x32 => from_tiles(scale, rows, blocks)?,
        Block1x128 => oriented(scale, rows, blocks)?,
        _ => repeated(oriented(scale, count(rows, 128), blocks)?, 0, 128, rows),
    };
    // A small float times a scale of 8 bits has at most 8 bits of fraction.
    let dtype = if of_rows.dtype() == DType::F32 { DType::F32 } else { DType::BF16 };
    Ok(factor.convert(dtype) * repeated(of_rows.convert(dtype), 1, width, length))
}

fn product<'b>(
    mut a: Value<'b>,
    scales_a: &[(Recipe, Value<'b>)],
    mut b: Value<'b>,
    scales_b: &[(Recipe, Value<'b>)],
) -> Result<Value<'b>> {
    for &(recipe, scale) in scales_a {
        a = scaled(a, recipe, scale)?;
    }
    for &(recipe, scale) in scales_b {
        b = scaled(b, recipe, scale)?;
    }
    let wide = if a.dtype() == b.dtype() { a.dtype() } else { DType::F32 };
    let dims = DotDims { lhs_contract: vec![1], rhs_contract: vec![1], ..DotDims::default() };
    let mut product = a.convert(wide).dot_general(b.convert(wide), &dims, DType::F32);
    for (axis, scales) in [(0, scales_a), (1, scales_b)] {
        for &(recipe, scale) in scales {
            let scale = scale.convert(DType::F32);
            product = match recipe {
                TensorWise => product * scale.reshape(&[]),
                RowWise => product * scale.flatten().broadcast_in_dim(&product.dims(), &[axis]),
                _ => product,
            };
        }
    }
    Ok(product)
}

fn with_bias<'b>(cx: &Cx<'b>, product: Value<'b>) -> Value<'b> {
    match cx.tensor_or_none("bias") {
        Some(bias) => product + bias.convert(DType::F32).flatten().broadcast_in_dim(&product.dims(), &[1]),
        None => product,
    }
}

/// The number of blocks of `width` elements.
fn count(elements: i64, width: i64) -> i64 {
    (elements + width - 1) / width
}

/// Scales of blocks as [rows, blocks]. The scales may be transposed, and have rows or columns for the alignment, which are
/// left out.
fn oriented(scale: Value<'_>, rows: i64, blocks: i64) -> Result<Value<'_>> {
    let aligned = 4 * count(blocks, 4);
    let fits = |dims: &[i64]| matches!(*dims, [outer, inner] if outer == rows && (inner == blocks || inner == aligned));
    let scale = match scale.rank() {
        2 if fits(&scale.dims()) => scale,
        2 if fits(&transposed(scale).dims()) => transposed(scale),
        _ => return Err(Error::runtime("Invalid scaling configuration.")),
    };
    Ok(scale.slice_axis(1, 0, blocks))
}

/// [rows, blocks] of scales in tiles of 128 rows and 4 blocks. Within a tile, the row is 32 i + j, and the order j, i,
/// block.
fn from_tiles(scale: Value<'_>, rows: i64, blocks: i64) -> Result<Value<'_>> {
    let (down, across) = (count(rows, 128), count(blocks, 4));
    if scale.numel() != down * across * 512 {
        return Err(Error::runtime("Invalid scaling configuration."));
    }
    let tiles = scale.reshape(&[down, across, 32, 4, 4]).transpose(&[0, 3, 2, 1, 4]);
    Ok(tiles.reshape(&[down * 128, across * 4]).slice_axis(0, 0, rows).slice_axis(1, 0, blocks))
}

/// Each element `times` times along a dimension, up to `length`.
fn repeated(x: Value<'_>, axis: usize, times: i64, length: i64) -> Value<'_> {
    let mut dims = x.dims();
    dims.insert(axis + 1, times);
    let axes: Vec<usize> = (0..dims.len()).filter(|&each| each != axis + 1).collect();
    let wide = x.broadcast_in_dim(&dims, &axes);
    dims.remove(axis + 1);
    dims[axis] *= times;
    wide.reshape(&dims).slice_axis(axis, 0, length)
}

/// Pairs of 4-bit floats as bfloat16, twice as many in each row. Such a float has a sign, 2 bits of exponent and 1 bit of
/// fraction: 0, 0.5, 1, 1.5, 2, 3, 4 and 6.
fn unpacked(pairs: Value<'_>) -> Value<'_> {
    const EXPONENT: i64 = 7;
    let bytes = pairs.bitcast(DType::U8).convert(DType::U16);
    let (low, high) = (bytes & 0xF, bytes.shift_right_logical(4));
    let bits = pairs.builder().concatenate(&[low.unsqueeze(2), high.unsqueeze(2)], 2);
    let bits = bits.reshape(&[pairs.dim(0), 2 * pairs.dim(1)]);
    let magnitude = bits & 7;
    let normal =
        (magnitude.shift_right_logical(1) + 126).shift_left(EXPONENT) | (magnitude & 1).shift_left(EXPONENT - 1);
    let small = magnitude * (126 << EXPONENT);
    let sign = bits.shift_right_logical(3).shift_left(15);
    (magnitude.lt(2).select(small, normal) | sign).bitcast(DType::BF16)
}
