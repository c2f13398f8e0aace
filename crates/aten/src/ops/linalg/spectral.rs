//! Eigenvalues of Hermitian matrices, singular values, and the matrix exponential.

use stablehlo::{DType, DTypes, Number, Type, Value};

use crate::check::Check;
use crate::common::matrices::{adjoint, batched, diagonal, identity, position_along, same_batch, times, unbatched};
use crate::common::reflectors::factors;
use crate::common::sorting::sorted;
use crate::cx::Cx;
use crate::error::{Error, ErrorKind, Result};
use crate::places::Places;
use crate::row::{Row, many, one};

pub(crate) const ROWS: &[Row] = &[
    many(&["_linalg_eigh"], |cx| {
        let (a, lower) = (cx.tensor("A")?, cx.str("UPLO")?.eq_ignore_ascii_case("l"));
        check_eigh(cx, a, lower);
        let (values, vectors) = eigh(a, lower);
        let none = cx.b().splat(0, vectors.dtype(), &[0]);
        Ok(vec![values, if cx.bool("compute_v")? { vectors } else { none }])
    })
    .takes(&["A"], DTypes::INEXACT),
    many(&["_linalg_svd"], |cx| {
        let a = cx.tensor("A")?;
        check_svd(cx, a);
        let (u, s, vh) = svd(a, cx.bool("full_matrices")?);
        if cx.bool("compute_uv")? {
            return Ok(vec![u, s, vh]);
        }
        let none = cx.b().splat(0, a.dtype(), &[0]);
        Ok(vec![none, s, none])
    })
    .takes(&["A"], DTypes::INEXACT),
    one(&["linalg_pinv.atol_rtol_tensor"], |cx| {
        let a = cx.tensor("self")?;
        let tolerances = (cx.tensor_or_none("atol"), cx.tensor_or_none("rtol"));
        if !cx.bool("hermitian")? {
            check_svd(cx, a);
            let (u, s, vh) = svd(a, false);
            return Ok(pseudo_inverse(u, s, vh, tolerances));
        }
        check_eigh(cx, a, true);
        let (values, vectors) = eigh(a, true);
        Ok(pseudo_inverse(vectors, values, adjoint(vectors), tolerances))
    }),
    many(&["linalg_lstsq"], least_squares).takes(&["self"], DTypes::INEXACT).baked(&["rcond"]),
    one(&["linalg_matrix_exp"], |cx| {
        let a = cx.tensor("self")?;
        Ok(exponential(a.convert(a.dtype().opmath())))
    }),
];

// ---- Hermitian eigenvalues -----------------------------------------------------------------------

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

