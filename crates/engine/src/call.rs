//! The arguments of a call as they cross the C ABI (`csrc/abi.h`).

use std::ffi::c_void;
use std::{fmt, slice};

use stablehlo::DType;

use crate::error::{Error, ErrorKind, Result};
use crate::storage::Storage;

/// What an argument is. The numbers are those of `TtTag`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Tag {
    None = 0,
    Tensor = 1,
    ScalarTensor = 2,
    Int = 3,
    Float = 4,
    Bool = 5,
    Complex = 6,
    String = 7,
    DType = 8,
    Ints = 9,
    Floats = 10,
    Bools = 11,
    List = 12,
    Generator = 13,
    Ignored = 14,
}

/// `TtTensor`: a strided view of a storage.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct TensorArg {
    storage: *const c_void,
    sizes: *const i64,
    strides: *const i64,
    pub offset: i64,
    ndim: i32,
    pub dtype: i8,
    pub is_conj: u8,
    pub is_neg: u8,
}

impl TensorArg {
    /// A view that the engine makes itself; `sizes` and `strides` must outlive it.
    pub(crate) fn new(storage: &Storage, sizes: &[i64], strides: &[i64], offset: i64, dtype: DType) -> TensorArg {
        TensorArg {
            storage: std::ptr::from_ref(storage).cast(),
            sizes: sizes.as_ptr(),
            strides: strides.as_ptr(),
            offset,
            ndim: sizes.len() as i32,
            dtype: scalar_type(dtype),
            is_conj: 0,
            is_neg: 0,
        }
    }

    /// Whether the tensor shows something else than what its storage holds.
    pub fn is_lazy(&self) -> bool {
        self.is_conj != 0 || self.is_neg != 0
    }

    pub fn storage(&self) -> &Storage {
        // SAFETY: the ABI promises the context of a live DataPtr of this backend, which is a Storage.
        unsafe { &*self.storage.cast::<Storage>() }
    }

    pub fn sizes(&self) -> &[i64] {
        // SAFETY: the ABI promises `ndim` sizes that live as long as the call.
        unsafe { slice_of(self.sizes, self.ndim as usize) }
    }

    pub fn strides(&self) -> &[i64] {
        // SAFETY: as for the sizes.
        unsafe { slice_of(self.strides, self.ndim as usize) }
    }
}

#[derive(Clone, Copy)]
#[repr(C)]
union Payload {
    i: i64,
    f: f64,
    c: [f64; 2],
    p: *const c_void,
    tensor: TensorArg,
}

/// `TtArg`: one argument of a call. Values of this type come from the C++ side, which keeps what they
/// point to alive during the call.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Arg {
    pub tag: Tag,
    pub dtype: i8,
    pub wrapped: u8,
    pub length: u32,
    payload: Payload,
}

impl Arg {
    pub(crate) fn none() -> Arg {
        Arg { tag: Tag::None, dtype: 0, wrapped: 0, length: 0, payload: Payload { i: 0 } }
    }

    pub(crate) fn of_tensor(tensor: TensorArg) -> Arg {
        Arg { tag: Tag::Tensor, payload: Payload { tensor }, ..Arg::none() }
    }

    pub fn tensor(&self) -> &TensorArg {
        debug_assert_eq!(self.tag, Tag::Tensor);
        // SAFETY: the tag says which member is set.
        unsafe { &self.payload.tensor }
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

    pub fn floats(&self) -> &[f64] {
        debug_assert_eq!(self.tag, Tag::Floats);
        // SAFETY: as above.
        unsafe { slice_of(self.payload.p.cast(), self.length as usize) }
    }

    pub fn bools(&self) -> &[u8] {
        debug_assert_eq!(self.tag, Tag::Bools);
        // SAFETY: as above.
        unsafe { slice_of(self.payload.p.cast(), self.length as usize) }
    }

    pub fn string(&self) -> &[u8] {
        debug_assert_eq!(self.tag, Tag::String);
        // SAFETY: as above.
        unsafe { slice_of(self.payload.p.cast(), self.length as usize) }
    }

    pub fn list(&self) -> &[Arg] {
        debug_assert_eq!(self.tag, Tag::List);
        // SAFETY: as above.
        unsafe { slice_of(self.payload.p.cast(), self.length as usize) }
    }

    pub fn generator(&self) -> *mut Generator {
        debug_assert_eq!(self.tag, Tag::Generator);
        // SAFETY: the tag says that `p` is the generator.
        unsafe { self.payload.p.cast_mut().cast() }
    }
}

/// As an explanation names it: "float32[32, 128]", "3", "[1, 2]".
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
            Tag::DType => f.write_str(&name_of(self.int() as i8)),
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
    let known = SCALAR_TYPES.iter().find(|entry| entry.0 == scalar_type);
    known.map_or_else(|| format!("c10::ScalarType {scalar_type}"), |entry| entry.1.to_owned())
}

