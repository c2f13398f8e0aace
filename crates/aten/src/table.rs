//! The table: every operator that torchtpu lowers itself, by ATen name.
//!
//! A row is written once, for the functional form. The in-place and `out=` forms follow from the schema. An operator
//! that has only a mutating form (such as `_fused_adamw_`) has its own row. That row returns first the new values of
//! the mutated arguments, in schema order, and then the fresh results.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use rustc_hash::FxHashMap;

use crate::ops::{collectives, control, elementwise, fft, foreach, index, linalg, nn, optim, random, reduce, shape};
use crate::row::Row;

/// Every family of the table.
const FAMILIES: &[&[Row]] = &[
    collectives::ROWS,
    control::ROWS,
    elementwise::activation::ROWS,
    elementwise::bessel::ROWS,
    elementwise::binary::ROWS,
    elementwise::compare::ROWS,
    elementwise::gamma_gradient::ROWS,
    elementwise::logarithms::ROWS,
    elementwise::polynomial::ROWS,
    elementwise::quantize::ROWS,
    elementwise::special::ROWS,
    elementwise::unary::ROWS,
    fft::ROWS,
    index::dynamic::ROWS,
    index::indexing::ROWS,
    index::jagged::ROWS,
    index::scatter::ROWS,
    linalg::eig::ROWS,
    linalg::ldl::ROWS,
    linalg::lu::ROWS,
    linalg::matmul::ROWS,
    linalg::scaled::ROWS,
    linalg::qr::ROWS,
    linalg::spectral::ROWS,
    linalg::triangular::ROWS,
    nn::batch_norm::ROWS,
    nn::conv::ROWS,
    nn::ctc::ROWS,
    nn::deform_conv::ROWS,
    nn::detection::ROWS,
    nn::distance::ROWS,
    nn::embedding::ROWS,
    nn::forced_align::ROWS,
    nn::grid_sample::ROWS,
    nn::loss::ROWS,
    nn::margin_loss::ROWS,
    nn::nll::ROWS,
    nn::norm::ROWS,
    nn::pad::ROWS,
    nn::paged_attention::ROWS,
    nn::pool::ROWS,
    nn::pool_adaptive::ROWS,
    nn::pool_fractional::ROWS,
    nn::recurrence::ROWS,
    nn::regions::ROWS,
    nn::rnn::ROWS,
    nn::softmax::ROWS,
    nn::transducer::ROWS,
    nn::unfold::ROWS,
    nn::upsample::ROWS,
    optim::ROWS,
    random::distributions::ROWS,
    random::rejection::ROWS,
    reduce::order_statistics::ROWS,
    reduce::reductions::ROWS,
    reduce::scan::ROWS,
    reduce::segments::ROWS,
    reduce::sort::ROWS,
    reduce::vector_norm::ROWS,
    shape::factory::ROWS,
    shape::rearrange::ROWS,
    shape::views::ROWS,
];

/// The row of an operator, by its name without `aten::`.
pub fn find(name: &str) -> Option<&'static Row> {
    static TABLE: OnceLock<FxHashMap<&'static str, &'static Row>> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let rows = FAMILIES.iter().flat_map(|family| family.iter());
        rows.flat_map(|row| row.names.iter().map(move |name| (*name, row))).collect()
    });
    table.get(name).copied().or_else(|| derived(name))
}

/// The row of an operator that a graph may have: one whose results are all that it computes.
pub fn find_in_graph(name: &str) -> Option<&'static Row> {
    find(name).filter(|row| row.writes.is_empty())
}

/// The operator whose meta kernel is used for `name` ([`Row::shapes_like`]).
pub fn shapes_like(name: &str) -> Option<&'static str> {
    find(name)?.shapes_like.iter().find(|(of, _)| *of == name).map(|(_, like)| *like)
}

/// Rows that are derived from others by rule, created at first use.
fn derived(name: &str) -> Option<&'static Row> {
    static DERIVED: Mutex<BTreeMap<String, Option<&'static Row>>> = Mutex::new(BTreeMap::new());
    if !name.starts_with("_foreach_") {
        return None;
    }
    let mut rows = DERIVED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(row) = rows.get(name) {
        return *row;
    }
    let row = foreach::derive(name, find).map(|row| &*Box::leak(Box::new(row)));
    rows.insert(name.to_owned(), row);
    row
}

/// The names of all operators in the table that a graph may have, in the order of the families, without derived rows.
pub fn names() -> impl Iterator<Item = &'static str> {
    let rows = FAMILIES.iter().flat_map(|family| family.iter());
    rows.filter(|row| row.writes.is_empty()).flat_map(|row| row.names.iter().copied())
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = super::names().collect();
        names.sort_unstable();
        let repeated: Vec<_> = names.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
        assert!(repeated.is_empty(), "rows that appear twice: {repeated:?}");
    }
}