/// The Hermitian matrix that one triangle of `a` defines.
fn hermitian(a: Value<'_>, lower: bool) -> Value<'_> {
    let (row, column) = (position_along(a, 0), position_along(a, 1));
    let given = if lower { row.gt(column) } else { row.lt(column) };
    let own = if a.dtype().is_complex() { a.real().complex(a.real().splat_like(0)) } else { a };
    row.eq(column).select(own, given.select(a, adjoint(a)))
}

/// Ascending eigenvalues and their vectors of the Hermitian matrix that one triangle defines. XLA has a custom call
/// for it, which it expands on every platform into Jacobi's method.
fn eigh(a: Value<'_>, lower: bool) -> (Value<'_>, Value<'_>) {
    let whole = hermitian(a, lower);
    let mut values = a.dims();
    values.pop();
    let values = Type::new(a.dtype().real(), &values);
    if a.numel() == 0 {
        return (a.builder().splat(0, values.dtype, &values.dims), a);
    }
    if a.dim(a.rank() - 1) == 1 {
        return (whole.real().reshape(&values.dims), whole.splat_like(1));
    }
    // Lower triangle, sorted, at most 100 sweeps, tolerance of the off-diagonal elements.
    let config = if values.dtype == DType::F64 { "1,1,100,1e-13" } else { "1,1,100,1e-6" };
    let results = a.builder().custom_call("Eigh", &[whole], config, vec![a.ty(), values]);
    (results[1], results[0])
}

// ---- singular values -----------------------------------------------------------------------------

/// `U · S · Vᴴ` with S descending. U and V are square if `full`.
fn svd(a: Value<'_>, full: bool) -> (Value<'_>, Value<'_>, Value<'_>) {
    let rank = a.rank();
    let (height, width) = (a.dim(rank - 2), a.dim(rank - 1));
    if height < width {
        let (u, s, vh) = svd(adjoint(a), full);
        return (adjoint(vh), s, adjoint(u));
    }
    let b = a.builder();
    if a.numel() == 0 {
        let columns = if full { height } else { width };
        let mut dims = a.dims();
        dims.truncate(rank - 2);
        dims.push(width);
        let u = identity(a, height).slice_axis(rank - 1, 0, columns);
        return (u, b.splat(0, a.dtype().real(), &dims), identity(a, width));
    }
    if height > width {
        let (q, r) = factors(a, full);
        let (u, s, vh) = svd(r.slice_axis(rank - 2, 0, width), full);
        let turned = times(q.slice_axis(rank - 1, 0, width), u);
        let rest = q.slice_axis(rank - 1, width, q.dim(rank - 1));
        return (b.concatenate(&[turned, rest], rank - 1), s, vh);
    }
    let (columns, v) = orthogonalized(batched(a));
    let norms = norms(columns);
    let (s, order) = sorted(norms.convert(a.dtype().real()), 1, true);
    let order = order.convert(DType::I32);
    let (columns, v) = (columns_at(columns, order), columns_at(v, order));
    // The columns are orthogonal, so their QR factors are their directions. QR also completes the basis where columns
    // vanish.
    let (q, r) = factors(columns, true);
    let phase = diagonal(r);
    let size = phase.abs().convert(phase.dtype());
    let phase = size.eq(0).select(phase.splat_like(1), phase / size);
    let u = q * phase.unsqueeze(1);
    (unbatched(u, a), unbatched(s, a), unbatched(adjoint(v), a))
}

fn norms(columns: Value<'_>) -> Value<'_> {
    let size = columns.abs();
    size.square().reduce_sum(&[1]).sqrt()
}

/// Permutes the columns of each matrix (batch × rows × columns) by `order` (batch × columns).
fn columns_at<'b>(matrix: Value<'b>, order: Value<'b>) -> Value<'b> {
    let dims = matrix.dims();
    let index = order.unsqueeze(1).broadcast_to(&[dims[0], dims[1], order.dim(1)]);
    Places::along(2, index).read(matrix)
}

/// A V with orthogonal columns, and V, by one-sided Jacobi rotations (Hestenes, 1958). All pairs of a round are
/// rotated at once, in the round-robin order of Brent and Luk (1985).
fn orthogonalized(a: Value<'_>) -> (Value<'_>, Value<'_>) {
    let b = a.builder();
    let (height, width) = (a.dim(1), a.dim(2));
    if width == 1 {
        return (a, identity(a, 1));
    }
    let half = (width + 1) / 2;
    // The columns of A above those of V. A column of zeros is added if the number of columns is odd.
    let both = b.concatenate(&[a, identity(a, width)], 1).pad_axis(2, 0, 0, 2 * half - width);
    let (left, right) = (both.slice_axis(2, 0, half), both.slice_axis(2, half, 2 * half));
    let real = a.dtype().real();
    let tolerance = real_epsilon(real);
    let steps = 2 * half - 1;
    let infinite = b.scalar(f64::INFINITY, real);
    let state = b.while_loop(
        &[b.scalar(0, DType::I32), infinite, b.scalar(0, real), left, right],
        |state| state[0].lt(steps * MOST_SWEEPS) & state[1].gt(tolerance),
        |state| {
            let (step, before, worst, left, right) = (state[0], state[1], state[2], state[3], state[4]);
            let (left, right, angle) = rotated(left, right, height);
            let worst = worst.max(angle.reduce_max(&[0, 1]));
            // After a sweep, every pair has been rotated. The largest angle of the sweep decides whether another
            // follows.
            let is_last = (step % steps).eq(steps - 1);
            let before = is_last.select(worst, before);
            let worst = is_last.select(worst.splat_like(0), worst);
            if half == 1 {
                return vec![step + 1, before, worst, left, right];
            }
            // The first column stays; the others rotate by one position.
            let parts = [left.slice_axis(2, 0, 1), right.slice_axis(2, 0, 1), left.slice_axis(2, 1, half - 1)];
            let last = left.slice_axis(2, half - 1, half);
            let next_right = b.concatenate(&[right.slice_axis(2, 1, half), last], 2);
            vec![step + 1, before, worst, b.concatenate(&parts, 2), next_right]
        },
    );
    let both = b.concatenate(&[state[3], state[4]], 2);
    let v = both.slice_axis(1, height, height + width);
    // The padding is the one column where V is zero: sort it to the end, then remove it.
    if 2 * half == width {
        return (both.slice_axis(1, 0, height), v);
    }
    let padding = norms(v).lt(0.5).convert(DType::I32);
    let (_, order) = sorted(padding, 1, false);
    let kept = columns_at(both, order.convert(DType::I32)).slice_axis(2, 0, width);
    (kept.slice_axis(1, 0, height), kept.slice_axis(1, height, height + width))
}

const MOST_SWEEPS: i64 = 30;

fn real_epsilon(dtype: DType) -> Number {
    Number::Float(dtype.epsilon() * 4.0)
}

/// Rotates each pair of columns so that their first `height` elements become orthogonal. Also returns the cosine of
/// the angle between them before the rotation.
fn rotated<'b>(left: Value<'b>, right: Value<'b>, height: i64) -> (Value<'b>, Value<'b>, Value<'b>) {
    let dtype = left.dtype();
    let top = |x: Value<'b>| x.slice_axis(1, 0, height);
    let square = |x: Value<'b>| top(x).abs().square().reduce_sum(&[1]);
    let (alpha, beta) = (square(left), square(right));
    let inner = (top(left).conjugate() * top(right)).reduce_sum(&[1]);
    let size = inner.abs();
    let limit = (alpha * beta).sqrt();
    let cosine = (limit.gt(0.0) & size.gt(0.0)).select(size / limit, 0.0);
    // Orthogonal or zero columns need no rotation.
    let needed = cosine.gt(left.dtype().epsilon());
    let zeta = (beta - alpha) / (size * 2.0);
    let sign = zeta.lt(0.0).select(zeta.splat_like(-1), 1.0);
    let tangent = needed.select(sign / (zeta.abs() + (zeta.square() + 1.0).sqrt()), 0.0);
    let scale = (tangent.square() + 1.0).rsqrt();
    let sine = (scale * tangent).convert(dtype).unsqueeze(1);
    let scale = scale.convert(dtype).unsqueeze(1);
    let phase = needed.select(inner / size.convert(dtype), 1).unsqueeze(1);
    let aligned = right * phase.conjugate();
    (left * scale - aligned * sine, left * sine + aligned * scale, cosine)
}

// ---- least squares -------------------------------------------------------------------------------

/// `V · S⁺ · Uᴴ`. Values of S below the tolerance (absolute, or relative to the largest) count as zero.
fn pseudo_inverse<'b>(
    u: Value<'b>,
    s: Value<'b>,
    vh: Value<'b>,
    (absolute, relative): (Option<Value<'b>>, Option<Value<'b>>),
) -> Value<'b> {
    if s.numel() == 0 {
        return times(adjoint(vh), adjoint(u));
    }
    let size = s.abs();
    let last = s.rank() - 1;
    let largest = size.reduce_max(&[last]).unsqueeze(last);
    let wide = |x: Value<'b>| {
        let x = x.convert(s.dtype());
        x.unsqueeze(x.rank())
    };
    let longest = u.dim(last).max(vh.dim(last + 1));
    let usual = largest.splat_like(s.dtype().epsilon() * longest as f64);
    let limit = match (absolute.map(wide), relative.map(wide)) {
        (None, None) => largest * usual,
        (Some(absolute), None) => absolute.gt(0).select(absolute, largest * usual),
        (None, Some(relative)) => largest * relative,
        (Some(absolute), Some(relative)) => absolute.max(largest * relative),
    };
    let inverse = size.gt(limit).select(s.splat_like(1) / s, 0).convert(u.dtype());
    times(adjoint(vh) * inverse.unsqueeze(last), adjoint(u))
}