/// # Safety
/// `pointer` points to `length` live values, or `length` is zero.
unsafe fn slice_of<'a, T>(pointer: *const T, length: usize) -> &'a [T] {
    if length == 0 {
        return &[];
    }
    // SAFETY: by the contract above.
    unsafe { slice::from_raw_parts(pointer, length) }
}

/// `TtGenerator`: Philox key and counter.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Generator {
    pub seed: u64,
    pub offset: u64,
}

/// `TtOut`: a fresh result. `storage` owns one reference; null stands for an undefined tensor.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Out {
    pub storage: *const Storage,
    pub data: usize,
    pub nbytes: usize,
    pub sizes: *const i64,
    pub strides: *const i64,
    pub offset: i64,
    pub ndim: i32,
    pub dtype: i8,
}

/// `TtMeta`: a result as PyTorch's meta kernel describes it.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Meta {
    pub sizes: *const i64,
    pub strides: *const i64,
    pub ndim: i32,
    pub dtype: i8,
}

impl Meta {
    /// `None` for an undefined result.
    pub(crate) fn to_spec(self) -> Result<Option<aten::ResultSpec>> {
        let Ok(ndim) = usize::try_from(self.ndim) else { return Ok(None) };
        // SAFETY: the ABI promises `ndim` sizes and strides that live as long as the call.
        let (sizes, strides) = unsafe { (slice_of(self.sizes, ndim), slice_of(self.strides, ndim)) };
        let dtype = held(self.dtype)?;
        Ok(Some(aten::ResultSpec { dtype, sizes: sizes.to_vec(), strides: strides.to_vec() }))
    }
}

/// The numbers that c10::ScalarType gives to element types, PyTorch's names of them, and which of them tensors can be
/// of. Everything else that tells dtypes apart, here, in the shim and in Python, asks this list.
pub const SCALAR_TYPES: [(i8, &str, Option<DType>); 23] = [
    (0, "uint8", Some(DType::U8)),
    (1, "int8", Some(DType::I8)),
    (2, "int16", Some(DType::I16)),
    (3, "int32", Some(DType::I32)),
    (4, "int64", Some(DType::I64)),
    (5, "float16", Some(DType::F16)),
    (6, "float32", Some(DType::F32)),
    (7, "float64", Some(DType::F64)),
    (8, "complex32", None),
    (9, "complex64", Some(DType::C64)),
    (10, "complex128", Some(DType::C128)),
    (11, "bool", Some(DType::Bool)),
    (12, "qint8", None),
    (13, "quint8", None),
    (14, "qint32", None),
    (15, "bfloat16", Some(DType::BF16)),
    (23, "float8_e5m2", None),
    (24, "float8_e4m3fn", None),
    (25, "float8_e5m2fnuz", None),
    (26, "float8_e4m3fnuz", None),
    (27, "uint16", Some(DType::U16)),
    (28, "uint32", Some(DType::U32)),
    (29, "uint64", Some(DType::U64)),
];

/// The element type behind a `c10::ScalarType`; `None` for those that tensors cannot be of.
pub fn dtype(scalar_type: i8) -> Option<DType> {
    SCALAR_TYPES.iter().find(|entry| entry.0 == scalar_type)?.2
}

/// The element type behind a `c10::ScalarType`.
///
/// # Errors
/// Where tensors cannot be of it.
pub fn held(scalar_type: i8) -> Result<DType> {
    dtype(scalar_type).ok_or_else(|| {
        let name = name_of(scalar_type);
        let held: Vec<&str> = SCALAR_TYPES.iter().filter(|entry| entry.2.is_some()).map(|entry| entry.1).collect();
        // Not a TypeError: Python would take that as the refusal of an operand and lose the message.
        Error::new(
            ErrorKind::NotImplemented,
            format!("tpu tensors cannot hold dtype torch.{name}: supported are {}", held.join(", ")),
        )
    })
}

/// The `c10::ScalarType` of an element type.
pub fn scalar_type(dtype: DType) -> i8 {
    SCALAR_TYPES.iter().find(|entry| entry.2 == Some(dtype)).map_or(-1, |entry| entry.0)
}
