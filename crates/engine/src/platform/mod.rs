//! Chooses and opens the PJRT plugin.
//!
//! `TORCHTPU_PLUGIN` names a file. Otherwise `TORCHTPU_PLATFORM` names one of [`Kind::NAMED`]. Otherwise libtpu is
//! chosen if there are TPU chips, and the CPU plugin if there are none. Plugins are Python packages, found in the
//! folders of [`set_search_paths`].

mod host_memory;
mod machine;
#[cfg(test)]
mod tests;

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};

use dry::chip::{self, Chip};
use parking_lot::RwLock;
use pjrt::{Client, Plugin, Value};
use stablehlo::Target;

use crate::error::{Error, Result};
use crate::growth::Setting;
use crate::mode::Mode;
pub use host_memory::host_memory;
pub(crate) use host_memory::{is_short_of_maps, return_freed_memory};
use machine::Machine;
pub(crate) use machine::lower_priority;

/// The kind of device that a plugin runs programs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// TPU chips.
    Tpu,
    /// The host's processor.
    Cpu,
    /// NVIDIA GPUs.
    Cuda,
    /// The device of a plugin that `TORCHTPU_PLUGIN` names.
    Other,
}

impl Kind {
    /// The kinds that `TORCHTPU_PLATFORM` may name.
    pub const NAMED: [Kind; 3] = [Kind::Tpu, Kind::Cpu, Kind::Cuda];

    /// The name in `TORCHTPU_PLATFORM`.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Tpu => "tpu",
            Kind::Cpu => "cpu",
            Kind::Cuda => "cuda",
            Kind::Other => "other",
        }
    }

    /// The plugin's file, relative to a folder of Python packages.
    fn file(self) -> &'static str {
        match self {
            Kind::Tpu => "libtpu/libtpu.so",
            Kind::Cpu => "xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so",
            Kind::Cuda => "jax_plugins/xla_cuda13/xla_cuda_plugin.so",
            Kind::Other => "",
        }
    }

    /// The Python package that contains the plugin.
    fn package(self) -> &'static str {
        match self {
            Kind::Tpu => "libtpu",
            Kind::Cpu => "xla_cpu_pjrt",
            Kind::Cuda => "jax-cuda13-pjrt",
            Kind::Other => "",
        }
    }

    /// The kind that a plugin's file name suggests. The client's options depend on it, before the plugin is open.
    fn of_file(path: &Path) -> Kind {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        [("tpu", Kind::Tpu), ("cpu", Kind::Cpu), ("cuda", Kind::Cuda), ("gpu", Kind::Cuda)]
            .into_iter()
            .find_map(|(part, kind)| name.contains(part).then_some(kind))
            .unwrap_or(Kind::Other)
    }

    /// The kind for the platform name of an open plugin.
    fn of_platform(name: &str) -> Kind {
        match name.to_lowercase().as_str() {
            "tpu" => Kind::Tpu,
            "cpu" | "host" => Kind::Cpu,
            "cuda" | "gpu" => Kind::Cuda,
            _ => Kind::Other,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Kind::Tpu => "TPU",
            Kind::Cpu => "CPU",
            Kind::Cuda => "CUDA",
            Kind::Other => "PJRT",
        })
    }
}

/// The plugin to open, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The kind of device, as far as known before the plugin is open.
    pub kind: Kind,
    /// The shared library.
    pub path: PathBuf,
    /// The reason for the choice: `TORCHTPU_PLATFORM=cpu`, `no TPU chips were found`.
    pub reason: String,
    /// Everything that was tried, in order.
    pub tried: Vec<String>,
    /// Whether the device was detected on this machine. Always true for plugins given by path.
    pub hardware: bool,
}

