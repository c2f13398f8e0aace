//! Tests with machines made of files and variables.

use std::sync::atomic::{AtomicUsize, Ordering};

use std::fs;

use super::host_memory::memory_under;
use super::machine::LIBDEVICE;
use super::*;

/// A folder that serves as the root of a machine, with packages in `/site`.
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
    // Google's network card is not a TPU, and a readable PCI bus is authoritative.
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
fn errors_list_what_was_tried() {
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
    let ranks = |count| root.with(&[("LOCAL_WORLD_SIZE", count)], |machine| machine.client_options(Kind::Cpu));
    assert_eq!(ranks("3").unwrap(), [("cpu_device_count", Value::Int(3))]);
    assert_eq!(ranks("many").unwrap(), [("cpu_device_count", Value::Int(1))]);
    for text in ["0", "-1", "two", "1.5", "1025"] {
        let message = options(Kind::Cpu, text).unwrap_err().to_string();
        assert_eq!(message, format!("TORCHTPU_NUM_DEVICES={text}: it must be a whole number from 1 to 127"));
    }
}

#[test]
fn a_process_of_several_has_the_chip_of_its_local_rank() {
    let root = Root::new(&[CPU, TPU, CHIP[0], CHIP[1]]);
    let own = |platform, rank, count| {
        let variables = [("TORCHTPU_PLATFORM", platform), ("LOCAL_RANK", rank), ("LOCAL_WORLD_SIZE", count)];
        root.with(&variables, |machine| machine.own_chip())
    };
    assert_eq!(own("", "3", "4"), Some((3, 4)));
    assert_eq!(own("tpu", "0", "2"), Some((0, 2)));
    // A process by itself has all chips, and the CPU plugin shows a device for each rank.
    assert_eq!(own("", "0", "1"), None);
    assert_eq!(own("cpu", "1", "4"), None);
    for (rank, count) in [("4", "4"), ("", "4"), ("one", "4"), ("1", ""), ("1", "1000")] {
        assert_eq!(own("", rank, count), None);
    }
}

#[test]
fn devices_are_counted_without_opening_libtpu() {
    let hosts = [Root::new(&[CPU, TPU, CHIP[0], CHIP[1]]), Root::new(&[CPU])];
    let count =
        |host: usize, variables: &[(&str, &str)]| hosts[host].with(variables, |machine| machine.devices_of_host());
    assert_eq!(count(0, &[]), None, "a process by itself opens libtpu for one chip");
    let bounds = ("TPU_CHIPS_PER_HOST_BOUNDS", "2,2,1");
    assert_eq!(count(0, &[bounds]), Some(4));
    assert_eq!(count(0, &[bounds, ("TPU_CHIPS_PER_PROCESS_BOUNDS", "1,2,1")]), Some(2));
    assert_eq!(count(0, &[bounds, ("TPU_VISIBLE_CHIPS", "1,3,0")]), Some(3));
    assert_eq!(count(0, &[bounds, ("TPU_VISIBLE_CHIPS", "2")]), None);
    assert_eq!(count(0, &[("TPU_CHIPS_PER_HOST_BOUNDS", "two")]), None);
    assert_eq!(count(0, &[bounds, ("TORCHTPU_PLATFORM", "cpu")]), None);
    assert_eq!(count(1, &[bounds]), None, "the plugin is that of the CPU");
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
    // The second time, the links exist.
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

    // Version 2: the limit is in a parent group.
    let root = Root::new(&[
        meminfo,
        ("proc/self/cgroup", "0::/a/b\n"),
        ("sys/fs/cgroup/a/b/memory.max", "max\n"),
        ("sys/fs/cgroup/a/memory.max", "500000\n"),
        ("sys/fs/cgroup/a/memory.current", "300000\n"),
        ("sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 100000\n"),
    ]);
    assert_eq!(memory_under(&root.0), (300_000, 500_000));

    // Version 1, in a container: only the mount can be read.
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
