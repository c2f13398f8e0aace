//! The arguments of a call in the C ABI (`csrc/abi.h`).

use std::ffi::c_void;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::{fmt, ptr, slice};

pub use abi::{Generator, Meta, Tag};
use stablehlo::{DType, Number, Type};

use crate::error::{Error, ErrorKind, Result};
use crate::memory;
use crate::placement::Placement;
use crate::storage::Storage;

/// A strided view of a storage.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct TensorArg(abi::Tensor);

impl Deref for TensorArg {
    type Target = abi::Tensor;

    fn deref(&self) -> &abi::Tensor {
        &self.0
    }
}

impl TensorArg {
    /// This tensor with other sizes of the same rank, which must outlive it.
    pub(crate) fn with_sizes(&self, sizes: &[i64]) -> TensorArg {
        TensorArg(abi::Tensor { sizes: sizes.as_ptr(), ..self.0 })
    }

    /// A view made by the engine. `sizes` and `strides` must outlive it.
    pub(crate) fn new(storage: &Storage, sizes: &[i64], strides: &[i64], offset: i64, dtype: DType) -> TensorArg {
        TensorArg(abi::Tensor {
            storage: ptr::from_ref(storage).cast_mut().cast(),
            sizes: sizes.as_ptr(),
            strides: strides.as_ptr(),
            offset,
            ndim: sizes.len() as i32,
            dtype: scalar_type(dtype),
            is_conj: 0,
            is_neg: 0,
        })
    }

    /// Whether the tensor shows the conjugated or negated value of its storage.
    pub fn is_lazy(&self) -> bool {
        self.is_conj != 0 || self.is_neg != 0
    }

    pub fn storage(&self) -> &Storage {
        // SAFETY: the ABI promises the context of a live DataPtr of this backend, which is a Storage.
        unsafe { &*self.storage.cast::<Storage>() }
    }

    pub fn sizes(&self) -> &[i64] {
        // SAFETY: the ABI promises `ndim` sizes that live as long as the call.
        unsafe { slice_of(self.0.sizes, self.ndim as usize) }
    }

    pub fn strides(&self) -> &[i64] {
        // SAFETY: as for the sizes.
        unsafe { slice_of(self.0.strides, self.ndim as usize) }
    }
}

/// One argument of a call. The C++ side creates it, and keeps what it points to alive during the call.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Arg(abi::Arg);

impl Deref for Arg {
    type Target = abi::Arg;

    fn deref(&self) -> &abi::Arg {
        &self.0
    }
}

impl Arg {
    pub(crate) fn of_tensor(tensor: TensorArg) -> Arg {
        let payload = abi::ArgPayload { tensor: tensor.0 };
        Arg(abi::Arg { tag: Tag::Tensor, dtype: 0, wrapped: 0, length: 0, payload })
    }

    /// The same argument with other elements, which must outlive it.
    pub(crate) fn with_list(&self, items: &[Arg]) -> Arg {
        let payload = abi::ArgPayload { p: items.as_ptr().cast() };
        Arg(abi::Arg { length: items.len() as _, payload, ..self.0 })
    }

    pub fn tensor(&self) -> &TensorArg {
        debug_assert_eq!(self.tag, Tag::Tensor);
        // SAFETY: the tag says which member is set, and `TensorArg` has the layout of the type that it wraps.
        unsafe { &*ptr::from_ref(&self.payload.tensor).cast::<TensorArg>() }
    }

    /// The eight bytes of an int, a float or a bool.
    pub fn bits(&self) -> u64 {
        // SAFETY: every member starts with eight initialised bytes.
        unsafe { self.payload.i as u64 }
    }

    pub fn int(&self) -> i64 {
        self.bits() as i64
    }

    pub fn float(&self) -> f64 {
        f64::from_bits(self.bits())
    }

    pub fn complex(&self) -> [f64; 2] {
        debug_assert!(matches!(self.tag, Tag::Complex | Tag::ScalarTensor));
        // SAFETY: both tags set both parts.
        unsafe { self.payload.c }
    }

    pub fn ints(&self) -> &[i64] {
        debug_assert_eq!(self.tag, Tag::Ints);
        // SAFETY: the tag says what `p` points to.
        unsafe { slice_of(self.payload.p.cast(), self.length as usize) }
    }

    /// The numbers of an int or of a list of ints.
    pub fn varying(&self) -> Option<&[i64]> {
        match self.tag {
            // SAFETY: the tag says that the int is set.
            Tag::Int => Some(slice::from_ref(unsafe { &self.payload.i })),
            Tag::Ints => Some(self.ints()),
            _ => None,
        }
    }

    pub fn floats(&self) -> &[f64] {
        debug_assert_eq!(self.tag, Tag::Floats);
        // SAFETY: see above.
        unsafe { slice_of(self.payload.p.cast(), self.length as usize) }
    }

