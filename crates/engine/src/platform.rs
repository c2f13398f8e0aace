//! Which PJRT plugin to open, and opening it.
//!
//! `TORCHTPU_PLUGIN` names a file; else `TORCHTPU_PLATFORM` names one of [`Kind::NAMED`]; else libtpu
//! is taken where there are TPU chips, and the CPU plugin where there are none. Plugins are Python
//! packages, looked for in the folders of [`set_search_paths`].

use std::env;
use std::ffi::CString;
use std::fmt;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use parking_lot::RwLock;
use pjrt::{Client, Plugin, Value};

use crate::error::{Error, Result};

/// Google's vendor id on the PCI bus.
const GOOGLE: &str = "0x1ae0";

/// TPU chips among Google's PCI devices: v2 and v3 share an id. Google's network cards and disks have others.
const TPU_CHIPS: [&str; 7] = ["0x0027", "0x0056", "0x005e", "0x0062", "0x0063", "0x006f", "0x0076"];

/// What NVIDIA's driver puts up on a machine, in a container, and under WSL.
const NVIDIA_DEVICES: [&str; 3] = ["dev/nvidia0", "dev/nvidiactl", "dev/dxg"];

/// The libraries that the CUDA plugin opens by name, below `nvidia/` in the search paths; each after those it needs.
const CUDA_LIBRARIES: [(&str, &str); 12] = [
    ("cu13", "libcudart.so.13"),
    ("cu13", "libnvJitLink.so.13"),
    ("cu13", "libnvrtc.so.13"),
    ("cu13", "libcublasLt.so.13"),
    ("cu13", "libcublas.so.13"),
    ("nccl", "libnccl.so.2"),
    ("cu13", "libcupti.so.13"),
    ("cu13", "libcusparse.so.12"),
    ("cu13", "libcusolver.so.12"),
    ("cu13", "libcufft.so.12"),
    ("nvshmem", "libnvshmem_host.so.3"),
    ("cudnn", "libcudnn.so.9"),
];

/// What libtpu is told where there are no chips, to compile ahead of time: not to wait minutes for a metadata
/// server; not to keep other processes out, as it must where they would share a chip; and, so that it does not
/// complain, which host this is. What it compiles for is decided by the topology alone.
const WITHOUT_CHIPS: [(&str, &str); 4] = [
    ("TPU_SKIP_MDS_QUERY", "1"),
    ("ALLOW_MULTIPLE_LIBTPU_LOAD", "1"),
    ("TPU_WORKER_HOSTNAMES", "localhost"),
    ("TPU_ACCELERATOR_TYPE", "v5litepod-1"),
];

/// Where below a CUDA folder its mathematical functions are.
const LIBDEVICE: &str = "nvvm/libdevice/libdevice.10.bc";

/// The most devices that the CPU plugin is asked for.
const MAX_CPU_DEVICES: i64 = 1024;

/// What a plugin runs programs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// TPU chips.
    Tpu,
    /// The host's processor.
    Cpu,
    /// NVIDIA GPUs.
    Cuda,
    /// Something that a plugin named by `TORCHTPU_PLUGIN` knows.
    Other,
}

impl Kind {
    /// The kinds that `TORCHTPU_PLATFORM` may name.
    pub const NAMED: [Kind; 3] = [Kind::Tpu, Kind::Cpu, Kind::Cuda];

    /// The name, as in `TORCHTPU_PLATFORM`.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Tpu => "tpu",
            Kind::Cpu => "cpu",
            Kind::Cuda => "cuda",
            Kind::Other => "other",
        }
    }

    /// The plugin's file below a folder of Python packages.
    fn file(self) -> &'static str {
        match self {
            Kind::Tpu => "libtpu/libtpu.so",
            Kind::Cpu => "xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so",
            Kind::Cuda => "jax_plugins/xla_cuda13/xla_cuda_plugin.so",
            Kind::Other => "",
        }
    }

    /// The package that brings the plugin.
    fn package(self) -> &'static str {
        match self {
            Kind::Tpu => "libtpu",
            Kind::Cpu => "xla_cpu_pjrt",
            Kind::Cuda => "jax-cuda13-pjrt",
            Kind::Other => "",
        }
    }

    /// What a plugin's file name suggests: it decides the options, before the plugin can be asked.
    fn of_file(path: &Path) -> Kind {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        [("tpu", Kind::Tpu), ("cpu", Kind::Cpu), ("cuda", Kind::Cuda), ("gpu", Kind::Cuda)]
            .into_iter()
            .find_map(|(part, kind)| name.contains(part).then_some(kind))
            .unwrap_or(Kind::Other)
    }

    /// What an open plugin calls its platform.
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

