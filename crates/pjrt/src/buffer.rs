//! Buffers: arrays on a device.

use std::borrow::Borrow;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, PoisonError};

use crate::api::{Api, Arguments, Struct, slice};
use crate::client::{Client, ClientInner, byte_size, null};
use crate::error::{Code, Error, Result};
use crate::event::Event;
use crate::sys;

/// An array on a device, which may still be being computed. Dropping it frees the memory once nothing uses it.
pub struct Buffer {
    raw: NonNull<sys::PJRT_Buffer>,
    pub(crate) client: Arc<ClientInner>,
    /// Held while the external reference count changes: plugins keep it in a list without a lock.
    references: Mutex<()>,
}

// SAFETY: PJRT functions may be called on a buffer from any thread.
unsafe impl Send for Buffer {}
// SAFETY: see above.
unsafe impl Sync for Buffer {}

impl Drop for Buffer {
    #[inline]
    fn drop(&mut self) {
        let mut arguments = sys::PJRT_Buffer_Destroy_Args { buffer: self.raw.as_ptr(), ..Struct::new() };
        // SAFETY: the buffer is ours and not used again. An error cannot be reported here.
        let _ = unsafe { self.client.api.call(&mut arguments) };
    }
}

impl Buffer {
    /// # Safety
    /// `raw` is null, or a live buffer of this client without another owner.
    #[inline]
    pub(crate) unsafe fn from_raw(client: &Arc<ClientInner>, raw: *mut sys::PJRT_Buffer) -> Result<Self> {
        let raw = NonNull::new(raw).ok_or_else(|| null("PJRT_Buffer"))?;
        Ok(Self { raw, client: Arc::clone(client), references: Mutex::new(()) })
    }

    /// The handle, for a plugin that is part of this library.
    #[inline]
    pub fn as_raw(&self) -> *mut sys::PJRT_Buffer {
        self.raw.as_ptr()
    }

    /// Calls a function whose argument struct contains this buffer as its only pointer.
    ///
    /// # Safety
    /// `arguments` contains no other pointer except null pointers that the header allows.
    #[inline]
    unsafe fn call<A: Arguments>(&self, mut arguments: A) -> Result<A> {
        // SAFETY: the buffer is live, and the caller guarantees the rest.
        unsafe { self.client.api.call(&mut arguments) }?;
        Ok(arguments)
    }

    fn api(&self) -> Api {
        self.client.api
    }

    /// The client that owns this buffer.
    pub fn client(&self) -> Client {
        Client { inner: Arc::clone(&self.client) }
    }

    /// The event of its computation; `None` if the plugin gives none, because the array is there.
    ///
    /// # Errors
    /// If the plugin does not provide it.
    pub fn ready_event(&self) -> Result<Option<Event>> {
        // SAFETY: the buffer is the only pointer in the struct.
        let arguments =
            unsafe { self.call(sys::PJRT_Buffer_ReadyEvent_Args { buffer: self.as_raw(), ..Struct::new() }) }?;
        // SAFETY: the event is new and ours.
        Ok(unsafe { Event::from_raw(self.api(), arguments.event) })
    }

    /// Waits until the array is computed.
    ///
    /// # Errors
    /// The error of its computation. Usually `InvalidArgument` if the buffer was donated.
    pub fn ready(&self) -> Result<()> {
        self.ready_event()?.map_or(Ok(()), |event| event.wait())
    }

    /// Whether the array is computed, or its computation has failed.
    ///
    /// # Errors
    /// If the plugin does not provide it.
    pub fn is_ready(&self) -> Result<bool> {
        self.ready_event()?.map_or(Ok(true), |event| event.is_ready())
    }

    /// Copies the array into `out`, dense and row-major. Waits until it is computed.
    ///
    /// A plugin may ignore the requested layout. The CPU plugin does; its arrays are row-major unless a program
    /// requests another layout.
    ///
    /// # Errors
    /// The error of its computation, or `InvalidArgument` where `out` is not [`Buffer::host_bytes`] long.
    pub fn to_host(&self, out: &mut [u8]) -> Result<()> {
        if self.read_in_place(out)? {
            return Ok(());
        }
        self.copy_to_host(|size| {
            if out.len() == size {
                return Ok(out.as_mut_ptr());
            }
            Err(Error::invalid(
                "PJRT_Buffer_ToHostBuffer",
                format!("{} bytes of room for an array of {size}", out.len()),
            ))
        })
        .map(drop)
    }

