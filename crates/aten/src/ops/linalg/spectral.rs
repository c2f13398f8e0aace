//! Eigenvalues of Hermitian matrices, singular values, and the matrix exponential.

use stablehlo::{DType, DTypes, Extent, Number, Value, broadcast_dims};

use crate::check::Check;
use crate::common::completed::{completed_with, require_square, shaped, zeroed};
use crate::common::matrices::{adjoint, batched, identity, position_along, times, unbatched};
use crate::cx::Cx;
use crate::error::{Error, ErrorKind, Result};
use crate::ops::linalg::eigh::eigh;
use crate::ops::linalg::svd::svd;
use crate::row::{Row, many, one};

pub(crate) const ROWS: &[Row] = &[
    many(&["_linalg_eigh"], |cx| {
        let (given, lower) = (cx.tensor("A")?, cx.str("UPLO")?.eq_ignore_ascii_case("l"));
        check_eigh(cx, zeroed(given), lower);
        let (values, vectors) = eigh(completed_with(hermitian(given, lower), above_eigenvalues));
        if !cx.bool("compute_v")? {
            return Ok(vec![shaped(values, &given.extents(), &[0]), cx.b().splat(0, vectors.dtype(), &[0])]);
        }
        Ok(vec![shaped(values, &given.extents(), &[0]), shaped(vectors, &given.extents(), &[0, 1])])
    })
    .takes(&["A"], DTypes::INEXACT)
    .raises_at_call()
    .bounded(),
    many(&["_linalg_svd"], |cx| {
        let given = cx.tensor("A")?;
        let (a, rank, with_vectors) = (zeroed(given), given.rank(), cx.bool("compute_uv")?);
        if with_vectors {
            // Those of singular values that are zero could lie in the padding.
            given.require_whole(&[rank - 2, rank - 1], "singular vectors");
        }
        check_svd(cx, a);
        let (u, s, vh) = svd(a, cx.bool("full_matrices")?);
        // Rows and columns of zeros add zeros behind the singular values, of which the result has PyTorch's number.
        let batch = given.extents().into_iter().take(rank - 2).chain([Extent::default()]);
        let s = cx.resized(1, s.with_extents(batch.collect::<Vec<_>>()));
        if with_vectors {
            return Ok(vec![shaped(u, &given.extents(), &[0, 1]), s, shaped(vh, &given.extents(), &[0, 1])]);
        }
        let none = cx.b().splat(0, a.dtype(), &[0]);
        Ok(vec![none, s, none])
    })
    .takes(&["A"], DTypes::INEXACT)
    .raises_at_call()
    .bounded(),
    one(&["linalg_pinv.atol_rtol_tensor"], |cx| {
        let given = cx.tensor("self")?;
        if given.numel() == 0 {
            return Ok(adjoint(given));
        }
        let (a, rank) = (zeroed(given), given.rank());
        let tolerances = (cx.tensor_or_none("atol"), cx.tensor_or_none("rtol"));
        let sizes = [rank - 2, rank - 1].map(|axis| given.size(axis, a.dtype().real()));
        let usual = sizes[0].max(sizes[1]) * a.dtype().real().epsilon();
        let inverse = if cx.bool("hermitian")? {
            require_square(given);
            check_eigh(cx, a, true);
            let (values, vectors) = eigh(hermitian(a, true));
            pseudo_inverse(vectors, values, adjoint(vectors), usual, tolerances)
        } else {
            check_svd(cx, a);
            let (u, s, vh) = svd(a, false);
            pseudo_inverse(u, s, vh, usual, tolerances)
        };
        Ok(shaped(inverse, &given.extents(), &[1, 0]))
    })
    .raises_at_call()
    .bounded(),
    many(&["linalg_lstsq"], least_squares).takes(&["self"], DTypes::INEXACT).baked(&["rcond"]),
    one(&["linalg_matrix_exp"], |cx| {
        let a = cx.tensor("self")?;
        require_square(a);
        let exponential = exponential(zeroed(a).convert(a.dtype().opmath()));
        Ok(shaped(exponential, &a.extents(), &[0, 1]))
    })
    .bounded(),
];

// ---- checks -----------------------------------------------------------------------

fn check_eigh<'b>(cx: &Cx<'b>, a: Value<'b>, lower: bool) {
    let why = "the input matrix is ill-conditioned or has too many repeated eigenvalues (error code: 1)";
    check_converges(cx, hermitian(a, lower), "linalg.eigh", why);
}

