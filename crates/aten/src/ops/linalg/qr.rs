//! QR factors. [`crate::common::reflectors`] computes them.

use stablehlo::{DTypes, Value};

use crate::common::completed::{shaped, zeroed};
use crate::common::matrices::{adjoint, times};
use crate::common::reflectors::{factors, product, reflectors, widened};
use crate::error::{Error, require};
use crate::row::{Row, many, one};
use crate::spec::Dim;

pub(crate) const ROWS: &[Row] = &[
    many(&["geqrf"], |cx| {
        let a = cx.tensor("self")?;
        require(a.rank() >= 2, "torch.geqrf: input must have at least 2 dimensions.")?;
        let (packed, scales) = reflectors(a);
        cx.set_column_major(0, packed);
        Ok(vec![packed, scales])
    })
    .takes(&["self"], DTypes::INEXACT),
    one(&["linalg_householder_product"], |cx| Ok(product(cx.tensor("input")?, cx.tensor("tau")?)))
        .takes(&["input"], DTypes::INEXACT),
    one(&["ormqr"], |cx| {
        let (packed, scales, other) = (cx.tensor("self")?, cx.tensor("input2")?, cx.tensor("input3")?);
        let side = if cx.bool("left")? { 2 } else { 1 };
        let of = |value: Value<'_>, from_end: usize| value.dims().iter().rev().nth(from_end - 1).copied().unwrap_or(0);
        if of(scales, 1) != of(other, side).min(of(packed, 1)) {
            return Err(Error::runtime(format!(
                "torch.ormqr: tau.shape[-1] must be equal to min(other.shape[-{side}], input.shape[-1])"
            )));
        }
        let height = packed.dim(packed.rank() - 2);
        let q = product(widened(packed, height), scales);
        let q = if cx.bool("transpose")? { adjoint(q) } else { q };
        Ok(if cx.bool("left")? { times(q, other) } else { times(other, q) })
    })
    .takes(&["self"], DTypes::INEXACT),
    many(&["linalg_qr"], |cx| {
        let a = cx.tensor("A")?;
        let (mode, rank, extents) = (cx.str("mode")?, a.rank(), a.extents());
        a.require_whole(&[rank - 1], "a QR factorization");
        // Rows of zeros change nothing as long as there are more rows than columns.
        let is_tall = |dims: &[Dim]| dims[rank - 2].sizes.is_empty() && dims[rank - 2].capacity == a.dim(rank - 1);
        if a.is_bounded_along(&[rank - 2]) && (mode == "complete" || !cx.result_dims(1).is_some_and(is_tall)) {
            cx.b().refuse_bounded("a QR factorization with a number of rows that changes");
        }
        let (q, r) = factors(zeroed(a), mode == "complete");
        let q = shaped(q, &extents, &[0, 1]);
        Ok(vec![if mode == "r" { cx.b().splat(0, a.dtype(), &[0]) } else { q }, shaped(r, &extents, &[1, 1])])
    })
    .takes(&["A"], DTypes::INEXACT)
    .bounded(),
];