    pub fn bools(&self) -> &[u8] {
        debug_assert_eq!(self.tag, Tag::Bools);
        // SAFETY: see above.
        unsafe { slice_of(self.payload.p.cast(), self.length as usize) }
    }

    pub fn string(&self) -> &[u8] {
        debug_assert_eq!(self.tag, Tag::String);
        // SAFETY: see above.
        unsafe { slice_of(self.payload.p.cast(), self.length as usize) }
    }

    pub fn list(&self) -> &[Arg] {
        debug_assert_eq!(self.tag, Tag::List);
        // SAFETY: see above.
        unsafe { slice_of(self.payload.p.cast(), self.length as usize) }
    }

    /// The number of an argument that is one.
    pub(crate) fn number(&self) -> Number {
        match self.tag {
            Tag::Float => Number::Float(self.float()),
            Tag::Bool => Number::Bool(self.int() != 0),
            Tag::Complex => Number::Complex(self.complex()[0], self.complex()[1]),
            Tag::ScalarTensor => match dtype(self.dtype) {
                Some(dtype) if dtype.is_complex() => Number::Complex(self.complex()[0], self.complex()[1]),
                Some(dtype) if dtype.is_float() => Number::Float(self.float()),
                Some(DType::Bool) => Number::Bool(self.int() != 0),
                Some(DType::U64) if self.int() < 0 => Number::Unsigned(self.int() as u64),
                _ => Number::Int(self.int()),
            },
            _ => Number::Int(self.int()),
        }
    }

    pub fn generator(&self) -> *mut Generator {
        debug_assert_eq!(self.tag, Tag::Generator);
        // SAFETY: the tag says that `p` is the generator.
        unsafe { self.payload.p.cast_mut().cast() }
    }
}

/// The argument in an explanation: "float32[32, 128]", "3", "[1, 2]".
impl fmt::Display for Arg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.tag {
            Tag::None | Tag::Ignored => f.write_str("None"),
            Tag::Tensor => self.tensor().fmt(f),
            Tag::ScalarTensor => write!(f, "{}[] on the host", name_of(self.dtype)),
            Tag::Int => write!(f, "{}", self.int()),
            Tag::Float => write!(f, "{:?}", self.float()),
            Tag::Bool => write!(f, "{}", self.int() != 0),
            Tag::Complex => write!(f, "{:?}", self.complex()),
            Tag::String => write!(f, "{:?}", String::from_utf8_lossy(self.string())),
            Tag::Dtype => f.write_str(&name_of(self.int() as i8)),
            Tag::Ints => write!(f, "{:?}", self.ints()),
            Tag::Floats => write!(f, "{:?}", self.floats()),
            Tag::Bools => write!(f, "{:?}", self.bools()),
            Tag::List => {
                f.debug_list().entries(self.list().iter().map(|item| format_args!("{item}").to_string())).finish()
            }
            Tag::Generator => f.write_str("a generator"),
        }
    }
}

impl fmt::Display for TensorArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", name_of(self.dtype), self.sizes())?;
        if self.strides() != aten::contiguous_strides(self.sizes()) {
            write!(f, " with strides {:?}", self.strides())?;
        }
        if self.offset != 0 {
            write!(f, " at offset {}", self.offset)?;
        }
        Ok(())
    }
}

fn name_of(scalar_type: i8) -> String {
    entry(scalar_type).map_or_else(|| format!("c10::ScalarType {scalar_type}"), |(name, _)| name.to_owned())
}

/// # Safety
/// `pointer` points to `length` live values, or `length` is zero.
unsafe fn slice_of<'a, T>(pointer: *const T, length: usize) -> &'a [T] {
    if length == 0 {
        return &[];
    }
    // SAFETY: guaranteed by the caller.
    unsafe { slice::from_raw_parts(pointer, length) }
}

/// A fresh result. It owns one reference to its storage; an undefined tensor has no storage.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Out(abi::Out);

impl Deref for Out {
    type Target = abi::Out;

    fn deref(&self) -> &abi::Out {
        &self.0
    }
}

impl DerefMut for Out {
    fn deref_mut(&mut self) -> &mut abi::Out {
        &mut self.0
    }
}

impl Out {
    /// An undefined tensor.
    pub(crate) fn absent() -> Out {
        Out(abi::Out {
            storage: ptr::null_mut(),
            data: ptr::null_mut(),
            nbytes: 0,
            sizes: ptr::null(),
            strides: ptr::null(),
            offset: 0,
            ndim: 0,
            dtype: 0,
        })
    }

    /// Drops the reference to the storage. Only valid if the caller has not taken it.
    pub(crate) fn release(&self) {
        if !self.storage().is_null() {
            // SAFETY: the call stored its own reference there, and it has not been taken.
            drop(unsafe { Arc::from_raw(self.storage()) });
        }
    }