fn check_svd<'b>(cx: &Cx<'b>, a: Value<'b>) {
    check_converges(cx, a, "linalg.svd", "the input matrix contained non-finite values");
}

/// Checks that the matrices are finite. The error message is the one of PyTorch's LAPACK wrappers.
fn check_converges<'b>(cx: &Cx<'b>, a: Value<'b>, function: &str, why: &str) {
    let element = if a.rank() > 2 { format!("(Batch element {}): ", Check::NUMBER) } else { String::new() };
    let message = format!("{function}: {element}The algorithm failed to converge because {why}.");
    cx.check_finite_matrices(a, Error::new(ErrorKind::Linalg, message));
}

/// Numbers for the diagonal of the padding that are larger than all eigenvalues, so that these come first: a bound by the
/// sums of rows (Gershgorin's theorem).
fn above_eigenvalues(x: Value<'_>) -> Value<'_> {
    let rank = x.rank();
    let sums = x.abs().reduce_sum(&[rank - 1]).reduce_max(&[rank - 2]);
    let bound = sums.eq(0).select(sums.splat_like(1), sums * 2).convert(x.dtype());
    bound.unsqueeze(rank - 2).unsqueeze(rank - 1).broadcast_to(&x.dims())
}

/// The Hermitian matrix that one triangle of `a` defines.
fn hermitian(a: Value<'_>, lower: bool) -> Value<'_> {
    let (row, column) = (position_along(a, 0), position_along(a, 1));
    let given = if lower { row.gt(column) } else { row.lt(column) };
    let own = if a.dtype().is_complex() { a.real().complex(a.real().splat_like(0)) } else { a };
    row.eq(column).select(own, given.select(a, adjoint(a)))
}

// ---- least squares -------------------------------------------------------------------------------

/// `V · S⁺ · Uᴴ`. Values of S below the tolerance (absolute, or relative to the largest) count as zero. `usual` is the
/// relative tolerance where none is given.
fn pseudo_inverse<'b>(
    u: Value<'b>,
    s: Value<'b>,
    vh: Value<'b>,
    usual: Value<'b>,
    (absolute, relative): (Option<Value<'b>>, Option<Value<'b>>),
) -> Value<'b> {
    let size = s.abs();
    let last = s.rank() - 1;
    let largest = size.reduce_max(&[last]).unsqueeze(last);
    let wide = |x: Value<'b>| {
        let x = x.convert(s.dtype());
        x.unsqueeze(x.rank())
    };
    let limit = match (absolute.map(wide), relative.map(wide)) {
        (None, None) => largest * usual,
        (Some(absolute), None) => absolute.gt(0).select(absolute, largest * usual),
        (None, Some(relative)) => largest * relative,
        (Some(absolute), Some(relative)) => absolute.max(largest * relative),
    };
    let inverse = size.gt(limit).select(s.splat_like(1) / s, 0).convert(u.dtype());
    // There may be several tolerances for a matrix.
    let (scaled, uh) = (adjoint(vh) * inverse.unsqueeze(inverse.rank() - 1), adjoint(u));
    let batch = &scaled.dims()[..scaled.rank() - 2];
    times(scaled, uh.broadcast_to(&[batch, &uh.dims()[last..]].concat()))
}

