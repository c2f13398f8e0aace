//! The machine: chips, packages and environment variables, and the preparations for plugins.

use std::env;
use std::ffi::CString;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use dry::chip::{self, Chip};
use pjrt::Value;
use stablehlo::Target;

use super::host_memory::keep_freed_memory;
use super::{Choice, Kind, SEARCH_PATHS, target_of};
use crate::error::{Error, Result};
use crate::folders::base_folder;
use crate::growth::Setting;
use crate::memory::MAX_DEVICES;
use crate::mode::Mode;

/// Google's PCI vendor id.
const GOOGLE: &str = "0x1ae0";

/// The PCI device ids of TPU chips; v2 and v3 share one. Google's network cards and disks have other ids.
const TPU_CHIPS: [&str; 7] = ["0x0027", "0x0056", "0x005e", "0x0062", "0x0063", "0x006f", "0x0076"];

/// Those of them that show two devices each: v2, v3 and v7.
const DOUBLE_CHIPS: [&str; 2] = ["0x0027", "0x0076"];

/// Device files of NVIDIA's driver: on a machine, in a container, and under WSL.
const NVIDIA_DEVICES: [&str; 3] = ["dev/nvidia0", "dev/nvidiactl", "dev/dxg"];

/// The libraries that the CUDA plugin opens by name, below `nvidia/` in the search paths, in the order of their
/// dependencies.
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

/// Settings for libtpu without chips, to compile ahead of time: do not wait minutes for a metadata server; do not
/// lock out other processes, which is only needed where they share a chip; and the host, to avoid a warning. Only the
/// topology decides what is compiled for.
const WITHOUT_CHIPS: [(&str, &str); 4] = [
    ("TPU_SKIP_MDS_QUERY", "1"),
    ("ALLOW_MULTIPLE_LIBTPU_LOAD", "1"),
    ("TPU_WORKER_HOSTNAMES", "localhost"),
    ("TPU_ACCELERATOR_TYPE", "v5litepod-1"),
];

/// The file with CUDA's mathematical functions, below a CUDA folder.
pub(super) const LIBDEVICE: &str = "nvvm/libdevice/libdevice.10.bc";

/// The largest number of devices of the CPU plugin.
const MAX_CPU_DEVICES: i64 = MAX_DEVICES as i64;

pub(super) const EAGER_MODE: &str = "TORCHTPU_EAGER_MODE";
const DRY: &str = "TORCHTPU_DRY";
pub(super) const SIZES: &str = "TORCHTPU_SIZES";
pub(super) const CPU_FALLBACK: &str = "TORCHTPU_CPU_FALLBACK";

/// What the choice depends on. Tests provide their own.
pub(super) struct Machine<'a> {
    /// Looks up an environment variable.
    pub(super) variable: &'a dyn Fn(&str) -> Option<String>,
    /// The root of the file system.
    pub(super) root: &'a Path,
    /// The folders of Python packages.
    pub(super) packages: &'a [PathBuf],
}