    /// Bytes of the array on the host, dense. Only waits if its shape is not known before it is computed.
    ///
    /// # Errors
    /// If the buffer was donated, or the plugin cannot say.
    pub fn host_bytes(&self) -> Result<usize> {
        self.copy_to_host(|_| Ok(ptr::null_mut()))
    }

    /// Copies memory that this process can read, without the plugin's threads, which take forty times as long for a
    /// small array. Returns false and copies nothing if that is impossible.
    fn read_in_place(&self, out: &mut [u8]) -> Result<bool> {
        let Some(memory) = HostMemory::of(self, out.len())? else { return Ok(false) };
        // SAFETY: the memory is as long as `out`, and complete.
        unsafe { ptr::copy_nonoverlapping(memory.address().cast_const(), out.as_mut_ptr(), out.len()) };
        Ok(true)
    }

    /// Whether the array is in this process's memory, dense and row-major, with exactly this many bytes.
    fn is_plain_memory(&self, size: usize) -> Result<bool> {
        // SAFETY: the buffer is the only pointer in the struct.
        let on_cpu = unsafe { self.call(sys::PJRT_Buffer_IsOnCpu_Args { buffer: self.as_raw(), ..Struct::new() }) }?;
        Ok(size != 0
            && on_cpu.is_on_cpu
            && byte_size(self.element_type()?, self.raw_dims()?) == Some(size)
            // An array whose shape is only known at run time has its sizes in its memory too.
            && self.device_bytes()? == size
            && self.is_row_major()?)
    }

    fn is_row_major(&self) -> Result<bool> {
        // SAFETY: the buffer is the only pointer in the struct.
        let layout =
            unsafe { self.call(sys::PJRT_Buffer_GetMemoryLayout_Args { buffer: self.as_raw(), ..Struct::new() }) }?
                .layout;
        if layout.type_ != sys::PJRT_Buffer_MemoryLayout_Type_Tiled {
            return Ok(false);
        }
        // SAFETY: the type says that this member is set.
        let tiled = unsafe { layout.__bindgen_anon_1.tiled };
        // SAFETY: the layout lives as long as the buffer.
        let minor_to_major = unsafe { slice(tiled.minor_to_major, tiled.minor_to_major_size) };
        let descending = minor_to_major.iter().rev().zip(0..).all(|(dim, place)| *dim == place);
        Ok(tiled.num_tiles == 0 && descending)
    }

    /// Copies to the memory that `destination` returns for the size. A null pointer only requests the size.
    fn copy_to_host(&self, destination: impl FnOnce(usize) -> Result<*mut u8>) -> Result<usize> {
        // The device may use another layout, so request row-major: the last dimension varies fastest.
        let rank = self.raw_dims()?.len();
        let mut inline = [0; 16];
        let mut spill;
        let minor_to_major: &mut [i64] = if rank <= inline.len() {
            &mut inline[..rank]
        } else {
            spill = vec![0; rank];
            &mut spill
        };
        for (position, dim) in minor_to_major.iter_mut().rev().enumerate() {
            *dim = position as i64;
        }
        let mut layout =
            sys::PJRT_Buffer_MemoryLayout { type_: sys::PJRT_Buffer_MemoryLayout_Type_Tiled, ..Struct::new() };
        layout.__bindgen_anon_1.tiled = sys::PJRT_Buffer_MemoryLayout_Tiled {
            minor_to_major: minor_to_major.as_ptr(),
            minor_to_major_size: minor_to_major.len(),
            ..Struct::new()
        };
        let mut arguments =
            sys::PJRT_Buffer_ToHostBuffer_Args { src: self.as_raw(), host_layout: &mut layout, ..Struct::new() };
        // SAFETY: the buffer and the layout are live. Without a destination, this requests the size.
        unsafe { self.api().call(&mut arguments) }?;
        let size = arguments.dst_size;
        let destination = destination(size)?;
        if destination.is_null() {
            return Ok(size);
        }
        if size == 0 {
            // Nothing to copy. Waiting for an empty copy crashes some plugins.
            self.ready()?;
            return Ok(0);
        }
        arguments.dst = destination.cast();
        // SAFETY: the destination has room for `size` bytes until the event has been awaited.
        unsafe { self.api().call(&mut arguments) }?;
        // SAFETY: the event is new and ours.
        if let Some(event) = unsafe { Event::from_raw(self.api(), arguments.event) } {
            event.wait()?;
        }
        Ok(size)
    }

