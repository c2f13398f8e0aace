//! The engine: storages and views, the recorded graph, modes and flush rules, the compile cache, execution and
//! donation. It does not depend on what operators compute, nor on PyTorch.
//!
//! Every call takes the same path ([`operator_call`]). The [`registry`] finds the instance of the call. The recorder
//! ([`record`]) appends it to the chunk of its placement. The runner ([`run`]) turns a due chunk into a program and
//! runs it. The observer ([`observe`]) records statistics and explanations. Modes only differ in when a chunk is due.
//!
//! The groups below are listed from the lowest to the highest. No file imports one of a later group.

// Shared by all parts.
mod agreement;
mod folders;
pub mod lines;
mod mode;
mod placement;
pub mod stats;
mod ticket;
mod untyped;
mod vote;
pub mod vote_tree;

// Values, and the arguments of calls.
pub mod call;
pub mod invented;
pub mod memory;
mod padded;
pub mod pinned;
mod storage;

// The plugin and its executables.
pub mod ahead;
pub mod cache;
pub mod interrupt;
mod overlap;
pub mod platform;
mod program;

// The four parts of the engine.
mod registry;

mod record;

mod observe;

mod run;

// Code that connects the parts.
mod bounded;
mod capacities;
mod collective;
mod engine;
mod events;
pub mod export;
mod given;
pub mod growth;
mod host;
mod host_job;
mod joined;
mod long_lists;
mod marks;
mod operator_call;
mod overdue;
mod prepare;
pub mod replicas;
mod seen;

pub use ::error::{self, Error, ErrorKind, Result};
pub use agreement::Agreement;
pub use collective::{Collective, Form, Tensors};
pub use engine::{Engine, Registered, fork_guard, in_bad_fork, lock};
pub use events::Event;
pub use host::{check_last_answers, copy_to_host, synchronize};
pub use host_job::JobOutput;
pub use joined::{finish_votes, submit_joined};
pub use memory::{Figures, MemoryUse};
pub use mode::Mode;
pub use observe::{explain, profile};
pub use operator_call::{Defined, Status};
pub use placement::{Numbers, Placement};
pub use prepare::Prepared;
pub use record::reason::Reason;
pub use record::scopes;
pub use registry::compiled::{BoundedInput, CompiledGraph, SchemaArg};
pub use run::jobs::{Work, close_lane};
pub use storage::Storage;
pub use ticket::Ticket;
pub use untyped::{copy_bytes, take_type};
pub use vote::Opinion;
