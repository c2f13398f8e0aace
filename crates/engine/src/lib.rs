//! The engine: storages and views, the recorded graph, modes and flush rules, the compile cache,
//! execution and donation. It knows no operator by what it computes, and nothing of PyTorch.
//!
//! Every operator takes one road ([`operator_call`]): the [`registry`] finds the interned instance of the call, the recorder
//! ([`record`]) appends it to the chunk of its placement, and the runner ([`run`]) turns a chunk that is due into a program
//! and runs it. The observer ([`observe`]) writes down what happens. Modes differ only in when a chunk is due.
//!
//! The groups below are listed from the lowest to the highest: no file imports one of a later group.

// What the parts share.
mod folders;
pub mod lines;
mod mode;
mod placement;
pub mod stats;
mod ticket;

// Values, and the arguments of calls.
pub mod call;
pub mod memory;
mod padded;
mod storage;

// The plugin, and its executables.
pub mod ahead;
pub mod cache;
pub mod platform;
mod program;

// The four parts of the engine.
mod registry;

mod record;

mod observe;

mod run;

// What joins them.
mod bounded;
mod engine;
mod events;
pub mod export;
mod host;
mod host_job;
mod operator_call;

pub use ::error::{self, Error, ErrorKind, Result};
pub use engine::{Engine, fork_guard, in_bad_fork, lock};
pub use events::Event;
pub use host::{copy_to_host, look_at_last_answers, synchronize};
pub use host_job::JobOutput;
pub use memory::MemoryUse;
pub use mode::Mode;
pub use observe::{explain, profile};
pub use operator_call::{Defined, Status};
pub use placement::Placement;
pub use record::reason::Reason;
pub use record::scopes;
pub use registry::compiled::{BoundedInput, CompiledGraph, SchemaArg};
pub use run::jobs::Work;
pub use storage::Storage;
pub use ticket::Ticket;
