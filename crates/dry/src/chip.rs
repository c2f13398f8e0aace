//! The chips that the plugin can stand for.

/// A generation of TPUs.
pub struct Chip {
    /// The name that topologies begin with, such as `v5e`.
    pub generation: &'static str,
    /// The model as libtpu names it.
    pub kind: &'static str,
    /// The memory of a device that programs can use, in MiB: the limit in libtpu's refusals.
    pub memory_mib: i64,
}

const CHIPS: [Chip; 5] = [
    Chip { generation: "v4", kind: "TPU v4", memory_mib: 15_616 },
    Chip { generation: "v5e", kind: "TPU v5 lite", memory_mib: 16_128 },
    Chip { generation: "v5p", kind: "TPU v5", memory_mib: 98_028 },
    Chip { generation: "v6e", kind: "TPU v6 lite", memory_mib: 31_990 },
    Chip { generation: "tpu7x", kind: "TPU7x", memory_mib: 97_014 },
];

/// The chip of a topology such as `v5e:4x4`, or of a generation.
pub fn find(topology: &str) -> Option<&'static Chip> {
    let generation = topology.split(':').next()?;
    CHIPS.iter().find(|chip| chip.generation == generation)
}

/// The generations, as a message lists them.
pub fn generations() -> String {
    CHIPS.map(|chip| chip.generation).join(", ")
}