/// Which plugin is to be opened, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// What it runs on, as far as can be told without opening it.
    pub kind: Kind,
    /// The shared library.
    pub path: PathBuf,
    /// Why it is this one: `TORCHTPU_PLATFORM=cpu`, `no TPU chips were found`.
    pub reason: String,
    /// Everything that was looked at, in order.
    pub tried: Vec<String>,
    /// Whether what it runs on was seen on this machine. Plugins named by their path are believed.
    pub hardware: bool,
}

/// An open plugin and its devices.
pub struct Platform {
    /// What it runs on, in the plugin's own words.
    pub kind: Kind,
    /// The shared library.
    pub path: PathBuf,
    /// Why it is this one.
    pub reason: String,
    /// The plugin.
    pub plugin: Plugin,
    /// Its client.
    pub client: Client,
    /// The client's addressable devices, in order.
    pub devices: Vec<DeviceInfo>,
}

/// What is known of a device.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceInfo {
    /// The name to show: `TPU v6e`, `CPU (XLA)`, `NVIDIA H100 80GB HBM3`.
    pub name: String,
    /// The plugin's name for the model: `TPU v6 lite`, `cpu`.
    pub kind: String,
    /// The number by which programs name the device, unique over all hosts.
    pub id: i32,
    /// Its memory in bytes: on the CPU plugin the host's, which all devices share.
    pub total_memory: Option<u64>,
    /// What else the plugin says, such as `coords`, `core_count` or `compute_capability`.
    pub attributes: Vec<(String, Value)>,
}

static SEARCH_PATHS: RwLock<Vec<PathBuf>> = RwLock::new(Vec::new());

/// Sets the folders in which Python packages, and so plugins, are looked for: Python's `sys.path`.
pub fn set_search_paths(paths: Vec<PathBuf>) {
    let here = env::current_dir().unwrap_or_default();
    // Python writes the current folder as an empty string; `join` leaves absolute paths as they are.
    *SEARCH_PATHS.write() = paths.into_iter().map(|path| here.join(path)).collect();
}

/// Decides which plugin to open. This opens none, and looks at a few files only.
///
/// # Errors
/// Where a variable has a value that it cannot have, or the plugin that is called for is not there.
pub fn find() -> Result<Choice> {
    Machine::with_this(|machine| machine.choose())
}

/// Whether there is a plugin to open, and the hardware that it needs.
pub fn is_available() -> bool {
    find().is_ok_and(|choice| choice.hardware)
}

/// Opens the plugin that [`find`] decides on.
///
/// # Errors
/// As [`find`]; where an option is wrong; and where the plugin does not load or finds no device.
pub fn open() -> Result<Platform> {
    Machine::with_this(|machine| {
        let choice = machine.choose()?;
        // Options first: what is wrong with them is told before anything is loaded.
        let options = machine.client_options(choice.kind)?;
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
        Ok(Platform { kind, path: choice.path, reason: choice.reason, plugin, client, devices })
    })
}

/// Opens libtpu to compile ahead of time, which needs no TPU; tells its path as well.
///
/// # Errors
/// Where libtpu is not installed or does not load.
pub fn libtpu() -> Result<(Plugin, PathBuf)> {
    Machine::with_this(|machine| {
        let choice = machine.look_for(Kind::Tpu, "programs are compiled for a TPU".into(), Vec::new())?;
        machine.prepare(Kind::Tpu);
        let plugin = Plugin::load(&choice.path).map_err(|error| choice.failed("load", &error, &[]))?;
        Ok((plugin, choice.path))
    })
}

/// The host's memory in bytes, free and in all: what the kernel says, or less where a control group allows less.
/// (0, 0) where it cannot be told.
pub fn host_memory() -> (u64, u64) {
    memory_under(Path::new("/"))
}

