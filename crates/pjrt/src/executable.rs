//! Executables: compiled programs, which may be loaded on a client.

use std::ptr::{self, NonNull};
use std::sync::Arc;

use crate::api::{Api, Arguments, Struct, slice};
use crate::buffer::Buffer;
use crate::client::{ClientInner, null};
use crate::error::{Code, Error, Result};
use crate::event::Event;
use crate::sys;
use crate::value::Value;

/// The number of inputs and outputs of a call up to which it does not allocate.
const INLINE: usize = 32;

const EXECUTE: &str = "PJRT_LoadedExecutable_Execute";

/// A compiled program that is not loaded on a client. It was compiled for a [`crate::Topology`], whose devices may be
/// absent. Serialize it, and load it with [`crate::Client::deserialize`] on a machine with such devices.
pub struct Executable {
    api: Api,
    raw: NonNull<sys::PJRT_Executable>,
}

// SAFETY: PJRT functions may be called on an executable from any thread.
unsafe impl Send for Executable {}
// SAFETY: see above.
unsafe impl Sync for Executable {}

/// The memory that a compiled program needs on each device, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompiledMemoryStats {
    /// The code.
    pub generated_code: i64,
    /// The inputs.
    pub argument: i64,
    /// The outputs.
    pub output: i64,
    /// The part of the outputs that reuses the memory of donated inputs.
    pub alias: i64,
    /// Memory needed only while the program runs.
    pub temp: i64,
    /// The largest amount in use at any time; 0 if the plugin does not provide it.
    pub peak: i64,
}

impl Drop for Executable {
    fn drop(&mut self) {
        let mut arguments = sys::PJRT_Executable_Destroy_Args { executable: self.raw.as_ptr(), ..Struct::new() };
        // SAFETY: the executable is ours and not used again. An error cannot be reported here.
        let _ = unsafe { self.api.call(&mut arguments) };
    }
}

impl Executable {
    /// # Safety
    /// `raw` is null, or a live executable of this plugin without another owner.
    pub(crate) unsafe fn from_raw(api: Api, raw: *mut sys::PJRT_Executable) -> Result<Self> {
        let raw = NonNull::new(raw).ok_or_else(|| null("PJRT_Executable"))?;
        Ok(Self { api, raw })
    }

    /// Calls a function whose argument struct contains this executable as its only pointer.
    ///
    /// # Safety
    /// `arguments` contains no other pointer except null pointers that the header allows.
    unsafe fn call<A: Arguments>(&self, mut arguments: A) -> Result<A> {
        // SAFETY: the executable is live, and the caller guarantees the rest.
        unsafe { self.api.call(&mut arguments) }?;
        Ok(arguments)
    }

    /// The number of outputs of a run on each device.
    ///
    /// # Errors
    /// If the plugin does not provide it.
    pub fn num_outputs(&self) -> Result<usize> {
        // SAFETY: the executable is the only pointer in the struct.
        let arguments = unsafe {
            self.call(sys::PJRT_Executable_NumOutputs_Args { executable: self.raw.as_ptr(), ..Struct::new() })
        }?;
        Ok(arguments.num_outputs)
    }

    /// The executable as bytes, for [`crate::Client::deserialize`]. Two compilations of the same program may give
    /// different bytes.
    ///
    /// # Errors
    /// If the plugin cannot serialize this.
    pub fn serialize(&self) -> Result<Vec<u8>> {
        // SAFETY: the executable is the only pointer in the struct.
        let arguments = unsafe {
            self.call(sys::PJRT_Executable_Serialize_Args { executable: self.raw.as_ptr(), ..Struct::new() })
        }?;
        // SAFETY: the bytes live until the deleter below is called.
        let bytes = unsafe { slice(arguments.serialized_bytes.cast::<u8>(), arguments.serialized_bytes_size) }.to_vec();
        if let Some(delete) = arguments.serialized_executable_deleter {
            // SAFETY: this is the deleter for this value, called once.
            unsafe { delete(arguments.serialized_executable) };
        }
        Ok(bytes)
    }

    /// An identifier that executables share only if program, options and compiler are the same: the plugin's text, or
    /// hexadecimal if it is not text.
    ///
    /// # Errors
    /// `Unimplemented` if the plugin does not provide it.
    pub fn fingerprint(&self) -> Result<String> {
        // SAFETY: the executable is the only pointer in the struct.
        let arguments = unsafe {
            self.call(sys::PJRT_Executable_Fingerprint_Args { executable: self.raw.as_ptr(), ..Struct::new() })
        }?;
        // SAFETY: the fingerprint lives as long as the executable.
        Ok(fingerprint_text(unsafe {
            slice(arguments.executable_fingerprint.cast(), arguments.executable_fingerprint_size)
        }))
    }