    /// The type of the elements.
    ///
    /// # Errors
    /// `Unimplemented` where [`ElementType`] does not have it.
    pub fn element_type(&self) -> Result<ElementType> {
        // SAFETY: the buffer is the only pointer in the struct.
        let arguments =
            unsafe { self.call(sys::PJRT_Buffer_ElementType_Args { buffer: self.as_raw(), ..Struct::new() }) }?;
        ElementType::from_raw(arguments.type_).ok_or_else(|| {
            Error::new(
                "PJRT_Buffer_ElementType",
                Code::Unimplemented,
                format!("element type {} is not supported", arguments.type_),
            )
        })
    }

    fn raw_dims(&self) -> Result<&[i64]> {
        // SAFETY: the buffer is the only pointer in the struct.
        let arguments =
            unsafe { self.call(sys::PJRT_Buffer_Dimensions_Args { buffer: self.as_raw(), ..Struct::new() }) }?;
        // SAFETY: the dimensions live as long as the buffer.
        Ok(unsafe { slice(arguments.dims, arguments.num_dims) })
    }

    /// The size of each dimension. For sizes that are only known at run time, the upper bound.
    ///
    /// # Errors
    /// If the plugin does not provide it.
    pub fn dims(&self) -> Result<Vec<i64>> {
        self.raw_dims().map(<[i64]>::to_vec)
    }

    /// The actual size of each dimension. Waits if it is only known at run time.
    ///
    /// # Errors
    /// If the plugin does not provide it.
    pub fn unpadded_dims(&self) -> Result<Vec<i64>> {
        // SAFETY: the buffer is the only pointer in the struct.
        let arguments =
            unsafe { self.call(sys::PJRT_Buffer_UnpaddedDimensions_Args { buffer: self.as_raw(), ..Struct::new() }) }?;
        // SAFETY: the dimensions live as long as the buffer.
        Ok(unsafe { slice(arguments.unpadded_dims, arguments.num_dims) }.to_vec())
    }

    /// Bytes on the device, padding included.
    ///
    /// # Errors
    /// If the buffer was donated, or the plugin cannot say.
    pub fn device_bytes(&self) -> Result<usize> {
        // SAFETY: the buffer is the only pointer in the struct.
        let arguments =
            unsafe { self.call(sys::PJRT_Buffer_OnDeviceSizeInBytes_Args { buffer: self.as_raw(), ..Struct::new() }) }?;
        Ok(arguments.on_device_size_in_bytes)
    }

    /// Whether the buffer was donated to a program. True if the plugin does not tell.
    pub fn is_deleted(&self) -> bool {
        // SAFETY: the buffer is the only pointer in the struct.
        let arguments =
            unsafe { self.call(sys::PJRT_Buffer_IsDeleted_Args { buffer: self.as_raw(), ..Struct::new() }) };
        arguments.map_or(true, |arguments| arguments.is_deleted)
    }

    /// Copies to another device of this client, by its index. Does not wait.
    ///
    /// # Errors
    /// If there is no such device, it is the one that the buffer is on, or its memory is exhausted.
    pub fn copy_to_device(&self, device: usize) -> Result<Self> {
        let mut arguments = sys::PJRT_Buffer_CopyToDevice_Args {
            buffer: self.as_raw(),
            dst_device: self.client.device(device, "PJRT_Buffer_CopyToDevice")?,
            ..Struct::new()
        };
        // SAFETY: the buffer and the device are live.
        unsafe { self.api().call(&mut arguments) }?;
        // SAFETY: the copy is new and ours.
        unsafe { Self::from_raw(&self.client, arguments.dst_buffer) }
    }

    /// The address of the memory, in the device's own terms. It is invalid after the buffer is dropped or donated.
    /// May wait until the array is computed.
    ///
    /// # Errors
    /// If the plugin does not tell.
    pub fn unsafe_pointer(&self) -> Result<usize> {
        // SAFETY: the buffer is the only pointer in the struct.
        let arguments =
            unsafe { self.call(sys::PJRT_Buffer_UnsafePointer_Args { buffer: self.as_raw(), ..Struct::new() }) }?;
        Ok(arguments.buffer_pointer)
    }
}

/// The memory of an array that this process can access. It is not moved until this value is dropped.
pub struct HostMemory<B: Borrow<Buffer>> {
    buffer: B,
    address: usize,
}