/// An open plugin and its devices.
pub struct Platform {
    /// The kind of device, from the plugin.
    pub kind: Kind,
    /// The shared library.
    pub path: PathBuf,
    /// The reason for the choice.
    pub reason: String,
    /// The plugin.
    pub plugin: Plugin,
    /// Its client.
    pub client: Client,
    /// The compiler that programs are written for.
    pub target: Target,
    /// The client's addressable devices, in order.
    pub devices: Vec<DeviceInfo>,
    /// All devices of the client's job, in order: also those of other processes.
    pub all_devices: Vec<DevicePlace>,
    /// Whether it computes nothing, and what is read from it is invented.
    pub is_dry: bool,
}

impl Platform {
    /// Free and total bytes of a device: the plugin's numbers, else the host's memory; (0, 0) if unknown.
    ///
    /// # Errors
    /// If there is no such device.
    pub fn memory(&self, device: usize) -> Result<(u64, u64)> {
        if device >= self.client.addressable_devices().len() {
            return Err(Error::runtime(format!("there is no device tpu:{device}")));
        }
        Ok(self.device_memory(device).unwrap_or_else(host_memory))
    }

    /// Free and total bytes of a device, if the plugin tells them.
    pub(crate) fn device_memory(&self, device: usize) -> Option<(u64, u64)> {
        let stats = self.client.addressable_devices().get(device)?.memory_stats().ok()?;
        let limit = stats.bytes_limit?;
        Some(((limit - stats.bytes_in_use).max(0) as u64, limit as u64))
    }
}

/// A device of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DevicePlace {
    /// The number of the device in programs.
    pub id: i64,
    /// The process that can use it.
    pub process: i64,
}

impl DevicePlace {
    fn read(device: &pjrt::Device) -> pjrt::Result<DevicePlace> {
        Ok(DevicePlace { id: device.id()?.into(), process: device.process_index()?.into() })
    }
}

/// Information about a device.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceInfo {
    /// The name to show: `TPU v6e`, `CPU (XLA)`, `NVIDIA H100 80GB HBM3`.
    pub name: String,
    /// The plugin's name for the model: `TPU v6 lite`, `cpu`.
    pub kind: String,
    /// The number of the device in programs, unique over all hosts.
    pub id: i32,
    /// Its memory in bytes. On the CPU plugin, the host's memory, which all devices share.
    pub total_memory: Option<u64>,
    /// Other attributes from the plugin, such as `coords`, `core_count` or `compute_capability`.
    pub attributes: Vec<(String, Value)>,
}

static SEARCH_PATHS: RwLock<Vec<PathBuf>> = RwLock::new(Vec::new());

/// Sets the folders in which Python packages, and so plugins, are searched: Python's `sys.path`.
pub fn set_search_paths(paths: Vec<PathBuf>) {
    let here = env::current_dir().unwrap_or_default();
    // Python writes the current folder as an empty string. `join` does not change absolute paths.
    *SEARCH_PATHS.write() = paths.into_iter().map(|path| here.join(path)).collect();
}

/// Chooses the plugin. Opens no plugin and reads only a few files.
///
/// # Errors
/// If a variable has an invalid value, or the chosen plugin is not installed.
pub fn find() -> Result<Choice> {
    Machine::with_this(|machine| machine.choose())
}

/// The local rank of this process, and the number of local ranks. `None` unless torchrun started several processes on this
/// host, each of which has one TPU chip.
pub(crate) fn own_chip() -> Option<(usize, usize)> {
    Machine::with_this(|machine| machine.own_chip())
}

/// The number of devices of a TPU's host with several, where it is known without opening libtpu.
pub fn devices_of_host() -> Option<usize> {
    Machine::with_this(|machine| machine.devices_of_host())
}

/// The mode in `TORCHTPU_EAGER_MODE`. An invalid name is reported when the plugin is opened.
pub fn mode() -> Option<Mode> {
    Machine::with_this(|machine| machine.variable(machine::EAGER_MODE)).and_then(|name| Mode::from_name(&name))
}

/// Whether `TORCHTPU_CPU_FALLBACK` allows that operators without a lowering run on the CPU.
pub fn allows_cpu_fallback() -> bool {
    Machine::with_this(|machine| machine.variable(machine::CPU_FALLBACK)).as_deref() == Some("1")
}

