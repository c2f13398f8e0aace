//! QR factors. [`crate::common::reflectors`] computes them.

use stablehlo::DTypes;

use crate::common::matrices::{adjoint, times};
use crate::common::reflectors::{factors, product, reflectors, widened};
use crate::row::{Row, many, one};

pub(crate) const ROWS: &[Row] = &[
    many(&["geqrf"], |cx| {
        let (packed, scales) = reflectors(cx.tensor("self")?);
        cx.set_column_major(0, packed);
        Ok(vec![packed, scales])
    })
    .takes(&["self"], DTypes::INEXACT),
    one(&["linalg_householder_product"], |cx| Ok(product(cx.tensor("input")?, cx.tensor("tau")?)))
        .takes(&["input"], DTypes::INEXACT),
    one(&["ormqr"], |cx| {
        let (packed, scales, other) = (cx.tensor("self")?, cx.tensor("input2")?, cx.tensor("input3")?);
        let height = packed.dim(packed.rank() - 2);
        let q = product(widened(packed, height), scales);
        let q = if cx.bool("transpose")? { adjoint(q) } else { q };
        Ok(if cx.bool("left")? { times(q, other) } else { times(other, q) })
    })
    .takes(&["self"], DTypes::INEXACT),
    many(&["linalg_qr"], |cx| {
        let a = cx.tensor("A")?;
        let mode = cx.str("mode")?;
        let (q, r) = factors(a, mode == "complete");
        Ok(vec![if mode == "r" { cx.b().splat(0, a.dtype(), &[0]) } else { q }, r])
    })
    .takes(&["A"], DTypes::INEXACT),
];
