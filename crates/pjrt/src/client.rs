//! Clients: the devices of a plugin, in use.

use std::any::Any;
use std::sync::Arc;

use crate::api::{Api, Struct, slice, string};
use crate::buffer::{Buffer, ElementType};
use crate::device::Device;
use crate::error::{Code, Error, Result};
use crate::event::Event;
use crate::executable::LoadedExecutable;
use crate::options::CompileOptions;
use crate::sys;
use crate::topology::Topology;

/// The format of programs: StableHLO, as text or as bytecode.
const MLIR: &str = "mlir";

/// A client. Clones are handles to the same one, which ends with the last handle, buffer and executable.
#[derive(Clone)]
pub struct Client {
    pub(crate) inner: Arc<ClientInner>,
}

pub(crate) struct ClientInner {
    pub(crate) api: Api,
    raw: *mut sys::PJRT_Client,
    devices: Vec<Device>,
}

// SAFETY: PJRT functions may be called on a client from any thread.
unsafe impl Send for ClientInner {}
// SAFETY: as above.
unsafe impl Sync for ClientInner {}

impl ClientInner {
    /// The addressable device at an index.
    #[inline]
    pub(crate) fn device(&self, index: usize, function: &'static str) -> Result<*mut sys::PJRT_Device> {
        match self.devices.get(index) {
            Some(device) => Ok(device.raw),
            None => Err(Error::invalid(function, format!("no device {index}: there are {}", self.devices.len()))),
        }
    }
}

impl Drop for ClientInner {
    fn drop(&mut self) {
        let mut arguments = sys::PJRT_Client_Destroy_Args { client: self.raw, ..Struct::new() };
        // SAFETY: the client is ours and not used again. There is nobody to tell of an error.
        let _ = unsafe { self.api.call(&mut arguments) };
    }
}

