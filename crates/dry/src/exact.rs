//! What operations compute of small arrays whose elements are all known: what a script uploads, such as boxes and
//! labels, is sliced, compared and reduced. A script that checks its own data then finds it as it is.

use crate::array::{Elements, MOST, Type};
use crate::element::Element;
use crate::program::{Known, Operation};

/// Operations that compute each element of the result from the same element of the operands.
const ELEMENTWISE: &[&str] = &[
    "abs",
    "add",
    "and",
    "ceil",
    "compare",
    "convert",
    "divide",
    "floor",
    "is_finite",
    "maximum",
    "minimum",
    "multiply",
    "negate",
    "not",
    "or",
    "remainder",
    "select",
    "sign",
    "sqrt",
    "subtract",
    "xor",
];

impl Operation {
    /// The elements of the result, if they follow from those of the operands.
    pub(crate) fn elements(&self, name: &str, operands: &[Option<Elements>]) -> Option<Elements> {
        let [result] = self.result_types.as_slice() else { return None };
        if result.count() > MOST || matches!(result.element, Element::Complex(_)) {
            return None;
        }
        let dims = sizes(result);
        let operands: Vec<&Elements> = operands.iter().map(Option::as_ref).collect::<Option<_>>()?;
        let mut types = self.operand_types.iter().zip(&operands);
        if self.operand_types.len() < operands.len() || !types.all(|(ty, known)| ty.count() as usize == known.len()) {
            return None;
        }
        let found: Vec<f64> = match (name.strip_prefix("stablehlo.")?, operands.as_slice()) {
            ("reshape", [x]) => x.to_vec(),
            ("iota", []) => {
                let axis = self.number("iota_dimension")? as usize;
                indices(&dims).map(|index| index[axis] as f64).collect()
            }
            ("broadcast_in_dim", [x]) => {
                let (axes, from) = (self.list("broadcast_dimensions")?, sizes(&self.operand_types[0]));
                taken(x, &from, &dims, |index| {
                    axes.iter().zip(&from).map(|(&axis, &size)| if size == 1 { 0 } else { index[axis] }).collect()
                })
            }
            ("transpose", [x]) => {
                let (axes, from) = (self.list("permutation")?, sizes(&self.operand_types[0]));
                taken(x, &from, &dims, |index| {
                    (0..from.len()).map(|axis| axes.iter().position(|&p| p == axis).map_or(0, |at| index[at])).collect()
                })
            }
            ("slice", [x]) => {
                let (starts, steps) = (self.list("start_indices")?, self.list("strides")?);
                taken(x, &sizes(&self.operand_types[0]), &dims, |index| {
                    index.iter().zip(starts.iter().zip(&steps)).map(|(i, (start, step))| start + i * step).collect()
                })
            }
            ("concatenate", parts) => {
                let axis = self.number("dimension")? as usize;
                let inner: usize = dims[axis + 1..].iter().product();
                let outer: usize = dims[..axis].iter().product();
                let width = |ty: &Type| sizes(ty)[axis] * inner;
                let rows = |row: usize| {
                    let part = move |(ty, x): (&Type, &&Elements)| x[row * width(ty)..(row + 1) * width(ty)].to_vec();
                    self.operand_types.iter().zip(parts).flat_map(part)
                };
                (0..outer).flat_map(rows).collect()
            }
            ("reduce", [x, initial]) => self.reduced(x, initial.first().copied()?, &dims)?,
            (operation, operands) if ELEMENTWISE.contains(&operation) => {
                let at = |index: usize| -> Option<f64> {
                    let elements: Vec<f64> = operands
                        .iter()
                        .map(|x| if x.len() == 1 { x.first() } else { x.get(index) }.copied())
                        .collect::<Option<_>>()?;
                    self.run(name, &elements).first().copied()
                };
                (0..result.count() as usize).map(at).collect::<Option<_>>()?
            }
            _ => return None,
        };
        let rounded: Vec<f64> =
            found.iter().map(|&number| result.element.read(&result.element.write(number))).collect();
        let is_known = rounded.len() == result.count() as usize && rounded.iter().all(|number| number.is_finite());
        is_known.then(|| rounded.into())
    }