    /// The memory that a run needs.
    ///
    /// # Errors
    /// `Unimplemented` if the plugin does not provide it.
    pub fn memory_stats(&self) -> Result<CompiledMemoryStats> {
        // SAFETY: the executable is the only pointer in the struct.
        let stats = unsafe {
            self.call(sys::PJRT_Executable_GetCompiledMemoryStats_Args {
                executable: self.raw.as_ptr(),
                ..Struct::new()
            })
        }?;
        Ok(CompiledMemoryStats {
            generated_code: stats.generated_code_size_in_bytes,
            argument: stats.argument_size_in_bytes,
            output: stats.output_size_in_bytes,
            alias: stats.alias_size_in_bytes,
            temp: stats.temp_size_in_bytes,
            peak: stats.peak_memory_in_bytes,
        })
    }

    /// The compiler's estimate of the cost of a run: `flops`, `bytes accessed`, and others that depend on the
    /// platform.
    ///
    /// # Errors
    /// `Unimplemented` if the plugin does not provide it.
    pub fn cost_analysis(&self) -> Result<Vec<(String, Value)>> {
        // SAFETY: the executable is the only pointer in the struct.
        let arguments = unsafe {
            self.call(sys::PJRT_Executable_GetCostAnalysis_Args { executable: self.raw.as_ptr(), ..Struct::new() })
        }?;
        // SAFETY: the properties live as long as the executable.
        Ok(unsafe { Value::read_list(arguments.properties, arguments.num_properties) })
    }
}

fn fingerprint_text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

/// A compiled program, ready to run on its client's devices.
pub struct LoadedExecutable {
    // Fields are dropped in this order: the client last.
    raw: LoadedHandle,
    executable: Executable,
    num_outputs: usize,
    client: Arc<ClientInner>,
}

/// Destroys the loaded executable when dropped.
struct LoadedHandle {
    api: Api,
    raw: NonNull<sys::PJRT_LoadedExecutable>,
}

// SAFETY: PJRT functions may be called on a loaded executable from any thread.
unsafe impl Send for LoadedHandle {}
// SAFETY: see above.
unsafe impl Sync for LoadedHandle {}

impl Drop for LoadedHandle {
    fn drop(&mut self) {
        let mut arguments = sys::PJRT_LoadedExecutable_Destroy_Args { executable: self.raw.as_ptr(), ..Struct::new() };
        // SAFETY: the executable is ours and not used again. An error cannot be reported here.
        let _ = unsafe { self.api.call(&mut arguments) };
    }
}

impl LoadedExecutable {
    /// # Safety
    /// `raw` is null, or a live executable of this client without another owner.
    pub(crate) unsafe fn from_raw(client: &Arc<ClientInner>, raw: *mut sys::PJRT_LoadedExecutable) -> Result<Self> {
        let api = client.api;
        let raw = NonNull::new(raw).ok_or_else(|| null("PJRT_LoadedExecutable"))?;
        let raw = LoadedHandle { api, raw };
        let mut arguments =
            sys::PJRT_LoadedExecutable_GetExecutable_Args { loaded_executable: raw.raw.as_ptr(), ..Struct::new() };
        // SAFETY: the loaded executable is live.
        unsafe { api.call(&mut arguments) }?;
        // SAFETY: the executable is new and ours.
        let executable = unsafe { Executable::from_raw(api, arguments.executable) }?;
        Ok(Self { num_outputs: executable.num_outputs()?, raw, executable, client: Arc::clone(client) })
    }

    /// The number of outputs of a run on each device.
    #[inline]
    pub fn num_outputs(&self) -> usize {
        self.num_outputs
    }

    /// See [`Executable::serialize`].
    ///
    /// # Errors
    /// If the plugin cannot serialize this.
    pub fn serialize(&self) -> Result<Vec<u8>> {
        self.executable.serialize()
    }

    /// See [`Executable::memory_stats`].
    ///
    /// # Errors
    /// `Unimplemented` if the plugin does not provide it.
    pub fn memory_stats(&self) -> Result<CompiledMemoryStats> {
        self.executable.memory_stats()
    }

    /// See [`Executable::cost_analysis`].
    ///
    /// # Errors
    /// `Unimplemented` if the plugin does not provide it.
    pub fn cost_analysis(&self) -> Result<Vec<(String, Value)>> {
        self.executable.cost_analysis()
    }

    /// See [`Executable::fingerprint`].
    ///
    /// # Errors
    /// `Unimplemented` if the plugin does not provide it.
    pub fn fingerprint(&self) -> Result<String> {
        match self.executable.fingerprint() {
            Err(error) if error.code == Code::Unimplemented => self.loaded_fingerprint(),
            result => result,
        }
    }

