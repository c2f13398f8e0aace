//! Named values: options and attributes.

use crate::api::{Struct, slice, string};
use crate::sys;

/// The value of an option or an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A 64-bit integer.
    Int(i64),
    /// A truth value.
    Bool(bool),
    /// A 32-bit float.
    Float(f32),
    /// Text.
    Str(String),
    /// A list of 64-bit integers.
    Ints(Vec<i64>),
}

impl Value {
    /// The value as a C struct, which borrows the name and the value.
    fn to_raw(&self, name: &str) -> sys::PJRT_NamedValue {
        let mut raw =
            sys::PJRT_NamedValue { name: name.as_ptr().cast(), name_size: name.len(), value_size: 1, ..Struct::new() };
        let union = &mut raw.__bindgen_anon_1;
        raw.type_ = match self {
            Self::Int(value) => {
                union.int64_value = *value;
                sys::PJRT_NamedValue_kInt64
            }
            Self::Bool(value) => {
                union.bool_value = *value;
                sys::PJRT_NamedValue_kBool
            }
            Self::Float(value) => {
                union.float_value = *value;
                sys::PJRT_NamedValue_kFloat
            }
            Self::Str(value) => {
                union.string_value = value.as_ptr().cast();
                raw.value_size = value.len();
                sys::PJRT_NamedValue_kString
            }
            Self::Ints(value) => {
                union.int64_array_value = value.as_ptr();
                raw.value_size = value.len();
                sys::PJRT_NamedValue_kInt64List
            }
        };
        raw
    }

    /// A list of options as C structs, which borrow from it.
    pub(crate) fn to_raw_list(options: &[(&str, Self)]) -> Vec<sys::PJRT_NamedValue> {
        options.iter().map(|(name, value)| value.to_raw(name)).collect()
    }

    /// Copies a plugin's list. Values of kinds unknown to this crate are skipped.
    ///
    /// # Safety
    /// `values` points to `count` named values that live for the length of the call.
    pub(crate) unsafe fn read_list(values: *const sys::PJRT_NamedValue, count: usize) -> Vec<(String, Self)> {
        // SAFETY: guaranteed by the caller.
        unsafe { slice(values, count) }
            .iter()
            .filter_map(|raw| {
                let union = &raw.__bindgen_anon_1;
                // SAFETY: `type_` says which member is set, and `value_size` how long it is.
                let value = unsafe {
                    match raw.type_ {
                        sys::PJRT_NamedValue_kInt64 => Self::Int(union.int64_value),
                        sys::PJRT_NamedValue_kBool => Self::Bool(union.bool_value),
                        sys::PJRT_NamedValue_kFloat => Self::Float(union.float_value),
                        sys::PJRT_NamedValue_kString => Self::Str(string(union.string_value, raw.value_size)),
                        sys::PJRT_NamedValue_kInt64List => {
                            Self::Ints(slice(union.int64_array_value, raw.value_size).to_vec())
                        }
                        _ => return None,
                    }
                };
                // SAFETY: the name lives as long as the value does.
                Some((unsafe { string(raw.name, raw.name_size) }, value))
            })
            .collect()
    }
}