    /// Whether the number of the result is that of all its elements, whatever the data.
    pub(crate) fn is_certain(&self, name: &str, operands: &[Known]) -> bool {
        let Some(name) = name.strip_prefix("stablehlo.") else { return false };
        let is_one_number = ELEMENTWISE.contains(&name) || matches!(name, "broadcast_in_dim" | "reduce" | "reshape");
        // Values are finite, and none is a NaN.
        let finds_nothing = match (name, operands) {
            ("is_finite", _) => true,
            ("compare", [x, y]) => self.operands[0] == self.operands[1] || [x, y].iter().any(|x| !x.number.is_finite()),
            _ => false,
        };
        finds_nothing || is_one_number && operands.iter().all(|operand| operand.is_certain)
    }

    /// For updates that are added to the places of a row: how many each place gets if all get alike, and how many places
    /// get one more. So many tokens each of several experts has, and a count has the right sum.
    pub(crate) fn shares(&self) -> Option<(f64, usize)> {
        let [into, _, updates] = self.operand_types.as_slice() else { return None };
        let is_count = self.combines.as_deref() == Some("stablehlo.add") && into.dims.len() == 1 && into.count() > 0;
        is_count.then(|| ((updates.count() / into.count()) as f64, (updates.count() % into.count()) as usize))
    }

    /// The elements of a row after updates were added whose places are not known.
    pub(crate) fn shared_out(&self, name: &str, operands: &[Known]) -> Option<Elements> {
        let ("stablehlo.scatter", [into, _, update]) = (name, operands) else { return None };
        let (each, more) = self.shares()?;
        let added = |place: usize| (each + f64::from(u8::from(place < more))) * update.number;
        let elements = into.elements.as_ref()?.iter().enumerate();
        Some(elements.map(|(place, number)| number + added(place)).collect())
    }

    fn reduced(&self, x: &[f64], initial: f64, dims: &[usize]) -> Option<Vec<f64>> {
        let (gone, from) = (self.list("dimensions")?, sizes(&self.operand_types[0]));
        let mut found = vec![initial; dims.iter().product()];
        for (index, &number) in indices(&from).zip(x) {
            let kept: Vec<usize> =
                (0..from.len()).filter(|axis| !gone.contains(axis)).map(|axis| index[axis]).collect();
            let place = &mut found[flat(&kept, dims)];
            *place = match self.combines.as_deref()? {
                "stablehlo.add" => *place + number,
                "stablehlo.maximum" => place.max(number),
                "stablehlo.minimum" => place.min(number),
                "stablehlo.or" => f64::from(u8::from(*place != 0.0 || number != 0.0)),
                "stablehlo.and" => f64::from(u8::from(*place != 0.0 && number != 0.0)),
                _ => return None,
            };
        }
        Some(found)
    }

    /// The numbers of an attribute such as `permutation = array<i64: 1, 0>`.
    fn list(&self, name: &str) -> Option<Vec<usize>> {
        let (_, rest) = self.attributes.split_once(&format!("{name} = array<i64"))?;
        let numbers = rest.split('>').next()?.trim_start_matches(':').trim();
        numbers.split(',').map(str::trim).filter(|text| !text.is_empty()).map(|text| text.parse().ok()).collect()
    }

    /// The number of an attribute such as `dimension = 1 : i64`.
    fn number(&self, name: &str) -> Option<i64> {
        let (_, rest) = self.attributes.split_once(&format!("{name} = "))?;
        rest.split(' ').next()?.parse().ok()
    }
}

fn sizes(ty: &Type) -> Vec<usize> {
    ty.dims.iter().map(|&size| size as usize).collect()
}

/// An array of sizes `dims`. `place` gives the index in `x`, which has the sizes `from`, of the element at an index.
fn taken(x: &[f64], from: &[usize], dims: &[usize], place: impl Fn(&[usize]) -> Vec<usize>) -> Vec<f64> {
    indices(dims).map(|index| x[flat(&place(&index), from)]).collect()
}

/// The place of an index in row-major order.
fn flat(index: &[usize], dims: &[usize]) -> usize {
    index.iter().zip(dims).fold(0, |place, (i, size)| place * size + i)
}

/// The indices of an array, in row-major order.
fn indices(dims: &[usize]) -> impl Iterator<Item = Vec<usize>> {
    (0..dims.iter().product()).map(move |mut place: usize| {
        let mut index = vec![0; dims.len()];
        for axis in (0..dims.len()).rev() {
            (index[axis], place) = (place % dims[axis], place / dims[axis]);
        }
        index
    })
}
