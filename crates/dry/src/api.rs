//! The functions of the C API. Those that are not here are null in the table.
//!
//! Handles are boxes, of which the caller of the API owns one until it destroys it.

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice;
use std::sync::{Arc, OnceLock};

use pjrt::sys;

use crate::array::{self, Type};
use crate::element::Element;
use crate::program::{Known, Program};

/// The options of `PJRT_Client_Create`: the model, and the bytes of the device.
const KIND: &str = "kind";
const MEMORY: &str = "memory_bytes";

const PLATFORM: &str = "tpu";
const VERSION: &str = "dry";

struct Error {
    code: sys::PJRT_Error_Code,
    message: String,
}

type Result<T> = std::result::Result<T, Error>;

fn invalid(message: impl Into<String>) -> Error {
    Error { code: sys::PJRT_Error_Code_INVALID_ARGUMENT, message: message.into() }
}

struct Client {
    /// The device is a description of itself.
    _device: Box<Device>,
    devices: [*mut sys::PJRT_Device; 1],
}

struct Device {
    kind: String,
    memory_bytes: i64,
}

struct Executable {
    program: Arc<Program>,
}

struct Buffer {
    ty: Type,
    known: Known,
}

/// `GetPjrtApi`.
pub extern "C" fn get_api() -> *const sys::PJRT_Api {
    struct Table(sys::PJRT_Api);
    // SAFETY: the table is not written after it is made, and holds functions and null pointers.
    unsafe impl Send for Table {}
    // SAFETY: as above.
    unsafe impl Sync for Table {}
    static TABLE: OnceLock<Table> = OnceLock::new();
    &TABLE.get_or_init(|| Table(table())).0
}

fn table() -> sys::PJRT_Api {
    // SAFETY: the table consists of numbers, pointers and optional functions, for which zeroes are valid.
    let mut api: sys::PJRT_Api = unsafe { MaybeUninit::zeroed().assume_init() };
    api.struct_size = size_of::<sys::PJRT_Api>();
    api.pjrt_api_version.struct_size = size_of::<sys::PJRT_Api_Version>();
    api.pjrt_api_version.major_version = sys::PJRT_API_MAJOR as i32;
    api.pjrt_api_version.minor_version = sys::PJRT_API_MINOR as i32;
    api.PJRT_Error_Destroy = Some(error_destroy);
    api.PJRT_Error_Message = Some(error_message);
    api.PJRT_Error_GetCode = Some(error_code);
    api.PJRT_Plugin_Initialize = Some(initialize);
    api.PJRT_Client_Create = Some(client_create);
    api.PJRT_Client_Destroy = Some(client_destroy);
    api.PJRT_Client_PlatformName = Some(client_platform_name);
    api.PJRT_Client_PlatformVersion = Some(client_platform_version);
    api.PJRT_Client_ProcessIndex = Some(client_process_index);
    api.PJRT_Client_AddressableDevices = Some(client_devices);
    api.PJRT_Client_Compile = Some(client_compile);
    api.PJRT_Client_BufferFromHostBuffer = Some(client_upload);
    api.PJRT_Client_CreateUninitializedBuffer = Some(client_uninitialized);
    api.PJRT_Device_GetDescription = Some(device_description);
    api.PJRT_Device_LocalHardwareId = Some(device_hardware_id);
    api.PJRT_Device_MemoryStats = Some(device_memory);
    api.PJRT_DeviceDescription_Id = Some(description_id);
    api.PJRT_DeviceDescription_Kind = Some(description_kind);
    api.PJRT_DeviceDescription_Attributes = Some(description_attributes);
    api.PJRT_Executable_Destroy = Some(executable_destroy);
    api.PJRT_Executable_NumOutputs = Some(executable_outputs);
    api.PJRT_LoadedExecutable_Destroy = Some(loaded_destroy);
    api.PJRT_LoadedExecutable_GetExecutable = Some(loaded_executable);
    api.PJRT_LoadedExecutable_Execute = Some(execute);
    api.PJRT_Buffer_Destroy = Some(buffer_destroy);
    api.PJRT_Buffer_ElementType = Some(buffer_element_type);
    api.PJRT_Buffer_Dimensions = Some(buffer_dims);
    api.PJRT_Buffer_UnpaddedDimensions = Some(buffer_unpadded_dims);
    api.PJRT_Buffer_OnDeviceSizeInBytes = Some(buffer_size);
    api.PJRT_Buffer_IsOnCpu = Some(buffer_on_cpu);
    api.PJRT_Buffer_IsDeleted = Some(buffer_deleted);
    api.PJRT_Buffer_ReadyEvent = Some(buffer_ready);
    api.PJRT_Buffer_ToHostBuffer = Some(buffer_read);
    api.PJRT_Buffer_CopyToDevice = Some(buffer_copy);
    api
}

