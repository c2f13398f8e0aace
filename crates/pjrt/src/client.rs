//! Clients: the open devices of a plugin.

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

/// A client. Clones refer to the same client. It ends with its last handle, buffer and executable.
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
// SAFETY: see above.
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
        // SAFETY: the client is ours and not used again. An error cannot be reported here.
        let _ = unsafe { self.api.call(&mut arguments) };
    }
}

impl Client {
    /// # Safety
    /// `raw` is a live client of this plugin without another owner.
    pub(crate) unsafe fn from_raw(api: Api, raw: *mut sys::PJRT_Client) -> Result<Self> {
        let mut inner = ClientInner { api, raw, devices: Vec::new() };
        let mut arguments = sys::PJRT_Client_AddressableDevices_Args { client: raw, ..Struct::new() };
        // SAFETY: the client is live.
        unsafe { api.call(&mut arguments) }?;
        // SAFETY: the list lives as long as the client.
        let devices = unsafe { slice(arguments.addressable_devices, arguments.num_addressable_devices) };
        inner.devices = devices
            .iter()
            // SAFETY: the device belongs to the client, which outlives the list.
            .map(|device| unsafe { Device::from_raw(api, *device) })
            .collect::<Result<_>>()?;
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The platform, such as `cpu`, `cuda` or `tpu`.
    ///
    /// # Errors
    /// If the plugin does not provide it.
    pub fn platform_name(&self) -> Result<String> {
        let mut arguments = sys::PJRT_Client_PlatformName_Args { client: self.inner.raw, ..Struct::new() };
        // SAFETY: the client is live.
        unsafe { self.inner.api.call(&mut arguments) }?;
        // SAFETY: the name lives as long as the client.
        Ok(unsafe { string(arguments.platform_name, arguments.platform_name_size) })
    }

    /// The version of the software below the plugin, as text.
    ///
    /// # Errors
    /// If the plugin does not provide it.
    pub fn platform_version(&self) -> Result<String> {
        let mut arguments = sys::PJRT_Client_PlatformVersion_Args { client: self.inner.raw, ..Struct::new() };
        // SAFETY: the client is live.
        unsafe { self.inner.api.call(&mut arguments) }?;
        // SAFETY: the text lives as long as the client.
        Ok(unsafe { string(arguments.platform_version, arguments.platform_version_size) })
    }

    /// The index of this process among the processes of a job; 0 for a single process.
    ///
    /// # Errors
    /// If the plugin does not provide it.
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

    /// All devices of the job, in order: also those that only other processes can use.
    ///
    /// # Errors
    /// If the plugin does not provide them.
    pub fn devices(&self) -> Result<Vec<Device>> {
        let mut arguments = sys::PJRT_Client_Devices_Args { client: self.inner.raw, ..Struct::new() };
        // SAFETY: the client is live.
        unsafe { self.inner.api.call(&mut arguments) }?;
        // SAFETY: the list lives as long as the client.
        let devices = unsafe { slice(arguments.devices, arguments.num_devices) };
        // SAFETY: a device belongs to the client, and is borrowed from it.
        devices.iter().map(|device| unsafe { Device::from_raw(self.inner.api, *device) }).collect()
    }

    /// The topology of all devices that programs of this client may run on, including those of other hosts.
    ///
    /// # Errors
    /// If the plugin does not provide it.
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
    /// If the program does not parse or cannot be compiled.
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
        // SAFETY: the executable is new and belongs to this client.
        unsafe { LoadedExecutable::from_raw(&self.inner, arguments.executable) }
    }

    /// Loads the bytes from [`LoadedExecutable::serialize`] or [`crate::Executable::serialize`].
    ///
    /// # Errors
    /// If the bytes are not those of an executable for this platform and version.
    pub fn deserialize(&self, bytes: &[u8]) -> Result<LoadedExecutable> {
        let mut arguments = sys::PJRT_Executable_DeserializeAndLoad_Args {
            client: self.inner.raw,
            serialized_executable: bytes.as_ptr().cast(),
            serialized_executable_size: bytes.len(),
            ..Struct::new()
        };
        // SAFETY: the client is live, and the bytes outlive the call.
        unsafe { self.inner.api.call(&mut arguments) }?;
        // SAFETY: the executable is new and belongs to this client.
        unsafe { LoadedExecutable::from_raw(&self.inner, arguments.loaded_executable) }
    }

    /// Copies a dense, row-major array to a device. `data` may be changed after this returns.
    ///
    /// # Errors
    /// If `data` is not as long as `dims` and `element_type` say, there is no such device, or its memory is exhausted.
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

    /// Copies a dense, row-major array to a device without waiting for the copy. Drops `owner` when the plugin no
    /// longer needs the memory: on one of the plugin's threads, or before this returns.
    ///
    /// `owner` must not own this client.
    ///
    /// # Errors
    /// If there is no such device, or its memory is exhausted. `owner` is then dropped.
    ///
    /// # Safety
    /// `data` points to as many bytes as `dims` and `element_type` say. They are not moved or written to until
    /// `owner` is dropped.
    pub unsafe fn buffer_from_host_owned(
        &self,
        data: *const u8,
        element_type: ElementType,
        dims: &[i64],
        device: usize,
        owner: Box<dyn Any + Send>,
    ) -> Result<Buffer> {
        let semantics = sys::PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes;
        // SAFETY: the caller guarantees the data, whose owner is dropped by the event's callback.
        let (buffer, done) = unsafe { self.transfer(data, element_type, dims, device, semantics) }?;
        if let Some(done) = done {
            Arc::new(done).on_ready(move |_| drop(owner));
        }
        Ok(buffer)
    }

    /// A dense, row-major array on a device with undefined elements. The caller writes them through
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
    /// `data` points to as many bytes as the shape says. They live and do not change for as long as `semantics`
    /// requires.
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
        // SAFETY: the client and the device are live, and the caller guarantees the data.
        unsafe { self.inner.api.call(&mut arguments) }?;
        // SAFETY: both are new and ours.
        unsafe {
            let done = Event::from_raw(self.inner.api, arguments.done_with_host_buffer);
            Ok((Buffer::from_raw(&self.inner, arguments.buffer)?, done))
        }
    }
}

/// The program as a C struct that borrows it.
pub(crate) fn mlir_program(program: &[u8]) -> sys::PJRT_Program {
    sys::PJRT_Program {
        // Only the call for the optimized program writes here; it is not used with this struct.
        code: program.as_ptr().cast_mut().cast(),
        code_size: program.len(),
        format: MLIR.as_ptr().cast(),
        format_size: MLIR.len(),
        ..Struct::new()
    }
}

/// Bytes of a dense array; `None` if a dimension is negative or the product overflows.
#[inline]
pub(crate) fn byte_size(element_type: ElementType, dims: &[i64]) -> Option<usize> {
    if dims.contains(&0) {
        return Some(0);
    }
    dims.iter().try_fold(element_type.size_bytes(), |size, dim| size.checked_mul(usize::try_from(*dim).ok()?))
}

/// The error for a null handle from a plugin.
#[cold]
pub(crate) fn null(function: &'static str) -> Error {
    Error::new(function, Code::Internal, "the plugin returned a null pointer")
}