impl<B: Borrow<Buffer>> HostMemory<B> {
    /// Waits until the array is computed. `None` unless it is `size` bytes of this process's memory, dense and
    /// row-major.
    ///
    /// # Errors
    /// The error of its computation.
    pub fn of(buffer: B, size: usize) -> Result<Option<Self>> {
        let array = buffer.borrow();
        if !array.is_plain_memory(size).unwrap_or(false) {
            return Ok(None);
        }
        array.ready()?;
        // An external reference keeps the memory in place, even if another thread donates the buffer.
        let pinned = {
            let _held = array.references.lock().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: the buffer is the only pointer in the struct.
            unsafe {
                let buffer = array.as_raw();
                array.call(sys::PJRT_Buffer_IncreaseExternalReferenceCount_Args { buffer, ..Struct::new() })
            }
        };
        if pinned.is_err() {
            return Ok(None);
        }
        let address = array.unsafe_pointer().unwrap_or(0);
        let memory = Self { buffer, address };
        Ok((address != 0).then_some(memory))
    }

    /// The array itself.
    pub fn buffer(&self) -> &B {
        &self.buffer
    }

    /// The first byte. The caller may only write there while no program reads the array.
    pub fn address(&self) -> *mut u8 {
        self.address as *mut u8
    }
}

impl<B: Borrow<Buffer>> Drop for HostMemory<B> {
    fn drop(&mut self) {
        let array = self.buffer.borrow();
        let _held = array.references.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the buffer is the only pointer in the struct, and the count was increased for this reference.
        let _ = unsafe {
            array.call(sys::PJRT_Buffer_DecreaseExternalReferenceCount_Args { buffer: array.as_raw(), ..Struct::new() })
        };
    }
}

macro_rules! element_types {
    ($($(#[$doc:meta])* $name:ident = $constant:ident, $size:literal;)*) => {
        /// The types of elements.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum ElementType { $($(#[$doc])* $name,)* }

        impl ElementType {
            /// Every element type.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Bytes of one element.
            #[inline]
            pub const fn size_bytes(self) -> usize {
                match self { $(Self::$name => $size,)* }
            }

            #[inline]
            pub(crate) fn to_raw(self) -> sys::PJRT_Buffer_Type {
                match self { $(Self::$name => sys::$constant,)* }
            }

            pub(crate) fn from_raw(raw: sys::PJRT_Buffer_Type) -> Option<Self> {
                match raw { $(sys::$constant => Some(Self::$name),)* _ => None }
            }
        }
    };
}

element_types! {
    /// Booleans, as bytes of 0 or 1.
    Pred = PJRT_Buffer_Type_PRED, 1;
    /// 8-bit signed integers.
    S8 = PJRT_Buffer_Type_S8, 1;
    /// 16-bit signed integers.
    S16 = PJRT_Buffer_Type_S16, 2;
    /// 32-bit signed integers.
    S32 = PJRT_Buffer_Type_S32, 4;
    /// 64-bit signed integers.
    S64 = PJRT_Buffer_Type_S64, 8;
    /// 8-bit unsigned integers.
    U8 = PJRT_Buffer_Type_U8, 1;
    /// 16-bit unsigned integers.
    U16 = PJRT_Buffer_Type_U16, 2;
    /// 32-bit unsigned integers.
    U32 = PJRT_Buffer_Type_U32, 4;
    /// 64-bit unsigned integers.
    U64 = PJRT_Buffer_Type_U64, 8;
    /// 4 bits of exponent and 3 of mantissa, finite, with one NaN of each sign.
    F8E4M3FN = PJRT_Buffer_Type_F8E4M3FN, 1;
    /// 5 bits of exponent and 2 of mantissa, with infinities.
    F8E5M2 = PJRT_Buffer_Type_F8E5M2, 1;
    /// 4 bits of exponent and 3 of mantissa, without a negative zero, which is NaN.
    F8E4M3FNUZ = PJRT_Buffer_Type_F8E4M3FNUZ, 1;
    /// 5 bits of exponent and 2 of mantissa, without a negative zero, which is NaN.
    F8E5M2FNUZ = PJRT_Buffer_Type_F8E5M2FNUZ, 1;
    /// IEEE half precision.
    F16 = PJRT_Buffer_Type_F16, 2;
    /// The upper half of IEEE single precision.
    BF16 = PJRT_Buffer_Type_BF16, 2;
    /// IEEE single precision.
    F32 = PJRT_Buffer_Type_F32, 4;
    /// IEEE double precision.
    F64 = PJRT_Buffer_Type_F64, 8;
    /// Pairs of `F32`, the real part first.
    C64 = PJRT_Buffer_Type_C64, 8;
    /// Pairs of `F64`, the real part first.
    C128 = PJRT_Buffer_Type_C128, 16;
}
