//! Placements of values, and how PyTorch numbers them.

use std::fmt;
use std::sync::OnceLock;

use crate::error::{Error, Result};
use crate::platform;

/// PyTorch's numbers of the devices, once the plugin is open.
static NUMBERS: OnceLock<Numbers> = OnceLock::new();

/// How PyTorch numbers the devices. A process that has one chip of a host with several shows all of them, as with CUDA,
/// and its own has the number of the local rank: scripts use `torch.device("tpu", local_rank)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Numbers {
    /// The number of this process's first device.
    pub first: usize,
    /// How many devices the process shows, if the plugin does not say it.
    pub shown: Option<usize>,
}

impl Numbers {
    const PLAIN: Numbers = Numbers { first: 0, shown: None };

    /// The numbers that are in use. Before the plugin is open the variables of torchrun say them.
    pub fn current() -> Numbers {
        let of_host = || platform::own_chip().map(|(first, shown)| Numbers { first, shown: Some(shown) });
        NUMBERS.get().copied().unwrap_or_else(|| of_host().unwrap_or(Numbers::PLAIN))
    }

    /// Keeps the numbers for a plugin with so many devices, which is now open.
    pub(crate) fn keep(devices: usize) {
        NUMBERS.get_or_init(|| if devices == 1 { Numbers::current() } else { Numbers::PLAIN });
    }
}

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

    /// The placement on the device with PyTorch's number.
    ///
    /// # Errors
    /// If the device is another process's.
    pub fn numbered(number: usize) -> Result<Placement> {
        match Numbers::current() {
            Numbers { first, shown: None } => Ok(Placement::on(number - first)),
            Numbers { first, .. } if number == first => Ok(Placement::on(0)),
            Numbers { first, .. } => Err(Error::runtime(format!(
                "tpu:{number} is the chip of another process: this one, of local rank {first}, has tpu:{first}"
            ))),
        }
    }

    /// PyTorch's number of the device.
    pub fn number(self) -> usize {
        NUMBERS.get().map_or(0, |numbers| numbers.first) + self.device()
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
        write!(f, "tpu:{}", self.number())
    }
}
