//! Shared by the tests: the CPU plugin, and arrays as bytes.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use pjrt::{Buffer, Client, OptionValue, Plugin};

/// The CPU plugin: the one that `TORCHTPU_PLUGIN` names, else that of the workspace's Python environment.
pub fn plugin_path() -> PathBuf {
    if let Some(path) = std::env::var_os("TORCHTPU_PLUGIN") {
        return path.into();
    }
    let local = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../.venv/bin/python"));
    let python = match std::env::var_os("PYO3_PYTHON") {
        Some(path) => path.into(),
        None if local.exists() => local,
        None => "python3".into(),
    };
    let output = Command::new(&python)
        .args(["-c", "import sys; print('\\n'.join(p for p in sys.path if p))"])
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}", python.display()));
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|folder| PathBuf::from(folder).join("xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so"))
        .find(|path| path.exists())
        .unwrap_or_else(|| {
            panic!(
                "no CPU plugin among the packages of {}: `pip install xla_cpu_pjrt` there, or set TORCHTPU_PLUGIN",
                python.display()
            )
        })
}

/// A client of two CPU devices, which all tests share.
pub fn client() -> &'static Client {
    static CLIENT: OnceLock<Client> = OnceLock::new();
    CLIENT.get_or_init(|| {
        Plugin::load(&plugin_path())
            .and_then(|plugin| plugin.create_client(&[("cpu_device_count", OptionValue::Int(2))]))
            .expect("a client of two CPU devices")
    })
}

pub fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

pub fn floats(buffer: &Buffer) -> Vec<f32> {
    let mut bytes = vec![0; buffer.host_bytes().expect("a size")];
    buffer.to_host(&mut bytes).expect("a copy");
    bytes.chunks_exact(4).map(|chunk| f32::from_ne_bytes(chunk.try_into().expect("four bytes"))).collect()
}
