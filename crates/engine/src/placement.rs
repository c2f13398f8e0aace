//! Where values live.

use std::fmt;

/// Where a value lives and where operators on it run: one of the plugin's devices. A value that several devices share
/// would have a placement of another kind.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Placement {
    device: u32,
}

impl Placement {
    /// On one device, by its number among the plugin's.
    #[inline]
    pub fn on(device: usize) -> Placement {
        Placement { device: device as u32 }
    }

    /// The number of the device.
    #[inline]
    pub fn device(self) -> usize {
        self.device as usize
    }

    /// The placements on each of so many devices.
    pub(crate) fn on_each(devices: usize) -> impl Iterator<Item = Placement> {
        (0..devices).map(Placement::on)
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tpu:{}", self.device)
    }
}
