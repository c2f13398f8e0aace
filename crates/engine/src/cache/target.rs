//! What executables depend on, besides program and options: the plugin, the devices, the processor.

use std::collections::BTreeMap;
use std::env;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use pjrt::{Topology, Value};

use crate::platform::Kind;

/// Variables that the compilers in plugins read.
const COMPILER_VARIABLES: [&str; 2] = ["XLA_FLAGS", "LIBTPU_INIT_ARGS"];

/// Longer values are replaced by a digest, so that the description fits into an entry.
const LONGEST_FLAGS: usize = 300;

/// Flags in these variables that only set paths.
const FLAGS_OF_PLACE: [&str; 2] = ["--xla_gpu_cuda_data_dir", "--xla_dump_to"];

/// The fields of a processor's description that compilers use, on x86 and on ARM.
const PROCESSOR: [&str; 6] = ["vendor_id", "cpu family", "model", "CPU implementer", "CPU architecture", "CPU part"];
const FEATURES: [&str; 2] = ["flags", "Features"];

/// Device attributes that distinguish devices with the same model name.
const ATTRIBUTES: [&str; 3] = ["compute_capability", "core_count", "num_cores"];

/// Describes the target of programs: one line for each thing that executables depend on. Executables can be exchanged
/// between equal targets.
///
/// `version` is the version of the software below the plugin, such as CUDA. It is only used where the plugin does not
/// contain that software.
///
/// # Errors
/// If the plugin cannot be read or does not list its devices.
pub(super) fn describe(
    kind: Kind,
    plugin: &Path,
    version: &str,
    topology: &Topology,
    memory: Option<&Path>,
) -> io::Result<String> {
    let name = plugin.file_name().unwrap_or_default().to_string_lossy();
    let platform = topology.platform_name().map_err(io::Error::other)?;
    let devices = devices(topology).map_err(io::Error::other)?;
    let mut text = format!("plugin {name} {}\nplatform {platform}\ndevices {devices}", digest(plugin, memory)?);
    match kind {
        Kind::Tpu => {}
        // The code is for this processor and for this number of threads.
        Kind::Cpu => {
            let threads = std::thread::available_parallelism().map_or(1, usize::from);
            let _ = write!(text, "\nprocessor {}, {threads} threads", processor(&fs::read_to_string("/proc/cpuinfo")?));
        }
        Kind::Cuda | Kind::Other => {
            let _ = write!(text, "\nversion {}", version.replace('\n', " "));
        }
    }
    for variable in COMPILER_VARIABLES {
        let value = env::var(variable).unwrap_or_default();
        let flags: Vec<&str> = value
            .split_whitespace()
            .filter(|flag| !FLAGS_OF_PLACE.iter().any(|place| flag.starts_with(place)))
            .collect();
        let flags = flags.join(" ");
        match flags.len() {
            0 => {}
            1..LONGEST_FLAGS => _ = write!(text, "\n{variable} {flags}"),
            _ => _ = write!(text, "\n{variable} with digest {}", &blake3::hash(flags.as_bytes()).to_hex()[..16]),
        }
    }
    Ok(text)
}

/// "4 TPU v5 lite to [1, 1, 0]": the models, and the largest coordinates.
fn devices(topology: &Topology) -> pjrt::Result<String> {
    let mut models: BTreeMap<String, usize> = BTreeMap::new();
    let mut corner: Vec<i64> = Vec::new();
    for device in topology.devices()? {
        let mut model = device.kind;
        for wanted in ATTRIBUTES {
            for (name, value) in &device.attributes {
                match value {
                    Value::Int(value) if name == wanted => _ = write!(model, " {name} {value}"),
                    Value::Str(value) if name == wanted => _ = write!(model, " {name} {value}"),
                    _ => {}
                }
            }
        }
        *models.entry(model).or_default() += 1;
        let coords = device.attributes.into_iter().find_map(|(name, value)| match value {
            Value::Ints(coords) if name == "coords" => Some(coords),
            _ => None,
        });
        for (axis, place) in coords.into_iter().flatten().enumerate() {
            corner.resize(corner.len().max(axis + 1), 0);
            corner[axis] = corner[axis].max(place);
        }
    }
    let models: Vec<String> = models.into_iter().map(|(model, count)| format!("{count} {model}")).collect();
    let at = if corner.is_empty() { String::new() } else { format!(" to {corner:?}") };
    Ok(models.join(", ") + &at)
}

/// A short form of Linux's description of the first processor.
fn processor(cpuinfo: &str) -> String {
    let lines: Vec<(&str, &str)> = cpuinfo
        .lines()
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.trim(), value.trim()))
        .collect();
    let of = |wanted: &[&str]| -> Vec<&str> {
        lines.iter().filter(|(name, _)| wanted.contains(name)).map(|(_, value)| *value).collect()
    };
    let features = blake3::hash(of(&FEATURES).join(" ").as_bytes());
    format!("{} with features {}", of(&PROCESSOR).join(" "), &features.to_hex()[..16])
}

/// A digest of a plugin's contents. Reading hundreds of megabytes takes time, so the file `memory` keeps the digest
/// while the plugin's file is unchanged.
fn digest(plugin: &Path, memory: Option<&Path>) -> io::Result<String> {
    let file = File::open(plugin)?;
    let metadata = file.metadata()?;
    let same = format!(
        "{}:{} {} {}.{} ",
        metadata.dev(),
        metadata.ino(),
        metadata.len(),
        metadata.mtime(),
        metadata.mtime_nsec()
    );
    let remembered =
        memory.and_then(|path| io::read_to_string(super::disk::open_private(path).ok()?).ok()).unwrap_or_default();
    if let Some(digest) = remembered.lines().find_map(|line| line.strip_prefix(&same)) {
        return Ok(digest.to_owned());
    }
    let digest = blake3::Hasher::new().update_reader(file)?.finalize().to_hex()[..32].to_owned();
    if let Some(path) = memory {
        let mut lines: Vec<&str> = remembered.lines().collect();
        let line = same + &digest;
        lines.push(&line);
        // Keeps only the last few lines, for different plugins. A reader of an incomplete file computes the digest
        // again.
        let _ = super::disk::replace(path, lines[lines.len().saturating_sub(8)..].join("\n").as_bytes());
    }
    Ok(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors() {
        let one =
            "processor\t: 0\nvendor_id\t: A\nmodel\t\t: 17\nmodel name\t: AMD\ncpu MHz\t: 1.5\nflags\t\t: fpu sse\n";
        let described = processor(&format!("{one}\nprocessor: 1\nvendor_id: B\n"));
        assert!(described.starts_with("A 17 with features "), "{described}");
        assert_eq!(described, processor(&one.replace("1.5", "2.5")));
        assert_ne!(described, processor(&one.replace("sse", "sse avx")));
    }

    #[test]
    fn digests_are_kept_while_the_file_is_unchanged() {
        let folder = crate::cache::disk::scratch("digest");
        let (plugin, memory) = (folder.join("plugin.so"), folder.join("memory"));
        fs::write(&plugin, "one").unwrap();
        let first = digest(&plugin, Some(&memory)).unwrap();
        assert_eq!(digest(&plugin, Some(&memory)).unwrap(), first);
        assert_eq!(digest(&plugin, None).unwrap(), first);
        assert_eq!(fs::read_to_string(&memory).unwrap().lines().count(), 1);
        fs::write(&plugin, "another").unwrap();
        assert_ne!(digest(&plugin, Some(&memory)).unwrap(), first);
        fs::remove_dir_all(folder).unwrap();
    }
}