impl Machine<'_> {
    pub(super) fn with_this<T>(action: impl FnOnce(&Machine) -> T) -> T {
        let packages = SEARCH_PATHS.read().clone();
        let variable = |name: &str| env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        action(&Machine { variable: &variable, root: Path::new("/"), packages: &packages })
    }

    /// An environment variable. An empty one counts as unset.
    pub(super) fn variable(&self, name: &str) -> Option<String> {
        (self.variable)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    /// `TORCHTPU_TARGET`: the compiler that programs are written for, if not the open plugin's. With it a run on the
    /// CPU gives the programs for a TPU, to be compiled ahead of time.
    pub(super) fn target(&self) -> Result<Option<Target>> {
        let Some(name) = self.variable("TORCHTPU_TARGET") else { return Ok(None) };
        target_of(&name).map(Some).ok_or_else(|| {
            Error::runtime(format!(
                "TORCHTPU_TARGET must be tpu, cpu or cuda, not {name:?}. It says what programs are written for; \
                 TORCHTPU_PLATFORM says what they run on."
            ))
        })
    }

    /// Checks the variables that control how operators run.
    pub(super) fn check_switches(&self) -> Result<()> {
        if let Some(name) = self.variable(EAGER_MODE).filter(|name| Mode::from_name(name).is_none()) {
            return Err(Error::runtime(format!("{EAGER_MODE} must be debug, strict or fused, not {name:?}")));
        }
        if let Some(name) = self.variable(SIZES).filter(|name| Setting::of(name).is_none()) {
            return Err(Error::runtime(format!("{SIZES} must be static, dynamic, all or padded, not {name:?}")));
        }
        match self.variable(CPU_FALLBACK).as_deref() {
            None | Some("0" | "1") => Ok(()),
            Some(other) => Err(Error::runtime(format!("{CPU_FALLBACK} must be 0 or 1, not {other:?}"))),
        }
    }

    /// `TORCHTPU_DRY`: the chip that the process stands for without having it, and the number of chips of its topology.
    pub(super) fn dry(&self) -> Result<Option<(&'static Chip, i64)>> {
        let Some(topology) = self.variable(DRY) else { return Ok(None) };
        chip::find(&topology).map(|chip| Some((chip, chip::count(&topology)))).ok_or_else(|| {
            Error::runtime(format!(
                "{DRY}={topology} names no chip: it must be a topology such as v5e:1x1, of {}",
                chip::generations()
            ))
        })
    }

    pub(super) fn choose(&self) -> Result<Choice> {
        if self.dry()?.is_some() {
            return Ok(Choice {
                kind: Kind::Tpu,
                path: PathBuf::from("dry"),
                reason: format!("{DRY} is set"),
                tried: Vec::new(),
                hardware: true,
            });
        }
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

    /// Looks for the plugin of a kind in the packages.
    pub(super) fn look_for(&self, kind: Kind, reason: String, mut tried: Vec<String>) -> Result<Choice> {
        let hardware = match kind {
            Kind::Tpu => self.tpu_chips().is_some(),
            Kind::Cuda => NVIDIA_DEVICES.iter().any(|device| self.root.join(device).exists()),
            Kind::Cpu | Kind::Other => true,
        };
        // Google's variable for libtpu's path; other packages use it too.
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

    /// The PCI device ids of the TPU chips on the bus. An error if the bus cannot be read.
    fn chips_on_bus(&self) -> io::Result<Vec<String>> {
        let read = |path: PathBuf| fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default();
        let devices = fs::read_dir(self.root.join("sys/bus/pci/devices"))?.flatten().map(|entry| entry.path());
        let of_google = devices.filter(|device| read(device.join("vendor")) == GOOGLE);
        let ids = of_google.map(|device| read(device.join("device")));
        Ok(ids.filter(|id| TPU_CHIPS.contains(&id.as_str())).collect())
    }

    /// The number of devices that libtpu shows, where it is known before libtpu is opened, which locks out other
    /// processes: those of a host with several chips.
    pub(super) fn devices_of_host(&self) -> Option<usize> {
        let on_bus = self.chips_on_bus().unwrap_or_default();
        if !self.is_tpu() || on_bus.iter().any(|id| DOUBLE_CHIPS.contains(&id.as_str())) {
            return None;
        }
        let first = |names: [&str; 2]| names.into_iter().find_map(|name| self.variable(name));
        let count = if let Some(visible) = first(["TPU_VISIBLE_CHIPS", "TPU_VISIBLE_DEVICES"]) {
            visible.split(',').count()
        } else if let Some(bounds) = first(["TPU_CHIPS_PER_PROCESS_BOUNDS", "TPU_CHIPS_PER_HOST_BOUNDS"]) {
            bounds.split(',').map(|size| size.trim().parse::<usize>().ok()).product::<Option<usize>>()?
        } else {
            on_bus.len()
        };
        (2..=MAX_DEVICES).contains(&count).then_some(count)
    }

    /// Whether libtpu is the plugin, and uses chips.
    fn is_tpu(&self) -> bool {
        self.dry().is_ok_and(|dry| dry.is_none()) && self.choose().is_ok_and(|choice| choice.kind == Kind::Tpu)
    }

    /// A description of how TPU chips were detected; `None` if there are none.
    pub(super) fn tpu_chips(&self) -> Option<String> {
        let on_bus = self.chips_on_bus();
        let bus_is_hidden = on_bus.is_err();
        let chips = on_bus.map_or(0, |chips| chips.len());
        if chips > 0 {
            return Some(format!("{chips} on the PCI bus"));
        }
        // Google's driver creates /dev/accel0. The kernel's class for other accelerators is the folder /dev/accel.
        if let Some(name) = self.numbered("dev", "accel") {
            return Some(format!("/dev/{name}"));
        }
        // Any passed-through device is in /dev/vfio, so this only counts if the PCI bus cannot be read.
        let name = self.numbered("dev/vfio", "").filter(|_| bus_is_hidden)?;
        Some(format!("/dev/vfio/{name}"))
    }

    /// An entry of a folder whose name is the prefix and a number.
    pub(super) fn numbered(&self, folder: &str, prefix: &str) -> Option<String> {
        let names = fs::read_dir(self.root.join(folder)).ok()?.flatten().map(|entry| entry.file_name());
        names.filter_map(|name| name.into_string().ok()).find(|name| {
            let number = name.strip_prefix(prefix).unwrap_or_default();
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        })
    }

    /// The number of processes that torchrun started on this machine, if any.
    fn local_ranks(&self) -> Option<i64> {
        self.variable("LOCAL_WORLD_SIZE")?.parse().ok().filter(|count| (1..=MAX_CPU_DEVICES).contains(count))
    }

    /// The local rank of this process, and the number of local ranks. `None` unless torchrun started several processes on this
    /// host, each of which has one TPU chip.
    pub(super) fn own_chip(&self) -> Option<(usize, usize)> {
        let number = |name| self.variable(name)?.parse::<usize>().ok();
        let (rank, count) = (number("LOCAL_RANK")?, number("LOCAL_WORLD_SIZE")?);
        let is_one_of_several = (2..=MAX_DEVICES).contains(&count) && rank < count;
        (is_one_of_several && self.is_tpu()).then_some((rank, count))
    }

    /// The options for a kind's client. The CPU plugin ignores unknown options; the CUDA plugin refuses them.
    pub(super) fn client_options(&self, kind: Kind) -> Result<Vec<(&'static str, Value)>> {
        let bad = |name: &str, value: &str, must: &str| Error::runtime(format!("{name}={value}: it must be {must}"));
        let mut options = Vec::new();
        if matches!(kind, Kind::Cpu | Kind::Other) {
            const NAME: &str = "TORCHTPU_NUM_DEVICES";
            let count = match self.variable(NAME) {
                Some(text) => match text.parse() {
                    Ok(count @ 1..=MAX_CPU_DEVICES) => Some(count),
                    _ => return Err(bad(NAME, &text, &format!("a whole number from 1 to {MAX_CPU_DEVICES}"))),
                },
                // Under torchrun, a script uses the device of its local rank.
                None => (kind == Kind::Cpu).then(|| self.local_ranks().unwrap_or(1)),
            };
            options.extend(count.map(|count| ("cpu_device_count", Value::Int(count))));
        }
        if kind == Kind::Cuda {
            options.push(("platform_name", Value::Str("cuda".into())));
            options.push(("allocator", Value::Str("default".into())));
            // PyTorch may use the same GPU, so memory is allocated on demand.
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

    /// Prepares the process for a kind's plugin before it is loaded. Returns the libraries that were not found.
    pub(super) fn prepare(&self, kind: Kind) -> Vec<&'static str> {
        // Without this, plugins log at startup. Only warnings and errors are kept.
        self.set_default("TF_CPP_MIN_LOG_LEVEL", "1");
        if kind == Kind::Tpu && self.tpu_chips().is_none() {
            for (name, value) in WITHOUT_CHIPS {
                self.set_default(name, value);
            }
        }
        if kind == Kind::Cpu && !self.has_malloc_settings() {
            keep_freed_memory();
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

    /// Whether the user has set malloc's options for freed memory.
    fn has_malloc_settings(&self) -> bool {
        let tunables = self.variable("GLIBC_TUNABLES").unwrap_or_default();
        tunables.contains("glibc.malloc.") || self.variable("MALLOC_TRIM_THRESHOLD_").is_some()
    }

    /// Sets a variable if it is not set.
    pub(super) fn set_default(&self, name: &str, value: &str) {
        if self.variable(name).is_none() {
            set_variable(name, value);
        }
    }

    /// Loads NVIDIA's libraries from the packages that torch's wheel depends on. The plugin opens them by name and
    /// then gets these. Returns those that are missing; the system may have them.
    pub(super) fn load_cuda_libraries(&self) -> Vec<&'static str> {
        let load = |package: &str, library: &str| {
            let place = Path::new("nvidia").join(package).join("lib").join(library);
            self.packages.iter().any(|folder| {
                let Ok(path) = CString::new(folder.join(&place).as_os_str().as_bytes()) else { return false };
                // SAFETY: the path is a C string. The initializers are those of NVIDIA's libraries, which torch runs
                // as well. The library is never closed.
                !unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) }.is_null()
            })
        };
        let missing = CUDA_LIBRARIES.into_iter().filter(|(package, library)| !load(package, library));
        missing.map(|(_, library)| library).collect()
    }

    /// The folder from which XLA should take `ptxas` and CUDA's mathematical functions, if it must be set.
    pub(super) fn cuda_data(&self) -> Option<PathBuf> {
        if self.variable("XLA_FLAGS").is_some_and(|flags| flags.contains("--xla_gpu_cuda_data_dir")) {
            return None;
        }
        let has_libdevice = |folder: &PathBuf| folder.join(LIBDEVICE).is_file();
        if let Some(folder) = self.packages.iter().map(|folder| folder.join("nvidia/cu13")).find(has_libdevice) {
            return Some(folder);
        }
        // XLA searches these by itself.
        if ["usr/local/cuda", "opt/cuda"].map(|folder| self.root.join(folder)).iter().any(has_libdevice) {
            return None;
        }
        // torch's wheel contains neither, but triton's does, which it depends on. The names differ, so links are
        // created.
        let triton = self.packages.iter().map(|folder| folder.join("triton/backends/nvidia"));
        let triton = triton.into_iter().find(|folder| folder.join("lib/libdevice.10.bc").is_file())?;
        let caches = base_folder(&|name| self.variable(name))?;
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

/// Creates a link and its parent folders. An existing link to the same target is kept: another process may have
/// created it.
fn link(target: &Path, at: &Path) -> io::Result<()> {
    fs::create_dir_all(at.parent().unwrap_or(at))?;
    match symlink(target, at) {
        Err(_) if fs::read_link(at).is_ok_and(|found| found == target) => Ok(()),
        result => result,
    }
}

/// Sets a variable that a plugin reads during or soon after loading.
fn set_variable(name: &str, value: &str) {
    // SAFETY: this is only sound while no other thread reads the environment without Rust's lock, which cannot be
    // guaranteed for a whole process. It is done once, before a plugin and its threads exist, and in the way of
    // Python's `os.environ`: the strings of other variables stay where they are.
    unsafe { env::set_var(name, value) };
}

/// Gives the calling thread the lowest priority, so that it leaves the processors to other threads.
pub(crate) fn lower_priority() {
    #[cfg(target_os = "linux")]
    // SAFETY: it changes a number of the kernel's. On Linux, 0 is the calling thread. Without effect if it fails.
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, 19);
    }
}
