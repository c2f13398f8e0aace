//! The generic call for all functions of the C API.

use std::mem::MaybeUninit;
use std::ptr::NonNull;

use crate::error::{Code, Error, Result};
use crate::sys;

/// A struct of the C API with a field for its own size.
///
/// # Safety
/// `SIZE` is the header's size constant, and a zeroed value is valid.
pub(crate) unsafe trait Struct: Sized {
    const SIZE: usize;

    fn set_struct_size(&mut self);

    /// All zero except for the size. The base of every struct literal.
    #[inline(always)]
    fn new() -> Self {
        // SAFETY: implementors promise that zeroes are a valid value.
        let mut value = unsafe { MaybeUninit::<Self>::zeroed().assume_init() };
        value.set_struct_size();
        value
    }
}

/// The argument struct of one function of the table.
///
/// # Safety
/// `OFFSET` is the offset of the function that takes `*mut Self` and returns `*mut PJRT_Error`.
pub(crate) unsafe trait Arguments: Struct {
    const FUNCTION: &'static str;
    const OFFSET: usize;
}

/// A plugin's function table, which lives as long as the process does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Api(NonNull<sys::PJRT_Api>);

// SAFETY: the table is never written after GetPjrtApi returned it, and PJRT functions may be called from any thread.
unsafe impl Send for Api {}
// SAFETY: see above.
unsafe impl Sync for Api {}

impl Api {
    /// # Safety
    /// `table` is what a plugin's `GetPjrtApi` returned, and the plugin is never unloaded.
    pub(crate) unsafe fn new(table: NonNull<sys::PJRT_Api>) -> Self {
        Self(table)
    }

    /// (major, minor) of the API that the plugin was built with.
    pub(crate) fn version(self) -> (i32, i32) {
        // SAFETY: the version has been in every table since the first.
        let version = unsafe { &raw const (*self.0.as_ptr()).pjrt_api_version };
        // SAFETY: see above.
        unsafe { ((*version).major_version, (*version).minor_version) }
    }

    /// The first of the plugin's extensions.
    pub(crate) fn extensions(self) -> Option<NonNull<sys::PJRT_Extension_Base>> {
        // SAFETY: the pointer has been in every table since the first.
        NonNull::new(unsafe { (*self.0.as_ptr()).extension_start })
    }

    /// The function pointer at `offset`; `None` if the plugin's table is too short or has a null pointer there.
    #[inline(always)]
    pub(crate) fn function<F: Copy>(self, offset: usize) -> Option<F> {
        const { assert!(size_of::<Option<F>>() == size_of::<usize>()) };
        // SAFETY: every table begins with its size.
        let table_size = unsafe { (*self.0.as_ptr()).struct_size };
        if offset + size_of::<Option<F>>() > table_size {
            return None;
        }
        // SAFETY: the entry is inside the table, and callers give its type.
        unsafe { self.0.as_ptr().byte_add(offset).cast::<Option<F>>().read() }
    }

    /// Calls the function that takes these arguments.
    ///
    /// # Safety
    /// Every pointer in `arguments` is valid as the header requires.
    #[inline(always)]
    pub(crate) unsafe fn call<A: Arguments>(self, arguments: &mut A) -> Result<()> {
        type Function<A> = unsafe extern "C" fn(*mut A) -> *mut sys::PJRT_Error;
        let Some(function) = self.function::<Function<A>>(A::OFFSET) else {
            return Err(missing(A::FUNCTION));
        };
        // SAFETY: the type is the one of this entry, and the caller guarantees the arguments.
        let error = unsafe { function(arguments) };
        match NonNull::new(error) {
            None => Ok(()),
            // SAFETY: the plugin has just returned this error, which has no other owner.
            Some(error) => Err(unsafe { Error::take(self, A::FUNCTION, error) }),
        }
    }
}

#[cold]
fn missing(function: &'static str) -> Error {
    Error::new(function, Code::Unimplemented, "the plugin does not have this function")
}

/// The values of a pointer and length of the C API; empty for a null pointer.
///
/// # Safety
/// A non-null `data` points to `size` values that live and do not change for `'a`.
pub(crate) unsafe fn slice<'a, T>(data: *const T, size: usize) -> &'a [T] {
    if data.is_null() || size == 0 {
        return &[];
    }
    // SAFETY: guaranteed by the caller.
    unsafe { std::slice::from_raw_parts(data, size) }
}

/// An owned copy of a string of the C API.
///
/// # Safety
/// As for [`slice`], for the length of the call.
pub(crate) unsafe fn string(data: *const std::ffi::c_char, size: usize) -> String {
    // SAFETY: guaranteed by the caller.
    let bytes = unsafe { slice(data.cast::<u8>(), size) };
    String::from_utf8_lossy(bytes).into_owned()
}
