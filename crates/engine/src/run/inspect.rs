//! Debug mode's checks of results.

use std::sync::Arc;

use stablehlo::DType;

use crate::error::{Error, Result};
use crate::program::{Program, Usage};
use crate::record::chunk::Chunk;
use crate::registry::layout::Layout;
use crate::registry::types::Types;
use crate::storage::Value;

/// Waits for the results of a program, and checks them for NaN and infinities if asked to.
pub(crate) fn inspect(
    program: &Program,
    chunk: &Chunk,
    usage: &Usage,
    values: &[Option<Arc<Value>>],
    types: &Types,
    check_finite: bool,
) -> Result<()> {
    let layouts: Vec<Option<&Layout>> = chunk.nodes.iter().flat_map(|node| node.instance.layouts()).collect();
    for (value, &output) in values.iter().zip(&usage.live) {
        let Some(value) = value else { continue };
        let buffer = value.buffer()?;
        buffer.ready().map_err(|error| Error::from(error).within(&program.operators))?;
        let ty = types.get(value.ty);
        if !check_finite || !(ty.dtype.is_float() || ty.dtype.is_complex()) {
            continue;
        }
        let mut bytes = vec![0; ty.size_bytes()];
        buffer.to_host(&mut bytes)?;
        if let Some(layout) = layouts[output as usize] {
            bytes = layout.without_padding(&bytes);
        }
        if let Some(what) = first_non_finite(&bytes, ty.dtype) {
            return Err(Error::runtime(format!(
                "{}: its result of shape {:?} contains {what} (check_finite is on)",
                program.operators, ty.dims
            )));
        }
    }
    Ok(())
}

/// "NaN" or "Inf" if the elements contain one.
fn first_non_finite(bytes: &[u8], dtype: DType) -> Option<&'static str> {
    let judge = |x: f64| match x {
        x if x.is_nan() => Some("NaN"),
        x if x.is_infinite() => Some("Inf"),
        _ => None,
    };
    let two = |c: &[u8]| [c[0], c[1]];
    match dtype.real() {
        DType::F8E4M3FN => bytes.iter().find_map(|&byte| (byte & 0x7f == 0x7f).then_some("NaN")),
        DType::F8E5M2 => bytes.iter().find_map(|&byte| judge(half::f16::from_bits(u16::from(byte) << 8).to_f64())),
        DType::F8E8M0FNU => bytes.contains(&0xff).then_some("NaN"),
        DType::F4E2M1FNX2 => None,
        DType::F8E4M3FNUZ | DType::F8E5M2FNUZ => bytes.contains(&0x80).then_some("NaN"),
        DType::F16 => bytes.chunks_exact(2).find_map(|c| judge(half::f16::from_ne_bytes(two(c)).to_f64())),
        DType::BF16 => bytes.chunks_exact(2).find_map(|c| judge(half::bf16::from_ne_bytes(two(c)).to_f64())),
        DType::F32 => bytes.chunks_exact(4).find_map(|c| judge(f32::from_ne_bytes([c[0], c[1], c[2], c[3]]).into())),
        _ => bytes
            .chunks_exact(8)
            .find_map(|c| judge(f64::from_ne_bytes([c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]]))),
    }
}
