//! XLA's options for collectives.

use pjrt::Value;

/// XLA's options with which a TPU's collectives run beside other work and send no more than they must, by the model of
/// the device. On the models that are not listed they do by default.
const OVERLAP: &[(&str, &[&str])] =
    &[("TPU v5", SPARSE_CORE), ("TPU v5 lite", &[REDUCE_SCATTER]), ("TPU v6 lite", SPARSE_CORE)];

/// The sparse cores do the work of collectives.
const SPARSE_CORE: &[&str] = &[
    "xla_tpu_enable_sparse_core_collective_offload_all_gather",
    "xla_tpu_enable_sparse_core_collective_offload_all_reduce",
    "xla_tpu_enable_sparse_core_collective_offload_reduce_scatter",
    REDUCE_SCATTER,
];

/// A reduce-scatter over more than one axis of the torus stays one. By default it is an all-reduce, which sends twice as
/// much, and a slice.
const REDUCE_SCATTER: &str = "xla_tpu_enable_sparse_core_collective_offload_nd_reduce_scatter";

/// The options with which the collectives of a program run beside other work on a model of device.
pub(crate) fn options(device: &str) -> impl Iterator<Item = (String, Value)> {
    let flags = OVERLAP.iter().filter(move |(model, _)| *model == device).flat_map(|(_, flags)| *flags);
    flags.map(|flag| ((*flag).to_owned(), Value::Bool(true)))
}