/// Runs the body of a function: an error, or a panic, becomes an error of the API.
fn guarded(body: impl FnOnce() -> Result<()>) -> *mut sys::PJRT_Error {
    let caught = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        std::mem::forget(payload);
        let code = sys::PJRT_Error_Code_INTERNAL;
        Err(Error { code, message: "the dry plugin panicked".into() })
    });
    caught.err().map_or(std::ptr::null_mut(), |error| Box::into_raw(Box::new(error)).cast())
}

/// A function of the API with a body that may fail.
macro_rules! functions {
    ($($name:ident($args:ident: $ty:ty) $body:block)*) => { $(
        unsafe extern "C" fn $name($args: *mut $ty) -> *mut sys::PJRT_Error {
            guarded(|| {
                // SAFETY: by the API, the arguments are live, and of this call alone.
                let $args = unsafe { &mut *$args };
                $body
                Ok(())
            })
        }
    )* };
}

/// Whether the number in a buffer was invented: it would be another for other data.
///
/// # Safety
/// The buffer is a live one of this plugin.
pub unsafe fn is_invented(buffer: *mut sys::PJRT_Buffer) -> bool {
    // SAFETY: the caller's promise.
    let known = unsafe { &object::<Buffer, _>(buffer).known };
    !known.is_certain && !known.is_exact
}

/// Writes a number as each element of an array of a buffer's element type.
///
/// # Safety
/// The buffer is a live one of this plugin.
pub unsafe fn fill(buffer: *mut sys::PJRT_Buffer, number: f64, array: &mut [u8]) {
    // SAFETY: the caller's promise.
    let element = unsafe { object::<Buffer, _>(buffer) }.ty.element.write(number);
    array.chunks_exact_mut(element.len()).for_each(|place| place.copy_from_slice(&element));
}

/// The object behind a handle.
///
/// # Safety
/// The handle is one of this plugin that was not destroyed, of an object of this type.
unsafe fn object<'a, T, H>(handle: *mut H) -> &'a T {
    // SAFETY: the caller's promise.
    unsafe { &*handle.cast::<T>() }
}

/// Takes a handle back.
///
/// # Safety
/// As for [`object`], and the handle is not used again.
unsafe fn destroy<T, H>(handle: *mut H) {
    // SAFETY: the caller's promise; handles are boxes.
    drop(unsafe { Box::from_raw(handle.cast::<T>()) });
}

fn handle<T, H>(object: T) -> *mut H {
    Box::into_raw(Box::new(object)).cast()
}

/// The values behind a pointer of the API; none for a null pointer.
///
/// # Safety
/// A pointer that is not null points to so many values.
unsafe fn list<'a, T>(data: *const T, count: usize) -> &'a [T] {
    if data.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { slice::from_raw_parts(data, count) }
}

unsafe extern "C" fn error_destroy(args: *mut sys::PJRT_Error_Destroy_Args) {
    // SAFETY: the error is the caller's, which gives it back.
    unsafe { destroy::<Error, _>((*args).error) }
}

unsafe extern "C" fn error_message(args: *mut sys::PJRT_Error_Message_Args) {
    // SAFETY: the arguments and the error are live.
    unsafe {
        let message = &object::<Error, _>((*args).error.cast_mut()).message;
        (*args).message = message.as_ptr().cast();
        (*args).message_size = message.len();
    }
}

