//! The engine: storages and views, the recorded graph, modes and flush rules, the compile cache,
//! execution and donation. It knows no operator by what it computes, and nothing of PyTorch.
//!
//! Every operator takes one road: [`Engine::call`] finds the interned [`instance`] of the call and
//! records it in the device's [`chunk`]; a flush turns the chunk into a [`program`] and runs it. Modes
//! differ only in when they flush.

pub mod ahead;
mod bounded;
pub mod cache;
pub mod call;
mod checks;
mod chunk;
mod compiled;
mod constants;
mod engine;
mod error;
mod events;
pub mod explain;
pub mod export;
mod familiar;
mod flush;
mod host;
mod instance;
pub mod join;
mod key;
mod launch;
pub mod lines;
pub mod memory;
mod operators;
pub mod platform;
mod program;
mod record;
mod runtime;
pub mod stats;
mod storage;

pub use bounded::BoundedInput;
pub use checks::look_at_last_answers;
pub use compiled::CompiledGraph;
pub use engine::{Defined, Engine, Mode, Status, fork_guard, in_bad_fork, lock};
pub use error::{Error, ErrorKind, Result};
pub use events::Event;
pub use host::{copy_to_host, synchronize};
pub use memory::MemoryUse;
pub use operators::SchemaArg;
pub use storage::Storage;
