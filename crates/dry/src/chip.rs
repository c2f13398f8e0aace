//! The chips that the plugin can stand for.

/// A generation of TPUs.
pub struct Chip {
    /// The name that topologies begin with, such as `v5e`.
    pub generation: &'static str,
    /// The model as libtpu names it.
    pub kind: &'static str,
    /// The memory of a device that programs can use, in GiB: the limit in libtpu's refusals.
    memory_gib: f64,
}

impl Chip {
    /// The bytes of a device that programs can use.
    pub fn memory_bytes(&self) -> i64 {
        (self.memory_gib * f64::from(1 << 30)) as i64
    }
}

const CHIPS: [Chip; 5] = [
    Chip { generation: "v4", kind: "TPU v4", memory_gib: 15.25 },
    Chip { generation: "v5e", kind: "TPU v5 lite", memory_gib: 15.75 },
    Chip { generation: "v5p", kind: "TPU v5", memory_gib: 95.73 },
    Chip { generation: "v6e", kind: "TPU v6 lite", memory_gib: 31.24 },
    Chip { generation: "tpu7x", kind: "TPU7x", memory_gib: 94.74 },
];

/// The chip of a topology such as `v5e:4x4`, or of a generation.
pub fn find(topology: &str) -> Option<&'static Chip> {
    let generation = topology.split(':').next()?;
    CHIPS.iter().find(|chip| chip.generation == generation)
}

/// The number of chips of a topology, such as 192 for `v5p:4x4x4*3`; 1 for a generation alone.
pub fn count(topology: &str) -> i64 {
    let sizes = topology.split_once(':').map_or("", |(_, sizes)| sizes);
    sizes.split(['x', '*']).filter_map(|size| size.parse::<i64>().ok()).product()
}

/// The generations, as a message lists them.
pub fn generations() -> String {
    CHIPS.map(|chip| chip.generation).join(", ")
}
