//! The phases of a compiler, one by one: the PhaseCompile extension of PJRT.
//!
//! The header that the bindings are made of declares the compiler's handle but not the extension, so its structs are
//! declared here. The extension is experimental: its version and the names of its phases are checked at run time, and
//! a plugin without it is no error.

use std::ffi::c_char;
use std::mem::offset_of;
use std::ptr::NonNull;

use crate::api::{Api, Struct, slice, string};
use crate::error::{Code, Error, Result};
use crate::options::Message;
use crate::sys;
use crate::topology::Topology;
use crate::{CompileOptions, Plugin};

/// The version of the artifacts that pass from phase to phase.
const ARTIFACT_VERSION: &str = "1.0";

#[repr(C)]
struct CompilerArgs {
    struct_size: usize,
    extension_start: *mut sys::PJRT_Extension_Base,
    compiler: *const sys::PJRT_PhaseCompiler,
}

#[repr(C)]
struct RunArgs {
    struct_size: usize,
    extension_start: *mut sys::PJRT_Extension_Base,
    compiler: *const sys::PJRT_PhaseCompiler,
    inputs: *const *const c_char,
    input_sizes: *const usize,
    num_inputs: usize,
    phases: *const *const c_char,
    phase_sizes: *const usize,
    num_phases: usize,
    options: *const c_char,
    options_size: usize,
    topology: *mut sys::PJRT_TopologyDescription,
    outputs: *const *const c_char,
    output_sizes: *const usize,
    num_outputs: usize,
}

#[repr(C)]
struct NamesArgs {
    struct_size: usize,
    extension_start: *mut sys::PJRT_Extension_Base,
    compiler: *const sys::PJRT_PhaseCompiler,
    names: *const *const c_char,
    name_sizes: *const usize,
    num_names: usize,
}

type Function<A> = unsafe extern "C" fn(*mut A) -> *mut sys::PJRT_Error;

#[repr(C)]
struct Extension {
    base: sys::PJRT_Extension_Base,
    get_compiler: Option<Function<CompilerArgs>>,
    destroy_compiler: Option<unsafe extern "C" fn(*mut CompilerArgs)>,
    run: Option<Function<RunArgs>>,
    names: Option<Function<NamesArgs>>,
}

macro_rules! structs {
    ($($name:ty),*) => { $(
        // SAFETY: the size is the struct's, and zeroed numbers and pointers are valid.
        unsafe impl Struct for $name {
            const SIZE: usize = size_of::<$name>();
            fn set_struct_size(&mut self) { self.struct_size = Self::SIZE; }
        }
    )* };
}
structs!(CompilerArgs, RunArgs, NamesArgs);

/// A plugin's compiler, of which single phases can be run.
pub struct PhaseCompiler {
    api: Api,
    extension: NonNull<Extension>,
    raw: *const sys::PJRT_PhaseCompiler,
}

impl Drop for PhaseCompiler {
    fn drop(&mut self) {
        let mut arguments = CompilerArgs { compiler: self.raw, ..Struct::new() };
        // SAFETY: the extension lives as long as the plugin, and the compiler is ours and not used again.
        if let Some(destroy) = unsafe { self.extension.as_ref() }.destroy_compiler {
            // SAFETY: see above.
            unsafe { destroy(&mut arguments) };
        }
    }
}

impl PhaseCompiler {
    /// The compiler of a plugin. `None` if the plugin does not have the extension.
    ///
    /// # Errors
    /// If the plugin reports one.
    pub fn new(plugin: &Plugin) -> Result<Option<Self>> {
        let api = plugin.api;
        let Some(extension) = find(api) else { return Ok(None) };
        let mut arguments = CompilerArgs::new();
        // SAFETY: the extension lives as long as the plugin.
        let get = unsafe { extension.as_ref() }.get_compiler;
        // SAFETY: there are only outputs.
        unsafe { call(api, "PJRT_PhaseCompile_Get_Compiler", get, &mut arguments) }?;
        Ok((!arguments.compiler.is_null()).then_some(Self { api, extension, raw: arguments.compiler }))
    }