/// The setting in `TORCHTPU_SIZES`. An invalid one is reported when the plugin is opened.
pub fn sizes() -> Setting {
    let name = Machine::with_this(|machine| machine.variable(machine::SIZES));
    name.and_then(|name| Setting::of(&name)).unwrap_or(Setting::Dynamic)
}

/// Whether there is a plugin to open and the device that it needs.
pub fn is_available() -> bool {
    find().is_ok_and(|choice| choice.hardware)
}

/// Opens the plugin that [`find`] chooses.
///
/// # Errors
/// As [`find`]; if an option is invalid; if the plugin does not load or finds no device.
pub fn open() -> Result<Platform> {
    Machine::with_this(|machine| {
        let choice = machine.choose()?;
        // Checks variables first, so that errors in them are reported before anything is loaded.
        machine.check_switches()?;
        if let Some((chip, count)) = machine.dry()? {
            return open_dry(choice, chip, count);
        }
        let options = machine.client_options(choice.kind)?;
        let target = machine.target()?;
        let missing = machine.prepare(choice.kind);

        let plugin = Plugin::load(&choice.path).map_err(|error| choice.failed("load", &error, &missing))?;
        let client = plugin.create_client(&options).map_err(|error| choice.failed("start", &error, &missing))?;
        let kind = client.platform_name().map_or(choice.kind, |name| Kind::of_platform(&name));
        let devices = client
            .addressable_devices()
            .iter()
            .map(|device| DeviceInfo::read(kind, device))
            .collect::<pjrt::Result<Vec<_>>>()
            .map_err(|error| choice.failed("describe the devices of", &error, &missing))?;
        if devices.is_empty() {
            return Err(choice.refuse("has no device for this process", &missing));
        }
        let target = target.unwrap_or(match kind {
            Kind::Cpu => Target::Cpu,
            Kind::Tpu => Target::Tpu,
            Kind::Cuda | Kind::Other => Target::Other,
        });
        let all_devices = client.devices().and_then(|devices| devices.iter().map(DevicePlace::read).collect());
        let all_devices = all_devices.map_err(|error| choice.failed("describe the devices of", &error, &missing))?;
        let Choice { path, reason, .. } = choice;
        Ok(Platform { kind, path, reason, plugin, client, target, devices, all_devices, is_dry: false })
    })
}

/// The bytes of a device of a chip that programs can use; `None` if no chip has this generation or topology.
pub fn chip_memory(topology: &str) -> Option<i64> {
    chip::find(topology).map(Chip::memory_bytes)
}

/// Opens the plugin that computes nothing, as the first of so many chips, which have a process each.
fn open_dry(choice: Choice, chip: &Chip, count: i64) -> Result<Platform> {
    let failed = |error: pjrt::Error| choice.failed("start", &error, &[]);
    // SAFETY: the table is a static of the crate.
    let plugin = unsafe { Plugin::linked(dry::get_api, "dry") }.map_err(failed)?;
    let options = [("kind", Value::Str(chip.kind.into())), ("memory_bytes", Value::Int(chip.memory_bytes()))];
    let client = plugin.create_client(&options).map_err(failed)?;
    let devices = client.addressable_devices().iter().map(|device| DeviceInfo::read(Kind::Tpu, device));
    let devices = devices.collect::<pjrt::Result<Vec<_>>>().map_err(failed)?;
    let Choice { path, reason, .. } = choice;
    let all_devices = (0..count).map(|number| DevicePlace { id: number, process: number }).collect();
    let target = Target::Tpu;
    Ok(Platform { kind: Kind::Tpu, path, reason, plugin, client, target, devices, all_devices, is_dry: true })
}

/// The target of a platform, by the name that users write.
pub fn target_of(platform: &str) -> Option<Target> {
    match platform {
        "cpu" => Some(Target::Cpu),
        "tpu" => Some(Target::Tpu),
        "cuda" => Some(Target::Other),
        _ => None,
    }
}