    /// Calls the older function, which is the only one of some plugins.
    fn loaded_fingerprint(&self) -> Result<String> {
        let mut arguments =
            sys::PJRT_LoadedExecutable_Fingerprint_Args { executable: self.raw.raw.as_ptr(), ..Struct::new() };
        // SAFETY: the executable is live.
        unsafe { self.client.api.call(&mut arguments) }?;
        // SAFETY: the fingerprint lives as long as the executable.
        Ok(fingerprint_text(unsafe {
            slice(arguments.executable_fingerprint.cast(), arguments.executable_fingerprint_size)
        }))
    }

    /// Starts a run on one device, by its index, and replaces the contents of `outputs` by its results. It does not
    /// wait. An error at run time is reported by the outputs and by the returned event, which marks the end of the
    /// run (if the plugin provides it).
    ///
    /// Inputs that the program marks as donated (`jax.buffer_donor`, `tf.aliasing_output`) are deleted, except those
    /// whose indices are in `non_donatable`.
    ///
    /// A portable program runs on any device. A program of several replicas or partitions must be
    /// started on each of its devices, from one thread or several.
    ///
    /// # Errors
    /// If the inputs do not fit the program or its device, one of them was donated before, or
    /// device memory is exhausted.
    #[inline]
    pub fn execute(
        &self,
        device: usize,
        inputs: &[&Buffer],
        non_donatable: &[i64],
        outputs: &mut Vec<Buffer>,
    ) -> Result<Option<Event>> {
        let device = self.client.device(device, EXECUTE)?;
        self.start(device, 0, inputs, non_donatable, outputs)
    }

    /// Starts the only replica that this process runs of a program with a device assignment. Other processes start the
    /// other replicas. Inputs are not donated.
    ///
    /// `launch_id` is a number that all replicas of this run have, and is not zero. A plugin may use it to find that the
    /// processes start their programs in different orders.
    ///
    /// # Errors
    /// As for [`LoadedExecutable::execute`].
    pub fn execute_replica(
        &self,
        launch_id: i32,
        inputs: &[&Buffer],
        outputs: &mut Vec<Buffer>,
    ) -> Result<Option<Event>> {
        let all: Vec<i64> = (0..inputs.len() as i64).collect();
        // Without a device, the program runs on those of its devices that this process can use.
        self.start(ptr::null_mut(), launch_id, inputs, &all, outputs)
    }

    #[inline]
    fn start(
        &self,
        device: *mut sys::PJRT_Device,
        launch_id: i32,
        inputs: &[&Buffer],
        non_donatable: &[i64],
        outputs: &mut Vec<Buffer>,
    ) -> Result<Option<Event>> {
        outputs.clear();

        let mut inline_arguments = [ptr::null_mut(); INLINE];
        let mut spilled_arguments;
        let arguments: &mut [*mut sys::PJRT_Buffer] = if inputs.len() <= INLINE {
            &mut inline_arguments[..inputs.len()]
        } else {
            spilled_arguments = vec![ptr::null_mut(); inputs.len()];
            &mut spilled_arguments
        };
        for (argument, input) in arguments.iter_mut().zip(inputs) {
            if !Arc::ptr_eq(&input.client, &self.client) {
                return Err(Error::invalid(EXECUTE, "an input is another client's"));
            }
            *argument = input.as_raw();
        }

        let mut inline_results = [ptr::null_mut(); INLINE];
        let mut spilled_results;
        let results: &mut [*mut sys::PJRT_Buffer] = if self.num_outputs <= INLINE {
            &mut inline_results[..self.num_outputs]
        } else {
            spilled_results = vec![ptr::null_mut(); self.num_outputs];
            &mut spilled_results
        };

        let mut options = sys::PJRT_ExecuteOptions {
            launch_id,
            non_donatable_input_indices: non_donatable.as_ptr(),
            num_non_donatable_input_indices: non_donatable.len(),
            ..Struct::new()
        };
        // One list for each device, of which there is one.
        let argument_lists = arguments.as_ptr();
        let output_lists = results.as_mut_ptr();
        let mut complete = ptr::null_mut();
        let mut call = sys::PJRT_LoadedExecutable_Execute_Args {
            executable: self.raw.raw.as_ptr(),
            options: &mut options,
            argument_lists: &argument_lists,
            num_devices: 1,
            num_args: inputs.len(),
            output_lists: &output_lists,
            execute_device: device,
            device_complete_events: &mut complete,
            ..Struct::new()
        };
        // SAFETY: all of these are live for the length of the call, the lists are as long as the
        // counts say, and the inputs are the client's.
        unsafe { self.client.api.call(&mut call) }?;
        outputs.reserve(results.len());
        for result in results {
            // SAFETY: the output is new and ours.
            outputs.push(unsafe { Buffer::from_raw(&self.client, *result) }?);
        }
        // SAFETY: the event is new and ours.
        Ok(unsafe { Event::from_raw(self.client.api, complete) })
    }
}