impl Client {
    /// # Safety
    /// `raw` is a live client of this plugin that nobody else owns.
    pub(crate) unsafe fn from_raw(api: Api, raw: *mut sys::PJRT_Client) -> Result<Self> {
        let mut inner = ClientInner { api, raw, devices: Vec::new() };
        let mut arguments = sys::PJRT_Client_AddressableDevices_Args { client: raw, ..Struct::new() };
        // SAFETY: the client is live.
        unsafe { api.call(&mut arguments) }?;
        // SAFETY: the list lives as long as the client.
        let devices = unsafe { slice(arguments.addressable_devices, arguments.num_addressable_devices) };
        inner.devices = devices
            .iter()
            // SAFETY: the device is the client's, which outlives the list it goes into.
            .map(|device| unsafe { Device::from_raw(api, *device) })
            .collect::<Result<_>>()?;
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The platform, such as `cpu`, `cuda` or `tpu`.
    ///
    /// # Errors
    /// Where the plugin cannot say.
    pub fn platform_name(&self) -> Result<String> {
        let mut arguments = sys::PJRT_Client_PlatformName_Args { client: self.inner.raw, ..Struct::new() };
        // SAFETY: the client is live.
        unsafe { self.inner.api.call(&mut arguments) }?;
        // SAFETY: the name lives as long as the client.
        Ok(unsafe { string(arguments.platform_name, arguments.platform_name_size) })
    }

    /// The version of what is beneath the plugin, in its own words.
    ///
    /// # Errors
    /// Where the plugin cannot say.
    pub fn platform_version(&self) -> Result<String> {
        let mut arguments = sys::PJRT_Client_PlatformVersion_Args { client: self.inner.raw, ..Struct::new() };
        // SAFETY: the client is live.
        unsafe { self.inner.api.call(&mut arguments) }?;
        // SAFETY: the text lives as long as the client.
        Ok(unsafe { string(arguments.platform_version, arguments.platform_version_size) })
    }

    /// Which of the processes that share a job this is: 0 where it is alone.
    ///
    /// # Errors
    /// Where the plugin cannot say.
    pub fn process_index(&self) -> Result<i32> {
        let mut arguments = sys::PJRT_Client_ProcessIndex_Args { client: self.inner.raw, ..Struct::new() };
        // SAFETY: the client is live.
        unsafe { self.inner.api.call(&mut arguments) }?;
        Ok(arguments.process_index)
    }

    /// The devices that this process can use.
    pub fn addressable_devices(&self) -> &[Device] {
        &self.inner.devices
    }

    /// All devices that programs of this client may run on, those of other hosts among them.
    ///
    /// # Errors
    /// Where the plugin cannot say.
    pub fn topology(&self) -> Result<Topology> {
        let mut arguments = sys::PJRT_Client_TopologyDescription_Args { client: self.inner.raw, ..Struct::new() };
        // SAFETY: the client is live.
        unsafe { self.inner.api.call(&mut arguments) }?;
        // SAFETY: the topology is the client's.
        unsafe { Topology::of_client(&self.inner, arguments.topology) }
    }

    /// Compiles a StableHLO program, as text or as bytecode.
    ///
    /// # Errors
    /// Where the program does not parse or cannot be compiled.
    pub fn compile(&self, program: &[u8], options: &CompileOptions) -> Result<LoadedExecutable> {
        let program = mlir_program(program);
        let options = options.encode();
        let mut arguments = sys::PJRT_Client_Compile_Args {
            client: self.inner.raw,
            program: &program,
            compile_options: options.as_ptr().cast(),
            compile_options_size: options.len(),
            ..Struct::new()
        };
        // SAFETY: the client is live, and the program and the options outlive the call.
        unsafe { self.inner.api.call(&mut arguments) }?;
        // SAFETY: the executable is new, and this client's.
        unsafe { LoadedExecutable::from_raw(&self.inner, arguments.executable) }
    }

    /// Loads what [`LoadedExecutable::serialize`] or [`crate::Executable::serialize`] wrote.
    ///
    /// # Errors
    /// Where the bytes are not those of an executable for this platform and version.
    pub fn deserialize(&self, bytes: &[u8]) -> Result<LoadedExecutable> {
        let mut arguments = sys::PJRT_Executable_DeserializeAndLoad_Args {
            client: self.inner.raw,
            serialized_executable: bytes.as_ptr().cast(),
            serialized_executable_size: bytes.len(),
            ..Struct::new()
        };
        // SAFETY: the client is live, and the bytes outlive the call.
        unsafe { self.inner.api.call(&mut arguments) }?;
        // SAFETY: the executable is new, and this client's.
        unsafe { LoadedExecutable::from_raw(&self.inner, arguments.loaded_executable) }
    }

    /// Copies a dense, row-major array to a device. `data` is free again when this returns.
    ///
    /// # Errors
    /// Where `data` is not as long as `dims` and `element_type` say, there is no such device, or its memory is used up.
    #[inline]
    pub fn buffer_from_host(
        &self,
        data: &[u8],
        element_type: ElementType,
        dims: &[i64],
        device: usize,
    ) -> Result<Buffer> {
        const FUNCTION: &str = "PJRT_Client_BufferFromHostBuffer";
        if byte_size(element_type, dims) != Some(data.len()) {
            return Err(Error::invalid(
                FUNCTION,
                format!("{} bytes given for a {element_type:?} array of {dims:?}", data.len()),
            ));
        }
        let semantics = sys::PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
        // SAFETY: the data is as long as the shape says, and is not needed after the call.
        let (buffer, _done) = unsafe { self.transfer(data.as_ptr(), element_type, dims, device, semantics) }?;
        Ok(buffer)
    }

    /// Copies a dense, row-major array to a device without waiting for the copy, and drops `owner`
    /// once the plugin is done with the memory: on one of the plugin's threads, or before this returns.
    ///
    /// `owner` must not be what keeps this client alive.
    ///
    /// # Errors
    /// Where there is no such device, or its memory is used up. `owner` is then dropped.
    ///
    /// # Safety
    /// `data` points to as many bytes as `dims` and `element_type` say. They stay where they are, and
    /// nobody writes to them, until `owner` is dropped.
    pub unsafe fn buffer_from_host_owned(
        &self,
        data: *const u8,
        element_type: ElementType,
        dims: &[i64],
        device: usize,
        owner: Box<dyn Any + Send>,
    ) -> Result<Buffer> {
        let semantics = sys::PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes;
        // SAFETY: the caller vouches for the data, which stays until the event lets go of its owner.
        let (buffer, done) = unsafe { self.transfer(data, element_type, dims, device, semantics) }?;
        if let Some(done) = done {
            Arc::new(done).on_ready(move |_| drop(owner));
        }
        Ok(buffer)
    }

    /// A dense, row-major array on a device whose elements are not set: for a caller that writes them through
    /// [`crate::HostMemory`].
    ///
    /// # Errors
    /// `Unimplemented` where the plugin is older than the function. Where there is no such device, or its memory is
    /// used up.
    pub fn uninitialized_buffer(&self, element_type: ElementType, dims: &[i64], device: usize) -> Result<Buffer> {
        let mut arguments = sys::PJRT_Client_CreateUninitializedBuffer_Args {
            client: self.inner.raw,
            shape_dims: dims.as_ptr(),
            shape_num_dims: dims.len(),
            shape_element_type: element_type.to_raw(),
            device: self.inner.device(device, "PJRT_Client_CreateUninitializedBuffer")?,
            ..Struct::new()
        };
        // SAFETY: the client and the device are live, and the dimensions outlive the call.
        unsafe { self.inner.api.call(&mut arguments) }?;
        // SAFETY: the buffer is new and ours.
        unsafe { Buffer::from_raw(&self.inner, arguments.buffer) }
    }

    /// # Safety
    /// `data` points to as many bytes as the shape says, which live and rest for as long as `semantics` needs them.
    #[inline]
    unsafe fn transfer(
        &self,
        data: *const u8,
        element_type: ElementType,
        dims: &[i64],
        device: usize,
        semantics: sys::PJRT_HostBufferSemantics,
    ) -> Result<(Buffer, Option<Event>)> {
        let mut arguments = sys::PJRT_Client_BufferFromHostBuffer_Args {
            client: self.inner.raw,
            data: data.cast(),
            type_: element_type.to_raw(),
            dims: dims.as_ptr(),
            num_dims: dims.len(),
            host_buffer_semantics: semantics,
            device: self.inner.device(device, "PJRT_Client_BufferFromHostBuffer")?,
            ..Struct::new()
        };
        // SAFETY: the client and the device are live, and the caller vouches for the data.
        unsafe { self.inner.api.call(&mut arguments) }?;
        // SAFETY: both are new and ours.
        unsafe {
            let done = Event::from_raw(self.inner.api, arguments.done_with_host_buffer);
            Ok((Buffer::from_raw(&self.inner, arguments.buffer)?, done))
        }
    }
}

/// The C form of a program, which borrows it.
pub(crate) fn mlir_program(program: &[u8]) -> sys::PJRT_Program {
    sys::PJRT_Program {
        // Only the call for the optimized program writes here, and it is not used with this.
        code: program.as_ptr().cast_mut().cast(),
        code_size: program.len(),
        format: MLIR.as_ptr().cast(),
        format_size: MLIR.len(),
        ..Struct::new()
    }
}

/// Bytes of a dense array; none where a dimension is negative or the product too large.
#[inline]
pub(crate) fn byte_size(element_type: ElementType, dims: &[i64]) -> Option<usize> {
    dims.iter().try_fold(element_type.size_bytes(), |size, dim| size.checked_mul(usize::try_from(*dim).ok()?))
}

/// The error for a handle that a plugin should have returned.
#[cold]
pub(crate) fn null(function: &'static str) -> Error {
    Error::new(function, Code::Internal, "the plugin returned a null pointer")
}