/// Opens libtpu to compile ahead of time, which needs no TPU. Also returns its path.
///
/// # Errors
/// If libtpu is not installed or does not load.
pub fn libtpu() -> Result<(Plugin, PathBuf)> {
    Machine::with_this(|machine| {
        let choice = machine.look_for(Kind::Tpu, "programs are compiled for a TPU".into(), Vec::new())?;
        machine.prepare(Kind::Tpu);
        let plugin = Plugin::load(&choice.path).map_err(|error| choice.failed("load", &error, &[]))?;
        Ok((plugin, choice.path))
    })
}

impl Choice {
    fn failed(&self, verb: &str, error: &pjrt::Error, missing: &[&str]) -> Error {
        self.refuse(&format!("was chosen, but torchtpu could not {verb} it: {error}"), missing)
    }

    /// The error for a plugin that cannot be used, with what the user can do.
    fn refuse(&self, what: &str, missing: &[&str]) -> Error {
        let Choice { kind, reason, .. } = self;
        let mut message = format!("the {kind} plugin {} {what}\nIt was chosen because {reason}.", self.path.display());
        if !missing.is_empty() {
            let list = missing.join(", ");
            message += &format!(
                "\nThese of NVIDIA's libraries were not found under nvidia/*/lib in sys.path: {list}. \
                 `pip install \"jax-cuda13-plugin[with-cuda]\"` brings them."
            );
        }
        message += &match kind {
            Kind::Tpu | Kind::Cuda if !self.hardware => {
                let chips = if *kind == Kind::Tpu { "TPU chips" } else { "NVIDIA devices" };
                format!("\nNo {chips} were seen on this machine: set TORCHTPU_PLATFORM=cpu to run without.")
            }
            Kind::Tpu => "\nSee that no other process uses the TPU, or set TORCHTPU_PLATFORM=cpu.".into(),
            Kind::Cuda => "\nSee that the driver is for CUDA 13, or set TORCHTPU_PLATFORM=cpu.".into(),
            Kind::Cpu => format!("\n`pip install --upgrade {}` brings one that works.", kind.package()),
            Kind::Other => "\nUnset TORCHTPU_PLUGIN to let torchtpu choose.".into(),
        };
        Error::runtime(message)
    }
}

impl DeviceInfo {
    fn read(kind: Kind, device: &pjrt::Device) -> pjrt::Result<DeviceInfo> {
        let model = device.kind()?;
        let attributes = device.attributes().unwrap_or_default();
        let total_memory = match kind {
            Kind::Cpu => Some(host_memory().1).filter(|bytes| *bytes > 0),
            _ => attributes
                .iter()
                .find_map(|(name, value)| match value {
                    Value::Int(bytes) if name == "device_memory_bytes_limit" => Some(*bytes),
                    _ => None,
                })
                .or_else(|| device.memory_stats().ok()?.bytes_limit)
                .and_then(|bytes| u64::try_from(bytes).ok()),
        };
        Ok(DeviceInfo { name: display_name(kind, &model), kind: model, id: device.id()?, total_memory, attributes })
    }
}

/// The display name of a model. For TPUs, the name in Google's documentation, which libraries use to look up the
/// chip's peak speed.
fn display_name(kind: Kind, model: &str) -> String {
    match (kind, model) {
        (Kind::Cpu, _) => "CPU (XLA)".into(),
        (Kind::Tpu, "TPU v5 lite") => "TPU v5e".into(),
        (Kind::Tpu, "TPU v5") => "TPU v5p".into(),
        (Kind::Tpu, "TPU v6 lite") => "TPU v6e".into(),
        (Kind::Tpu, "TPU7x") => "TPU v7x".into(),
        (Kind::Tpu, model) if !model.starts_with("TPU") => format!("TPU {model}"),
        (_, model) => model.into(),
    }
}