    pub(crate) fn storage(&self) -> *const Storage {
        self.0.storage.cast()
    }

    /// Stores a reference. The previous reference is not released.
    pub(crate) fn set_storage(&mut self, storage: Arc<Storage>) {
        self.0.data = storage.address() as *mut c_void;
        self.0.storage = Arc::into_raw(storage).cast_mut().cast();
    }
}

/// The type and layout of a result; `None` for an undefined tensor.
pub(crate) fn to_spec(meta: &Meta) -> Result<Option<aten::ResultSpec>> {
    let Ok(ndim) = usize::try_from(meta.ndim) else { return Ok(None) };
    // SAFETY: the ABI promises `ndim` sizes and strides that live as long as the call.
    let (sizes, strides) = unsafe { (slice_of(meta.sizes, ndim), slice_of(meta.strides, ndim)) };
    let dtype = tensor_dtype(meta.dtype)?;
    Ok(Some(aten::ResultSpec { dtype, sizes: sizes.to_vec(), strides: strides.to_vec() }))
}

/// Checks the sizes of a call's results.
///
/// # Errors
/// Out of memory for the first that no program can compute.
pub fn check_results(placement: Placement, results: &[Meta]) -> Result<()> {
    for result in results {
        let Some(result) = to_spec(result)? else { continue };
        memory::check_result(placement, Type::new(result.dtype, &result.sizes).size_bytes())?;
    }
    Ok(())
}

/// PyTorch's names of the `c10::ScalarType`s, in the order of their numbers, and the element types. `None` if tensors of
/// this backend cannot have the type. The shim and Python use this list too.
pub const SCALAR_TYPES: [(&str, Option<DType>); 47] = [
    ("uint8", Some(DType::U8)),
    ("int8", Some(DType::I8)),
    ("int16", Some(DType::I16)),
    ("int32", Some(DType::I32)),
    ("int64", Some(DType::I64)),
    ("float16", Some(DType::F16)),
    ("float32", Some(DType::F32)),
    ("float64", Some(DType::F64)),
    ("complex32", Some(DType::C32)),
    ("complex64", Some(DType::C64)),
    ("complex128", Some(DType::C128)),
    ("bool", Some(DType::Bool)),
    ("qint8", None),
    ("quint8", None),
    ("qint32", None),
    ("bfloat16", Some(DType::BF16)),
    ("quint4x2", None),
    ("quint2x4", None),
    ("bits1x8", None),
    ("bits2x4", None),
    ("bits4x2", None),
    ("bits8", None),
    ("bits16", None),
    ("float8_e5m2", Some(DType::F8E5M2)),
    ("float8_e4m3fn", Some(DType::F8E4M3FN)),
    ("float8_e5m2fnuz", Some(DType::F8E5M2FNUZ)),
    ("float8_e4m3fnuz", Some(DType::F8E4M3FNUZ)),
    ("uint16", Some(DType::U16)),
    ("uint32", Some(DType::U32)),
    ("uint64", Some(DType::U64)),
    ("uint1", None),
    ("uint2", None),
    ("uint3", None),
    ("uint4", None),
    ("uint5", None),
    ("uint6", None),
    ("uint7", None),
    ("int1", None),
    ("int2", None),
    ("int3", None),
    ("int4", None),
    ("int5", None),
    ("int6", None),
    ("int7", None),
    ("float8_e8m0fnu", Some(DType::F8E8M0FNU)),
    ("float4_e2m1fn_x2", Some(DType::F4E2M1FNX2)),
    ("bcomplex32", None),
];

fn entry(scalar_type: i8) -> Option<(&'static str, Option<DType>)> {
    SCALAR_TYPES.get(usize::try_from(scalar_type).ok()?).copied()
}

/// The element type of a `c10::ScalarType`; `None` if tensors cannot have it.
pub fn dtype(scalar_type: i8) -> Option<DType> {
    entry(scalar_type)?.1
}

/// The element type of a `c10::ScalarType`.
///
/// # Errors
/// If tensors cannot have it.
pub fn tensor_dtype(scalar_type: i8) -> Result<DType> {
    dtype(scalar_type).ok_or_else(|| {
        let name = name_of(scalar_type);
        let supported: Vec<&str> = SCALAR_TYPES.iter().filter(|entry| entry.1.is_some()).map(|entry| entry.0).collect();
        // Not a TypeError: Python would treat it as an unsupported operand and drop the message.
        Error::new(
            ErrorKind::NotImplemented,
            format!("tpu tensors cannot hold dtype torch.{name}: supported are {}", supported.join(", ")),
        )
    })
}

/// The `c10::ScalarType` of an element type.
pub fn scalar_type(dtype: DType) -> i8 {
    SCALAR_TYPES.iter().position(|entry| entry.1 == Some(dtype)).map_or(-1, |number| number as i8)
}