impl Choice {
    fn failed(&self, verb: &str, error: &pjrt::Error, missing: &[&str]) -> Error {
        self.refuse(&format!("was chosen, but torchtpu could not {verb} it: {error}"), missing)
    }

    /// The error that this plugin cannot be used, with what to do about it.
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

/// The name to show for a model. For TPUs it is the one of Google's documentation, by which libraries
/// know the chip's peak speed.
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

/// What choices depend on: tests bring their own.
struct Machine<'a> {
    /// Looks up an environment variable.
    variable: &'a dyn Fn(&str) -> Option<String>,
    /// The root of the file system.
    root: &'a Path,
    /// Where Python packages are.
    packages: &'a [PathBuf],
}

impl Machine<'_> {
    fn with_this<T>(action: impl FnOnce(&Machine) -> T) -> T {
        let packages = SEARCH_PATHS.read().clone();
        let variable = |name: &str| env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        action(&Machine { variable: &variable, root: Path::new("/"), packages: &packages })
    }

    /// A variable; one that is empty counts as not set.
    fn variable(&self, name: &str) -> Option<String> {
        (self.variable)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    fn choose(&self) -> Result<Choice> {
        if let Some(path) = self.variable("TORCHTPU_PLUGIN").map(PathBuf::from) {
            if !path.is_file() {
                return Err(Error::runtime(format!(
                    "TORCHTPU_PLUGIN is set, but there is no file at {}. Set it to the path of a PJRT plugin (a .so), \
                     or unset it to let torchtpu choose.",
                    path.display()
                )));
            }
            return Ok(Choice {
                kind: Kind::of_file(&path),
                reason: "TORCHTPU_PLUGIN names it".into(),
                tried: vec![format!("TORCHTPU_PLUGIN={}: found", path.display())],
                path,
                hardware: true,
            });
        }
        if let Some(name) = self.variable("TORCHTPU_PLATFORM") {
            let Some(kind) = Kind::NAMED.into_iter().find(|kind| kind.name().eq_ignore_ascii_case(&name)) else {
                return Err(Error::runtime(format!(
                    "TORCHTPU_PLATFORM={name} is no platform: set it to {}, or TORCHTPU_PLUGIN to the path of a PJRT \
                     plugin, or unset it to let torchtpu choose.",
                    Kind::NAMED.map(Kind::name).join(" or ")
                )));
            };
            return self.look_for(kind, format!("TORCHTPU_PLATFORM is {}", kind.name()), Vec::new());
        }
        match self.tpu_chips() {
            Some(chips) => self.look_for(Kind::Tpu, format!("there are TPU chips ({chips})"), Vec::new()),
            None => {
                let tried = "TPU chips: none on the PCI bus, and no /dev/accel*".into();
                self.look_for(Kind::Cpu, "no TPU chips were found".into(), vec![tried])
            }
        }
    }

    /// Looks for the plugin of a kind among the packages.
    fn look_for(&self, kind: Kind, reason: String, mut tried: Vec<String>) -> Result<Choice> {
        let hardware = match kind {
            Kind::Tpu => self.tpu_chips().is_some(),
            Kind::Cuda => NVIDIA_DEVICES.iter().any(|device| self.root.join(device).exists()),
            Kind::Cpu | Kind::Other => true,
        };
        // Google's own variable for it, which others of its packages honour too.
        let named = self.variable("TPU_LIBRARY_PATH").filter(|_| kind == Kind::Tpu).map(PathBuf::from);
        for path in named.into_iter().chain(self.packages.iter().map(|folder| folder.join(kind.file()))) {
            if path.is_file() {
                tried.push(format!("{}: found", path.display()));
                return Ok(Choice { kind, path, reason, tried, hardware });
            }
            tried.push(format!("{}: no such file", path.display()));
        }
        if self.packages.is_empty() {
            tried.push(format!("{}: there are no folders to look for it in", kind.file()));
        }
        let mut message = format!("the {kind} plugin is not installed: {reason}, but it was not found. Tried:");
        for line in &tried {
            message += &format!("\n  {line}");
        }
        message += &format!("\nInstall it with `pip install {}`, or set TORCHTPU_PLUGIN to its path", kind.package());
        message += if kind == Kind::Cpu { "." } else { ", or TORCHTPU_PLATFORM=cpu to run without it." };
        Err(Error::runtime(message))
    }

    /// How TPU chips were seen, if they were.
    fn tpu_chips(&self) -> Option<String> {
        let read = |path: PathBuf| fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default();
        let bus = fs::read_dir(self.root.join("sys/bus/pci/devices"));
        let bus_is_hidden = bus.is_err();
        let chips = bus
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .filter(|device| read(device.join("vendor")) == GOOGLE)
            .filter(|device| TPU_CHIPS.contains(&read(device.join("device")).as_str()))
            .count();
        if chips > 0 {
            return Some(format!("{chips} on the PCI bus"));
        }
        // Google's driver puts up /dev/accel0; the kernel's class for other accelerators is the folder /dev/accel.
        if let Some(name) = self.numbered("dev", "accel") {
            return Some(format!("/dev/{name}"));
        }
        // Any passed-through device is under /dev/vfio, so that counts only where the bus cannot be asked.
        let name = self.numbered("dev/vfio", "").filter(|_| bus_is_hidden)?;
        Some(format!("/dev/vfio/{name}"))
    }

    /// An entry of a folder whose name is the prefix and a number.
    fn numbered(&self, folder: &str, prefix: &str) -> Option<String> {
        let names = fs::read_dir(self.root.join(folder)).ok()?.flatten().map(|entry| entry.file_name());
        names.filter_map(|name| name.into_string().ok()).find(|name| {
            let number = name.strip_prefix(prefix).unwrap_or_default();
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        })
    }

    /// The options for a kind's client. Those that a plugin does not know are ignored by the CPU plugin,
    /// and refused by the CUDA plugin.
    fn client_options(&self, kind: Kind) -> Result<Vec<(&'static str, Value)>> {
        let bad = |name: &str, value: &str, must: &str| Error::runtime(format!("{name}={value}: it must be {must}"));
        let mut options = Vec::new();
        if matches!(kind, Kind::Cpu | Kind::Other) {
            const NAME: &str = "TORCHTPU_NUM_DEVICES";
            let count = match self.variable(NAME) {
                Some(text) => match text.parse() {
                    Ok(count @ 1..=MAX_CPU_DEVICES) => Some(count),
                    _ => return Err(bad(NAME, &text, &format!("a whole number from 1 to {MAX_CPU_DEVICES}"))),
                },
                None => (kind == Kind::Cpu).then_some(1),
            };
            options.extend(count.map(|count| ("cpu_device_count", Value::Int(count))));
        }
        if kind == Kind::Cuda {
            options.push(("platform_name", Value::Str("cuda".into())));
            options.push(("allocator", Value::Str("default".into())));
            // PyTorch may use the same GPU, so memory is taken as it is needed.
            options.push(("preallocate", Value::Bool(false)));
            const FRACTION: &str = "TORCHTPU_CUDA_MEMORY_FRACTION";
            if let Some(text) = self.variable(FRACTION) {
                match text.parse::<f32>() {
                    Ok(part) if part > 0.0 && part <= 1.0 => options.push(("memory_fraction", Value::Float(part))),
                    _ => return Err(bad(FRACTION, &text, "a number above 0, up to 1")),
                }
            }
            const VISIBLE: &str = "TORCHTPU_CUDA_VISIBLE_DEVICES";
            if let Some(text) = self.variable(VISIBLE) {
                let numbers = text.split(',').map(|number| number.trim().parse::<u16>().map(i64::from));
                match numbers.collect() {
                    Ok(numbers) => options.push(("visible_devices", Value::Ints(numbers))),
                    Err(_) => return Err(bad(VISIBLE, &text, "numbers of GPUs with commas between, such as 0,1")),
                }
            }
        }
        Ok(options)
    }

    /// Does what a kind's plugin needs to be done before it is loaded. Returns the libraries that it will miss.
    fn prepare(&self, kind: Kind) -> Vec<&'static str> {
        // Plugins log where they come up, unless told to keep to what is wrong.
        self.set_default("TF_CPP_MIN_LOG_LEVEL", "1");
        if kind == Kind::Tpu && self.tpu_chips().is_none() {
            for (name, value) in WITHOUT_CHIPS {
                self.set_default(name, value);
            }
        }
        if kind != Kind::Cuda {
            return Vec::new();
        }
        if let Some(folder) = self.cuda_data() {
            let flags = self.variable("XLA_FLAGS").unwrap_or_default();
            set_variable("XLA_FLAGS", format!("{flags} --xla_gpu_cuda_data_dir={}", folder.display()).trim());
        }
        self.load_cuda_libraries()
    }

    /// Sets a variable that is not set.
    fn set_default(&self, name: &str, value: &str) {
        if self.variable(name).is_none() {
            set_variable(name, value);
        }
    }

    /// Loads NVIDIA's libraries from the packages that torch's wheel brings. The plugin opens them by
    /// name alone, and then gets these. Those that are not there are left to the system, and returned.
    fn load_cuda_libraries(&self) -> Vec<&'static str> {
        let load = |package: &str, library: &str| {
            let place = Path::new("nvidia").join(package).join("lib").join(library);
            self.packages.iter().any(|folder| {
                let Ok(path) = CString::new(folder.join(&place).as_os_str().as_bytes()) else { return false };
                // SAFETY: the path is a C string. The initializers are those of NVIDIA's libraries, as torch itself
                // runs them. The library is never closed.
                !unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) }.is_null()
            })
        };
        let missing = CUDA_LIBRARIES.into_iter().filter(|(package, library)| !load(package, library));
        missing.map(|(_, library)| library).collect()
    }

    /// The folder to tell XLA to take `ptxas` and CUDA's mathematical functions from, where it needs telling.
    fn cuda_data(&self) -> Option<PathBuf> {
        if self.variable("XLA_FLAGS").is_some_and(|flags| flags.contains("--xla_gpu_cuda_data_dir")) {
            return None;
        }
        let has_libdevice = |folder: &PathBuf| folder.join(LIBDEVICE).is_file();
        if let Some(folder) = self.packages.iter().map(|folder| folder.join("nvidia/cu13")).find(has_libdevice) {
            return Some(folder);
        }
        // XLA looks into these by itself.
        if ["usr/local/cuda", "opt/cuda"].map(|folder| self.root.join(folder)).iter().any(has_libdevice) {
            return None;
        }
        // torch's wheel brings neither, but triton's does, which it needs: with other names, so links to them are made.
        let triton = self.packages.iter().map(|folder| folder.join("triton/backends/nvidia"));
        let triton = triton.into_iter().find(|folder| folder.join("lib/libdevice.10.bc").is_file())?;
        let caches = crate::cache::base_folder(&|name| self.variable(name))?;
        let mut hasher = DefaultHasher::new();
        triton.hash(&mut hasher);
        let folder = caches.join(format!("cuda-data-{:016x}", hasher.finish()));
        link(&triton.join("lib/libdevice.10.bc"), &folder.join(LIBDEVICE)).ok()?;
        let ptxas = triton.join("bin/ptxas");
        if ptxas.is_file() {
            link(&ptxas, &folder.join("bin/ptxas")).ok()?;
        }
        Some(folder)
    }
}

