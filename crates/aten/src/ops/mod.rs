//! The rows, one file per family.

use crate::table::Row;

pub(crate) mod activation;
pub(crate) mod batch_norm;
pub(crate) mod bessel;
pub(crate) mod binary;
pub(crate) mod bounded_views;
pub(crate) mod chebyshev;
pub(crate) mod compare;
pub(crate) mod control;
pub(crate) mod conv;
pub(crate) mod ctc;
pub(crate) mod detection;
pub(crate) mod distance;
pub(crate) mod dynamic;
pub(crate) mod embedding;
pub(crate) mod factory;
pub(crate) mod fft;
pub(crate) mod foreach;
pub(crate) mod gamma_gradient;
pub(crate) mod grid_sample;
pub(crate) mod index;
mod index_check;
pub(crate) mod jagged;
pub(crate) mod linalg;
pub(crate) mod linalg_eig;
pub(crate) mod linalg_ldl;
pub(crate) mod linalg_lu;
pub(crate) mod linalg_qr;
pub(crate) mod linalg_spectral;
pub(crate) mod loss;
pub(crate) mod margin_loss;
pub(crate) mod matmul;
pub(crate) mod nll;
pub(crate) mod norm;
pub(crate) mod optim;
pub(crate) mod order_statistics;
pub(crate) mod pad;
pub(crate) mod polynomial;
pub(crate) mod pool;
pub(crate) mod pool_adaptive;
pub(crate) mod pool_fractional;
pub(crate) mod quantize;
pub(crate) mod random;
pub(crate) mod reduce;
pub(crate) mod rejection;
pub(crate) mod rnn;
pub(crate) mod scan;
pub(crate) mod scatter;
pub(crate) mod shape;
pub(crate) mod softmax;
pub(crate) mod sort;
pub(crate) mod sort_keys;
pub(crate) mod special;
pub(crate) mod unary;
pub(crate) mod unfold;
pub(crate) mod upsample;
pub(crate) mod vector_norm;
pub(crate) mod views;
pub(crate) mod window;

/// Families of which every row knows bounded dimensions ([`Row::bounded`]).
pub(crate) const BOUNDED_FAMILIES: &[&[Row]] = &[
    activation::ROWS,
    binary::ROWS,
    compare::ROWS,
    loss::ROWS,
    matmul::ROWS,
    nll::ROWS,
    reduce::ROWS,
    scan::ROWS,
    softmax::ROWS,
    unary::ROWS,
    vector_norm::ROWS,
];

/// Every family of the table.
pub(crate) const FAMILIES: &[&[Row]] = &[
    activation::ROWS,
    batch_norm::ROWS,
    bessel::ROWS,
    binary::ROWS,
    compare::ROWS,
    control::ROWS,
    conv::ROWS,
    ctc::ROWS,
    detection::ROWS,
    distance::ROWS,
    dynamic::ROWS,
    embedding::ROWS,
    factory::ROWS,
    fft::ROWS,
    gamma_gradient::ROWS,
    grid_sample::ROWS,
    index::ROWS,
    jagged::ROWS,
    linalg::ROWS,
    linalg_eig::ROWS,
    linalg_ldl::ROWS,
    linalg_lu::ROWS,
    linalg_qr::ROWS,
    linalg_spectral::ROWS,
    loss::ROWS,
    margin_loss::ROWS,
    matmul::ROWS,
    nll::ROWS,
    norm::ROWS,
    optim::ROWS,
    order_statistics::ROWS,
    pad::ROWS,
    polynomial::ROWS,
    pool::ROWS,
    pool_adaptive::ROWS,
    pool_fractional::ROWS,
    quantize::ROWS,
    random::ROWS,
    reduce::ROWS,
    rejection::ROWS,
    rnn::ROWS,
    scan::ROWS,
    scatter::ROWS,
    shape::ROWS,
    softmax::ROWS,
    sort::ROWS,
    special::ROWS,
    unary::ROWS,
    unfold::ROWS,
    upsample::ROWS,
    views::ROWS,
    vector_norm::ROWS,
];