functions! {
    error_code(args: sys::PJRT_Error_GetCode_Args) {
        // SAFETY: the error is live.
        args.code = unsafe { object::<Error, _>(args.error.cast_mut()) }.code;
    }
    initialize(_args: sys::PJRT_Plugin_Initialize_Args) {}

    client_create(args: sys::PJRT_Client_Create_Args) {
        // SAFETY: the options are as many as the arguments say.
        let options = unsafe { list(args.create_options, args.num_options) };
        let mut device = Device { kind: "TPU".into(), memory_bytes: 0 };
        for option in options {
            // SAFETY: the name is as long as the option says.
            let name = unsafe { list(option.name.cast::<u8>(), option.name_size) };
            if name == KIND.as_bytes() && option.type_ == sys::PJRT_NamedValue_kString {
                // SAFETY: by its type, the option is text, as long as it says.
                let kind = unsafe { list(option.__bindgen_anon_1.string_value.cast::<u8>(), option.value_size) };
                device.kind = String::from_utf8_lossy(kind).into_owned();
            } else if name == MEMORY.as_bytes() && option.type_ == sys::PJRT_NamedValue_kInt64 {
                // SAFETY: by its type, the option is a number.
                device.memory_bytes = unsafe { option.__bindgen_anon_1.int64_value };
            }
        }
        let device = Box::new(device);
        let devices = [(&raw const *device).cast_mut().cast()];
        args.client = handle(Client { _device: device, devices });
    }
    client_destroy(args: sys::PJRT_Client_Destroy_Args) {
        // SAFETY: the client is the caller's, which gives it back.
        unsafe { destroy::<Client, _>(args.client) };
    }
    client_platform_name(args: sys::PJRT_Client_PlatformName_Args) {
        (args.platform_name, args.platform_name_size) = text(PLATFORM);
    }
    client_platform_version(args: sys::PJRT_Client_PlatformVersion_Args) {
        (args.platform_version, args.platform_version_size) = text(VERSION);
    }
    client_process_index(args: sys::PJRT_Client_ProcessIndex_Args) {
        args.process_index = 0;
    }
    client_devices(args: sys::PJRT_Client_AddressableDevices_Args) {
        // SAFETY: the client is live.
        let client = unsafe { object::<Client, _>(args.client) };
        args.addressable_devices = client.devices.as_ptr();
        args.num_addressable_devices = client.devices.len();
    }
    client_compile(args: sys::PJRT_Client_Compile_Args) {
        // SAFETY: the program is live, and as long as it says.
        let code = unsafe { list((*args.program).code.cast::<u8>().cast_const(), (*args.program).code_size) };
        let text = std::str::from_utf8(code).map_err(|_| invalid("the program is no text"))?;
        let program = Program::parse(text).map_err(|what| invalid(format!("the program cannot be read: {what}")))?;
        args.executable = handle(Executable { program: Arc::new(program) });
    }
    client_upload(args: sys::PJRT_Client_BufferFromHostBuffer_Args) {
        let element = Element::from_raw(args.type_).ok_or_else(|| invalid("the element type is not known"))?;
        // SAFETY: the dimensions are as many as the arguments say.
        let dims = unsafe { list(args.dims, args.num_dims) }.to_vec();
        let ty = Type { element, dims };
        // The host's array may have other strides; only its first element is read then.
        let is_dense = args.num_byte_strides == 0;
        let size = if is_dense && ty.count() <= array::MOST { ty.size_bytes() } else { element.size() };
        let size = if ty.count() == 0 { 0 } else { size };
        // SAFETY: there are as many elements, or one.
        let bytes = if size == 0 { &[] } else { unsafe { slice::from_raw_parts(args.data.cast::<u8>(), size) } };
        let number = match ty.count() {
            0 => 0.0,
            // Weights may begin with anything: they stand for numbers of the usual size.
            2.. if element.is_float() => 1.0,
            _ => element.read(bytes),
        };
        let elements = if is_dense { array::read(&ty, bytes) } else { None };
        args.buffer = handle(Buffer { ty, known: Known::of(number, elements) });
        args.done_with_host_buffer = std::ptr::null_mut();
    }

    client_uninitialized(args: sys::PJRT_Client_CreateUninitializedBuffer_Args) {
        let element = Element::from_raw(args.shape_element_type).ok_or_else(|| invalid("the element type is not known"))?;
        // SAFETY: the dimensions are as many as the arguments say.
        let dims = unsafe { list(args.shape_dims, args.shape_num_dims) }.to_vec();
        let known = if element.is_float() { Known::UNKNOWN } else { Known::invented(0.0) };
        args.buffer = handle(Buffer { ty: Type { element, dims }, known });
    }

    device_description(args: sys::PJRT_Device_GetDescription_Args) {
        args.device_description = args.device.cast();
    }
    device_hardware_id(args: sys::PJRT_Device_LocalHardwareId_Args) {
        args.local_hardware_id = 0;
    }
    device_memory(args: sys::PJRT_Device_MemoryStats_Args) {
        // SAFETY: the device is live.
        args.bytes_limit = unsafe { object::<Device, _>(args.device) }.memory_bytes;
        args.bytes_limit_is_set = true;
        args.bytes_in_use = 0;
    }
    description_id(args: sys::PJRT_DeviceDescription_Id_Args) {
        args.id = 0;
    }
    description_kind(args: sys::PJRT_DeviceDescription_Kind_Args) {
        // SAFETY: the device is live, and is its description.
        let device = unsafe { object::<Device, _>(args.device_description) };
        (args.device_kind, args.device_kind_size) = text(&device.kind);
    }
    description_attributes(args: sys::PJRT_DeviceDescription_Attributes_Args) {
        args.num_attributes = 0;
        args.attributes = std::ptr::null();
    }

    executable_destroy(args: sys::PJRT_Executable_Destroy_Args) {
        // SAFETY: the executable is the caller's, which gives it back.
        unsafe { destroy::<Executable, _>(args.executable) };
    }
    executable_outputs(args: sys::PJRT_Executable_NumOutputs_Args) {
        // SAFETY: the executable is live.
        args.num_outputs = unsafe { object::<Executable, _>(args.executable) }.program.results.len();
    }
    loaded_destroy(args: sys::PJRT_LoadedExecutable_Destroy_Args) {
        // SAFETY: the executable is the caller's, which gives it back.
        unsafe { destroy::<Executable, _>(args.executable) };
    }
    loaded_executable(args: sys::PJRT_LoadedExecutable_GetExecutable_Args) {
        // SAFETY: the executable is live.
        let loaded = unsafe { object::<Executable, _>(args.loaded_executable) };
        args.executable = handle(Executable { program: Arc::clone(&loaded.program) });
    }
    execute(args: sys::PJRT_LoadedExecutable_Execute_Args) {
        // SAFETY: the executable is live.
        let program = &unsafe { object::<Executable, _>(args.executable) }.program;
        // SAFETY: there is a list of arguments for one device, as long as the arguments say.
        let inputs = unsafe { list(*args.argument_lists, args.num_args) };
        // SAFETY: the inputs are live buffers of this plugin.
        let inputs = inputs.iter().map(|input| unsafe { object::<Buffer, _>(*input) }.known.clone());
        let results = program.run(&inputs.collect::<Vec<Known>>());
        for (index, (ty, known)) in program.results.iter().zip(results).enumerate() {
            let buffer = handle(Buffer { ty: ty.clone(), known });
            // SAFETY: the list has room for each result.
            unsafe { (*args.output_lists).add(index).write(buffer) };
        }
        if !args.device_complete_events.is_null() {
            // SAFETY: there is an event for one device.
            unsafe { args.device_complete_events.write(std::ptr::null_mut()) };
        }
    }

    buffer_destroy(args: sys::PJRT_Buffer_Destroy_Args) {
        // SAFETY: the buffer is the caller's, which gives it back.
        unsafe { destroy::<Buffer, _>(args.buffer) };
    }
    buffer_element_type(args: sys::PJRT_Buffer_ElementType_Args) {
        // SAFETY: the buffer is live.
        args.type_ = unsafe { object::<Buffer, _>(args.buffer) }.ty.element.to_raw();
    }
    buffer_dims(args: sys::PJRT_Buffer_Dimensions_Args) {
        // SAFETY: the buffer is live, and its dimensions with it.
        let dims = unsafe { &object::<Buffer, _>(args.buffer).ty.dims };
        (args.dims, args.num_dims) = (dims.as_ptr(), dims.len());
    }
    buffer_unpadded_dims(args: sys::PJRT_Buffer_UnpaddedDimensions_Args) {
        // SAFETY: as above.
        let dims = unsafe { &object::<Buffer, _>(args.buffer).ty.dims };
        (args.unpadded_dims, args.num_dims) = (dims.as_ptr(), dims.len());
    }
    buffer_size(args: sys::PJRT_Buffer_OnDeviceSizeInBytes_Args) {
        // SAFETY: the buffer is live.
        args.on_device_size_in_bytes = unsafe { object::<Buffer, _>(args.buffer) }.ty.size_bytes();
    }
    buffer_on_cpu(args: sys::PJRT_Buffer_IsOnCpu_Args) {
        args.is_on_cpu = false;
    }
    buffer_deleted(args: sys::PJRT_Buffer_IsDeleted_Args) {
        args.is_deleted = false;
    }
    buffer_ready(args: sys::PJRT_Buffer_ReadyEvent_Args) {
        args.event = std::ptr::null_mut();
    }
    buffer_read(args: sys::PJRT_Buffer_ToHostBuffer_Args) {
        // SAFETY: the buffer is live.
        let buffer = unsafe { object::<Buffer, _>(args.src) };
        let size = buffer.ty.size_bytes();
        args.event = std::ptr::null_mut();
        if args.dst.is_null() {
            args.dst_size = size;
        } else {
            if args.dst_size < size {
                return Err(invalid(format!("{} bytes of room for an array of {size}", args.dst_size)));
            }
            // SAFETY: the destination has room for the array, by the check above.
            let destination = unsafe { slice::from_raw_parts_mut(args.dst.cast::<u8>(), size) };
            let element = buffer.ty.element;
            let alike = element.write(buffer.known.number);
            for (index, place) in destination.chunks_exact_mut(alike.len()).enumerate() {
                match &buffer.known.elements {
                    Some(elements) => place.copy_from_slice(&element.write(elements[index])),
                    None => place.copy_from_slice(&alike),
                }
            }
        }
    }
    buffer_copy(args: sys::PJRT_Buffer_CopyToDevice_Args) {
        // SAFETY: the buffer is live.
        let buffer = unsafe { object::<Buffer, _>(args.buffer) };
        args.dst_buffer = handle(Buffer { ty: buffer.ty.clone(), known: buffer.known.clone() });
    }
}

fn text(text: &str) -> (*const c_char, usize) {
    (text.as_ptr().cast(), text.len())
}