/// Makes a link, and the folders on the way to it. Links to the same are kept: another process may have made them.
fn link(target: &Path, at: &Path) -> io::Result<()> {
    fs::create_dir_all(at.parent().unwrap_or(at))?;
    match symlink(target, at) {
        Err(_) if fs::read_link(at).is_ok_and(|found| found == target) => Ok(()),
        result => result,
    }
}

/// Sets a variable that a plugin reads when it is loaded, or soon after.
fn set_variable(name: &str, value: &str) {
    // SAFETY: this is only sound while no other thread reads the environment outside of Rust's lock, which nobody can
    // promise for a whole process. It is done once, before a plugin and its threads exist, and as Python's `os.environ`
    // does it: the strings of other variables stay where they are.
    unsafe { env::set_var(name, value) };
}

/// [`host_memory`], for a file system.
fn memory_under(root: &Path) -> (u64, u64) {
    let Ok(text) = fs::read_to_string(root.join("proc/meminfo")) else { return (0, 0) };
    let kilobytes = |name| field(&text, name).unwrap_or(0) * 1024;
    let (mut free, mut total) = (kilobytes("MemAvailable:"), kilobytes("MemTotal:"));

    // Lines are `id:controllers:path`; version 2 has no controllers.
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (mount, limit, usage, reclaimable) = if controllers.is_empty() {
            ("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file")
        } else if controllers.split(',').any(|controller| controller == "memory") {
            ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        } else {
            continue;
        };
        let mount = root.join(mount);
        // Each group on the way up may have a limit. In a container the path can be the host's, where only the mount
        // itself is there to be read.
        let group = mount.join(path.trim_start_matches('/'));
        for group in group.ancestors().take_while(|group| group.starts_with(&mount)) {
            let number = |file| fs::read_to_string(group.join(file)).ok()?.trim().parse::<u64>().ok();
            // No limit is the word "max", or a number beyond all memory.
            let Some(limit) = number(limit).filter(|limit| *limit < total) else { continue };
            total = limit;
            // The cache of files gives way before the limit hits.
            let cache = fs::read_to_string(group.join("memory.stat")).ok().and_then(|text| field(&text, reclaimable));
            let used = number(usage).unwrap_or(0).saturating_sub(cache.unwrap_or(0));
            free = free.min(limit.saturating_sub(used));
        }
    }
    (free, total)
}