/// The least-norm solution by singular values, for every driver. PyTorch decides from driver and shape how many of
/// the other results exist. A rank would depend on the data.
fn least_squares<'b>(cx: &Cx<'b>) -> Result<Vec<Value<'b>>> {
    let (a, b) = (cx.tensor("self")?, cx.tensor("b")?);
    let driver = cx.str_or_none("driver").unwrap_or_else(|| "gelsy".into());
    if a.rank() < 2 || b.rank() < 1 {
        return Err(Error::runtime("torch.linalg.lstsq: input must have at least 2 dimensions, and other at least 1."));
    }
    let is_vector = b.rank() + 1 == a.rank();
    let (a, columns) = same_batch(a, if is_vector { b.unsqueeze(b.rank()) } else { b })?;
    let rank = a.rank();
    let (height, width) = (a.dim(rank - 2), a.dim(rank - 1));
    let (u, s, vh) = svd(a, false);
    let relative = cx.known_number("rcond").map_or(s.dtype().epsilon() * height.max(width) as f64, Number::to_f64);
    let relative = cx.b().scalar(relative, s.dtype());
    let solution = times(pseudo_inverse(u, s, vh, (None, Some(relative))), columns);
    let limit = s.reduce_max(&[rank - 2]).unsqueeze(rank - 2) * relative;
    let full = s.gt(limit).convert(DType::I64).reduce_sum(&[rank - 2]);

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
