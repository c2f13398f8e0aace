//! A safe interface to PJRT plugins: the shared libraries through which XLA compiles and runs
//! programs on CPUs, GPUs and TPUs.
//!
//! ```no_run
//! use pjrt::{CompileOptions, ElementType, OptionValue, Plugin};
//!
//! # fn main() -> pjrt::Result<()> {
//! let plugin = Plugin::load("xla_cpu_pjrt.so".as_ref())?;
//! let client = plugin.create_client(&[("cpu_device_count", OptionValue::Int(2))])?;
//! let program = "func.func @main(%a: tensor<f32>) -> tensor<f32> {
//!     %b = stablehlo.add %a, %a : tensor<f32>
//!     return %b : tensor<f32>
//! }";
//! let executable = client.compile(program.as_bytes(), &CompileOptions::default())?;
//! let input = client.buffer_from_host(&1.5f32.to_ne_bytes(), ElementType::F32, &[], 0)?;
//! let mut outputs = Vec::new();
//! executable.execute(0, &[&input], &[], &mut outputs)?;
//! let mut result = [0; 4];
//! outputs[0].to_host(&mut result)?;
//! assert_eq!(f32::from_ne_bytes(result), 3.0);
//! # Ok(())
//! # }
//! ```
//!
//! All types are `Send + Sync`. Execution is asynchronous: an error at run time is reported when the outputs are
//! awaited. Buffers and executables keep their client alive. Plugins are never unloaded. Devices are identified by
//! their index in [`Client::addressable_devices`].

mod api;
mod buffer;
mod client;
mod device;
mod error;
mod event;
mod executable;
mod options;
mod phases;
mod plugin;
pub mod sys;
mod topology;
mod value;

pub use buffer::{Buffer, ElementType, HostMemory};
pub use client::Client;
pub use device::{Device, MemoryStats};
pub use error::{Code, Error, Result};
pub use event::Event;
pub use executable::{CompiledMemoryStats, Executable, LoadedExecutable};
pub use options::CompileOptions;
pub use phases::PhaseCompiler;
pub use plugin::Plugin;
pub use topology::{Topology, TopologyDevice};
pub use value::{Value, Value as OptionValue};
