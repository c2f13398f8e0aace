//! The C ABI between PyTorch's C++ and the core, as `csrc/abi.h` declares it.
//!
//! Types, tags, statuses and error kinds are only defined in the header. Functions that the core defines are checked
//! against their declarations: see [`for_each_export`].

#![allow(non_camel_case_types, dead_code, clippy::all)]

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