    /// The names of the phases, in no particular order.
    ///
    /// # Errors
    /// If the plugin reports one.
    pub fn phases(&self) -> Result<Vec<String>> {
        let mut arguments = NamesArgs { compiler: self.raw, ..Struct::new() };
        // SAFETY: the extension lives as long as the plugin.
        let names = unsafe { self.extension.as_ref() }.names;
        // SAFETY: the compiler is live.
        unsafe { call(self.api, "PJRT_PhaseCompile_Get_PhaseNames", names, &mut arguments) }?;
        // SAFETY: both lists have this length. They belong to the caller, but are allocated by the plugin's C++ and the
        // extension has no function that frees them: they stay.
        let (names, sizes) =
            unsafe { (slice(arguments.names, arguments.num_names), slice(arguments.name_sizes, arguments.num_names)) };
        // SAFETY: each name has its size.
        Ok(names.iter().zip(sizes).map(|(name, size)| unsafe { string(*name, *size) }).collect())
    }

    /// Runs one phase on a StableHLO text, for what it writes to the folder of the option `xla_dump_to`. What it makes
    /// for the next phase is not returned.
    ///
    /// # Errors
    /// If the program does not parse, or the phase refuses it: with [`Code::ResourceExhausted`] if it does not fit.
    pub fn run(&self, phase: &str, program: &str, topology: &Topology, options: &CompileOptions) -> Result<()> {
        let mut artifact = Message::default();
        artifact.bytes(1, program.as_bytes());
        artifact.bytes(4, phase.as_bytes()); // next_phases
        artifact.bytes(5, ARTIFACT_VERSION.as_bytes());
        let artifact = artifact.into_bytes();
        let options = options.encode();
        let (inputs, input_sizes) = ([artifact.as_ptr().cast::<c_char>()], [artifact.len()]);
        let (phases, phase_sizes) = ([phase.as_ptr().cast::<c_char>()], [phase.len()]);
        let mut arguments = RunArgs {
            compiler: self.raw,
            inputs: inputs.as_ptr(),
            input_sizes: input_sizes.as_ptr(),
            num_inputs: 1,
            phases: phases.as_ptr(),
            phase_sizes: phase_sizes.as_ptr(),
            num_phases: 1,
            options: options.as_ptr().cast(),
            options_size: options.len(),
            topology: topology.raw(),
            ..Struct::new()
        };
        // SAFETY: the extension lives as long as the plugin.
        let run = unsafe { self.extension.as_ref() }.run;
        // SAFETY: the compiler and the topology are live, and the lists outlive the call. The outputs stay, as in
        // `phases`.
        unsafe { call(self.api, "PJRT_PhaseCompile_Run_Phase", run, &mut arguments) }
    }
}

/// The extension in the plugin's chain, if its struct has all functions.
fn find(api: Api) -> Option<NonNull<Extension>> {
    let mut next = api.extensions();
    while let Some(base) = next {
        // SAFETY: the chain consists of live structs with this beginning, and ends with a null pointer.
        let sys::PJRT_Extension_Base { struct_size, type_, next: following } = unsafe { *base.as_ptr() };
        if type_ == sys::PJRT_Extension_Type_PhaseCompile {
            let end = offset_of!(Extension, names) + size_of::<usize>();
            return (struct_size >= end).then_some(base.cast());
        }
        next = NonNull::new(following);
    }
    None
}

/// Calls a function of the extension.
///
/// # Safety
/// Every pointer in `arguments` is valid as the extension requires.
unsafe fn call<A>(api: Api, name: &'static str, function: Option<Function<A>>, arguments: &mut A) -> Result<()> {
    let Some(function) = function else {
        return Err(Error::new(name, Code::Unimplemented, "the plugin does not have this function"));
    };
    // SAFETY: the caller's promise.
    match NonNull::new(unsafe { function(arguments) }) {
        None => Ok(()),
        // SAFETY: the plugin has just returned this error, which has no other owner.
        Some(error) => Err(unsafe { Error::take(api, name, error) }),
    }
}