/// The number behind a name, in the kernel's files of a name and a number to a line.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some(name)).then(|| words.next()?.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// A folder that stands for the root of a machine, with packages under `/site`.
    struct Root(PathBuf);

    impl Root {
        fn new(files: &[(&str, &str)]) -> Root {
            static COUNT: AtomicUsize = AtomicUsize::new(0);
            let name = format!("torchtpu-platform-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
            let root = Root(env::temp_dir().join(name));
            for (path, text) in files {
                let path = root.0.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            root
        }

        fn with<T>(&self, variables: &[(&str, &str)], action: impl FnOnce(&Machine) -> T) -> T {
            let variable = |name: &str| Some(variables.iter().find(|(key, _)| *key == name)?.1.to_owned());
            let packages = [self.0.join("empty"), self.0.join("site")];
            action(&Machine { variable: &variable, root: &self.0, packages: &packages })
        }

        fn choose(&self, variables: &[(&str, &str)]) -> Result<Choice> {
            self.with(variables, |machine| machine.choose())
        }

        fn refused(&self, variables: &[(&str, &str)]) -> String {
            self.choose(variables).unwrap_err().to_string()
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const CPU: (&str, &str) = ("site/xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so", "");
    const TPU: (&str, &str) = ("site/libtpu/libtpu.so", "");
    const CUDA: (&str, &str) = ("site/jax_plugins/xla_cuda13/xla_cuda_plugin.so", "");
    const CHIP: [(&str, &str); 2] =
        [("sys/bus/pci/devices/0:1/vendor", "0x1ae0\n"), ("sys/bus/pci/devices/0:1/device", "0x006f\n")];

    #[test]
    fn cpu_where_there_are_no_chips() {
        // Google's network card is no TPU, and a bus that can be read is believed.
        let root = Root::new(&[
            CPU,
            TPU,
            ("sys/bus/pci/devices/0:1/vendor", "0x1ae0\n"),
            ("sys/bus/pci/devices/0:1/device", "0x0042\n"),
            ("dev/vfio/3", ""),
            ("dev/accel/accel0", ""),
        ]);
        let choice = root.choose(&[("TORCHTPU_PLUGIN", ""), ("TORCHTPU_PLATFORM", " ")]).unwrap();
        assert_eq!((choice.kind, choice.hardware), (Kind::Cpu, true));
        assert_eq!(choice.path, root.0.join(CPU.0));
        assert_eq!(choice.reason, "no TPU chips were found");
        assert_eq!(choice.tried.len(), 3, "{:?}", choice.tried);
    }

    #[test]
    fn tpu_where_there_are_chips() {
        for chip in [&CHIP[..], &[("dev/accel0", "")], &[("dev/vfio/0", "")]] {
            let root = Root::new(&[&[CPU, TPU], chip].concat());
            let choice = root.choose(&[]).unwrap();
            assert_eq!((choice.kind, choice.hardware), (Kind::Tpu, true));
            assert_eq!(choice.path, root.0.join(TPU.0));
        }
        let root = Root::new(&[CPU, CHIP[0], CHIP[1]]);
        let message = root.refused(&[]);
        assert!(message.contains("there are TPU chips (1 on the PCI bus)"), "{message}");
        assert!(message.contains("pip install libtpu`"), "{message}");
        assert!(message.contains("TORCHTPU_PLATFORM=cpu"), "{message}");
        assert_eq!(root.choose(&[("TORCHTPU_PLATFORM", "CPU")]).unwrap().kind, Kind::Cpu);
    }

    #[test]
    fn platforms_by_name() {
        let root = Root::new(&[CPU, TPU, CUDA, ("elsewhere.so", "")]);
        for kind in Kind::NAMED {
            let name = kind.name();
            let choice = root.choose(&[("TORCHTPU_PLATFORM", name)]).unwrap();
            assert_eq!((choice.kind, choice.hardware), (kind, kind == Kind::Cpu));
            assert_eq!(choice.path, root.0.join("site").join(kind.file()));
            assert_eq!(choice.reason, format!("TORCHTPU_PLATFORM is {name}"));
        }
        let message = root.refused(&[("TORCHTPU_PLATFORM", "rocm")]);
        assert!(message.contains("rocm is no platform: set it to tpu or cpu or cuda"), "{message}");

        let elsewhere = root.0.join("elsewhere.so");
        let library = ("TPU_LIBRARY_PATH", elsewhere.to_str().unwrap());
        assert_eq!(root.choose(&[("TORCHTPU_PLATFORM", "tpu"), library]).unwrap().path, elsewhere);
        assert_eq!(root.choose(&[library]).unwrap().path, root.0.join(CPU.0));
    }

    #[test]
    fn plugins_by_path() {
        let root = Root::new(&[CPU, TPU, ("my_plugin.so", "")]);
        let path = root.0.join("my_plugin.so");
        let variables = [("TORCHTPU_PLUGIN", path.to_str().unwrap()), ("TORCHTPU_PLATFORM", "cpu")];
        let choice = root.choose(&variables).unwrap();
        assert_eq!((choice.kind, choice.path), (Kind::Other, path));
        assert_eq!(Kind::of_file(CPU.0.as_ref()), Kind::Cpu);
        assert_eq!(Kind::of_file(TPU.0.as_ref()), Kind::Tpu);
        assert_eq!(Kind::of_file(CUDA.0.as_ref()), Kind::Cuda);

        let message = root.refused(&[("TORCHTPU_PLUGIN", "/no/such.so")]);
        assert!(message.contains("no file at /no/such.so"), "{message}");
    }

    #[test]
    fn what_was_tried_is_told() {
        let root = Root::new(&[]);
        let message = root.refused(&[]);
        let at = |folder: &str| format!("{}: no such file", root.0.join(folder).join(Kind::Cpu.file()).display());
        assert!(message.contains(&at("empty")) && message.contains(&at("site")), "{message}");
        assert!(message.contains("TPU chips: none"), "{message}");
        assert!(message.contains("pip install xla_cpu_pjrt`"), "{message}");
        let message = root.refused(&[("TORCHTPU_PLATFORM", "cuda")]);
        assert!(message.contains("pip install jax-cuda13-pjrt`"), "{message}");
    }

    #[test]
    fn options_of_the_cpu_plugin() {
        let root = Root::new(&[]);
        let options = |kind, text| root.with(&[("TORCHTPU_NUM_DEVICES", text)], |machine| machine.client_options(kind));
        assert_eq!(options(Kind::Cpu, "").unwrap(), [("cpu_device_count", Value::Int(1))]);
        assert_eq!(options(Kind::Cpu, " 4 ").unwrap(), [("cpu_device_count", Value::Int(4))]);
        assert_eq!(options(Kind::Other, "4").unwrap(), [("cpu_device_count", Value::Int(4))]);
        assert_eq!(options(Kind::Other, "").unwrap(), []);
        assert_eq!(options(Kind::Tpu, "4").unwrap(), []);
        for text in ["0", "-1", "two", "1.5", "1025"] {
            let message = options(Kind::Cpu, text).unwrap_err().to_string();
            assert_eq!(message, format!("TORCHTPU_NUM_DEVICES={text}: it must be a whole number from 1 to 1024"));
        }
    }

    #[test]
    fn options_of_the_cuda_plugin() {
        let root = Root::new(&[]);
        let options = |name, text| root.with(&[(name, text)], |machine| machine.client_options(Kind::Cuda));
        let plain = options("", "").unwrap();
        assert!(plain.contains(&("preallocate", Value::Bool(false))), "{plain:?}");
        let fraction = options("TORCHTPU_CUDA_MEMORY_FRACTION", "0.5").unwrap();
        assert_eq!(fraction[plain.len()..], [("memory_fraction", Value::Float(0.5))]);
        let visible = options("TORCHTPU_CUDA_VISIBLE_DEVICES", "0, 2").unwrap();
        assert_eq!(visible[plain.len()..], [("visible_devices", Value::Ints(vec![0, 2]))]);
        for text in ["0", "1.5", "nan", "half"] {
            assert!(options("TORCHTPU_CUDA_MEMORY_FRACTION", text).is_err(), "{text}");
        }
        for text in ["all", "0,,1", "-1"] {
            assert!(options("TORCHTPU_CUDA_VISIBLE_DEVICES", text).is_err(), "{text}");
        }
    }

    #[test]
    fn cuda_data() {
        let triton = ("site/triton/backends/nvidia/lib/libdevice.10.bc", "bitcode");
        let root = Root::new(&[triton, ("site/triton/backends/nvidia/bin/ptxas", "tool")]);
        let home = root.0.join("home");
        let home = [("HOME", home.to_str().unwrap())];
        // A second time, the links are there.
        for _ in 0..2 {
            let folder = root.with(&home, |machine| machine.cuda_data()).unwrap();
            assert!(folder.starts_with(root.0.join("home/.cache/torchtpu")));
            assert_eq!(fs::read_to_string(folder.join(LIBDEVICE)).unwrap(), "bitcode");
            assert_eq!(fs::read_to_string(folder.join("bin/ptxas")).unwrap(), "tool");
        }
        assert_eq!(root.with(&[], |machine| machine.cuda_data()), None);
        let flags = ("XLA_FLAGS", "--xla_gpu_cuda_data_dir=/here");
        assert_eq!(root.with(&[home[0], flags], |machine| machine.cuda_data()), None);

        let root = Root::new(&[triton, ("usr/local/cuda/nvvm/libdevice/libdevice.10.bc", "")]);
        assert_eq!(root.with(&home, |machine| machine.cuda_data()), None);
        let root = Root::new(&[triton, ("site/nvidia/cu13/nvvm/libdevice/libdevice.10.bc", "")]);
        assert_eq!(root.with(&home, |machine| machine.cuda_data()), Some(root.0.join("site/nvidia/cu13")));
    }

    #[test]
    fn names() {
        for (model, name) in [
            ("TPU v4", "TPU v4"),
            ("TPU v5 lite", "TPU v5e"),
            ("TPU v5", "TPU v5p"),
            ("TPU v6 lite", "TPU v6e"),
            ("TPU7x", "TPU v7x"),
            ("v9", "TPU v9"),
        ] {
            assert_eq!(display_name(Kind::Tpu, model), name);
        }
        assert_eq!(display_name(Kind::Cpu, "cpu"), "CPU (XLA)");
        assert_eq!(display_name(Kind::Cuda, "NVIDIA H200"), "NVIDIA H200");
    }

    #[test]
    fn memory() {
        let meminfo = ("proc/meminfo", "MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:   800 kB\n");
        assert_eq!(memory_under(&Root::new(&[]).0), (0, 0));
        assert_eq!(memory_under(&Root::new(&[meminfo]).0), (800 << 10, 1000 << 10));

        // Version 2: the limit is a parent's.
        let root = Root::new(&[
            meminfo,
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("sys/fs/cgroup/a/memory.max", "500000\n"),
            ("sys/fs/cgroup/a/memory.current", "300000\n"),
            ("sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 100000\n"),
        ]);
        assert_eq!(memory_under(&root.0), (300_000, 500_000));

        // Version 1, in a container: only the mount is there.
        let root = Root::new(&[
            meminfo,
            ("proc/self/cgroup", "4:cpu,memory:/docker/1\n0::/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "500000\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "100000\n"),
        ]);
        assert_eq!(memory_under(&root.0), (400_000, 500_000));

        let (free, total) = host_memory();
        assert!(0 < free && free <= total);
    }
}