/// The least-norm solution by singular values, for every driver. PyTorch decides from driver and shape how many of
/// the other results exist. A rank would depend on the data.
fn least_squares<'b>(cx: &Cx<'b>) -> Result<Vec<Value<'b>>> {
    let (a, b) = (cx.tensor("self")?, cx.tensor("b")?);
    let driver = cx.str_or_none("driver").unwrap_or_else(|| "gelsy".into());
    let refused = |why: &str| Err(Error::runtime(format!("torch.linalg.lstsq: {why}")));
    if a.rank() < 2 || b.rank() < 1 {
        return refused("input must have at least 2 dimensions, and other at least 1.");
    }
    if a.dtype() != b.dtype() {
        return refused("Expected input and other to have the same dtype");
    }
    if !["gels", "gelsy", "gelsd", "gelss"].contains(&driver.as_str()) {
        return refused("parameter `driver` should be one of (gels, gelsy, gelsd, gelss)");
    }
    let rank = a.rank();
    let (height, width) = (a.dim(rank - 2), a.dim(rank - 1));
    // A vector for each matrix has the matrices' sizes without their last. All else is matrices, of one dimension less
    // too: then PyTorch takes their first sizes for a batch.
    let is_vector = b.dims() == a.dims()[..rank - 1];
    let columns = if is_vector { b.unsqueeze(b.rank()) } else { b };
    if columns.rank() > rank || columns.rank() + 1 < rank || columns.rank() < 2 {
        return refused("input.dim() must be greater or equal to other.dim() and (input.dim() - other.dim()) <= 1");
    }
    let (lines, number) = (columns.dim(columns.rank() - 2), columns.dim(columns.rank() - 1));
    if lines != height {
        return refused("input.size(-2) should match other.size(-2)");
    }
    let batch = broadcast_dims(&a.dims()[..rank - 2], &columns.dims()[..rank - 2]);
    let Some(batch) =
        batch.filter(|batch| broadcast_dims(batch, &columns.dims()[..columns.rank() - 2]).as_ref() == Some(batch))
    else {
        return refused("the batches of input and other do not broadcast");
    };
    let columns = columns.broadcast_to(&[batch.as_slice(), &[height, number]].concat());
    let (u, s, vh) = svd(a, false);
    let relative = cx.known_number("rcond").map_or(s.dtype().epsilon() * height.max(width) as f64, Number::to_f64);
    let relative = cx.b().scalar(relative, s.dtype());
    let inverse = pseudo_inverse(u, s, vh, relative, (None, Some(relative)));
    let solution = times(inverse.broadcast_to(&[batch.as_slice(), &[width, height]].concat()), columns);
    let limit = s.reduce_max(&[rank - 2]).unsqueeze(rank - 2) * relative;
    let full = s.gt(limit).convert(DType::I64).reduce_sum(&[rank - 2]);
    let a = a.broadcast_to(&[batch.as_slice(), &[height, width]].concat());

    let none = |dtype| cx.b().splat(0, dtype, &[0]);
    let residuals = if height > width && driver != "gelsy" {
        (times(a, solution) - columns).abs().square().reduce_sum(&[rank - 2])
    } else {
        none(s.dtype())
    };
    let solution = if is_vector {
        solution.squeeze(solution.rank() - 1)
    } else {
        cx.set_column_major(0, solution);
        solution
    };
    let ranks = if driver == "gels" { none(DType::I64) } else { full };
    let values = if matches!(driver.as_str(), "gelsd" | "gelss") { s } else { none(s.dtype()) };
    Ok(vec![solution, residuals, ranks, values])
}

// ---- the exponential -----------------------------------------------------------------------------

/// Scaling, Taylor polynomial of degree 18, and squaring. The bound on the norm is from Bader, Blanes and Casas,
/// "Computing the matrix exponential with an optimized Taylor polynomial approximation", 2019.
fn exponential(a: Value<'_>) -> Value<'_> {
    let b = a.builder();
    let matrix = batched(a);
    if a.numel() == 0 {
        return a;
    }
    let bound = if a.dtype().real() == DType::F64 { 1.09 } else { 3.01 };
    let norm = matrix.abs().reduce_sum(&[1]).reduce_max(&[1]);
    let squarings = ((norm / bound).log() / std::f64::consts::LN_2).ceil().clamp(0.0, 1100.0);
    let squarings = norm.is_finite().select(squarings, 0.0);
    let scale = (-squarings * std::f64::consts::LN_2).exp();
    let scaled = matrix * scale.convert(a.dtype()).reshape(&[matrix.dim(0), 1, 1]);
    let one = identity(matrix, matrix.dim(2));
    let polynomial = (1..=18).rev().fold(one, |sum, k| times(scaled, sum) / k + one);
    let most = squarings.reduce_max(&[0]).convert(DType::I32);
    let squarings = squarings.convert(DType::I32).reshape(&[matrix.dim(0), 1, 1]);
    let state = b.while_loop(
        &[b.scalar(0, DType::I32), most, squarings, polynomial],
        |state| state[0].lt(state[1]),
        |state| {
            let squared = state[0].lt(state[2]).select(times(state[3], state[3]), state[3]);
            vec![state[0] + 1, state[1], state[2], squared]
        },
    );
    unbatched(state[3], a)
}
