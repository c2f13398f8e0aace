//! Placements of values.

use std::fmt;

/// The device of a value and of the operators on it: one of the plugin's devices. A value sharded over several
/// devices would have another kind of placement.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Placement {
    device: u32,
}

impl Placement {
    /// The placement on one device, by the plugin's device number.
    #[inline]
    pub fn on(device: usize) -> Placement {
        Placement { device: device as u32 }
    }

    /// The number of the device.
    #[inline]
    pub fn device(self) -> usize {
        self.device as usize
    }

    /// The placements on each of this many devices.
    pub(crate) fn on_each(devices: usize) -> impl Iterator<Item = Placement> {
        (0..devices).map(Placement::on)
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tpu:{}", self.device)
    }
}
