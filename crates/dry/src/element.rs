//! Types of elements: between numbers, bytes, and the names that programs have for them.

use pjrt::sys;

/// The type of a buffer's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    Bool,
    Signed(u32),
    Unsigned(u32),
    Float(u32),
    BFloat16,
    /// The width of both parts together.
    Complex(u32),
}

const RAW: [(Element, sys::PJRT_Buffer_Type); 15] = [
    (Element::Bool, sys::PJRT_Buffer_Type_PRED),
    (Element::Signed(8), sys::PJRT_Buffer_Type_S8),
    (Element::Signed(16), sys::PJRT_Buffer_Type_S16),
    (Element::Signed(32), sys::PJRT_Buffer_Type_S32),
    (Element::Signed(64), sys::PJRT_Buffer_Type_S64),
    (Element::Unsigned(8), sys::PJRT_Buffer_Type_U8),
    (Element::Unsigned(16), sys::PJRT_Buffer_Type_U16),
    (Element::Unsigned(32), sys::PJRT_Buffer_Type_U32),
    (Element::Unsigned(64), sys::PJRT_Buffer_Type_U64),
    (Element::Float(16), sys::PJRT_Buffer_Type_F16),
    (Element::Float(32), sys::PJRT_Buffer_Type_F32),
    (Element::Float(64), sys::PJRT_Buffer_Type_F64),
    (Element::BFloat16, sys::PJRT_Buffer_Type_BF16),
    (Element::Complex(64), sys::PJRT_Buffer_Type_C64),
    (Element::Complex(128), sys::PJRT_Buffer_Type_C128),
];

impl Element {
    /// The type of a name in a program, such as `f32`.
    pub fn from_name(name: &str) -> Option<Element> {
        Some(match name {
            "i1" => Element::Bool,
            "bf16" => Element::BFloat16,
            "complex<f32>" => Element::Complex(64),
            "complex<f64>" => Element::Complex(128),
            _ => {
                let (kind, bits) =
                    name.split_at_checked(name.len() - name.trim_start_matches(['u', 'i', 'f']).len())?;
                let bits = bits.parse().ok()?;
                match kind {
                    "i" => Element::Signed(bits),
                    "ui" => Element::Unsigned(bits),
                    "f" => Element::Float(bits),
                    _ => return None,
                }
            }
        })
    }

    pub fn from_raw(raw: sys::PJRT_Buffer_Type) -> Option<Element> {
        RAW.into_iter().find_map(|(element, known)| (known == raw).then_some(element))
    }

    pub fn to_raw(self) -> sys::PJRT_Buffer_Type {
        let found = RAW.into_iter().find_map(|(element, raw)| (element == self).then_some(raw));
        found.unwrap_or(sys::PJRT_Buffer_Type_INVALID)
    }

    /// The bytes of an element.
    pub fn size(self) -> usize {
        match self {
            Element::Bool => 1,
            Element::BFloat16 => 2,
            Element::Signed(bits) | Element::Unsigned(bits) | Element::Float(bits) | Element::Complex(bits) => {
                bits as usize / 8
            }
        }
    }

    /// The element in the first bytes of host memory.
    pub fn read(self, bytes: &[u8]) -> f64 {
        let word = |size: usize| {
            let mut word = [0; 8];
            word[..size].copy_from_slice(&bytes[..size]);
            u64::from_le_bytes(word)
        };
        match self {
            Element::Bool => f64::from(u8::from(bytes[0] != 0)),
            Element::BFloat16 => half::bf16::from_bits(word(2) as u16).to_f64(),
            Element::Float(16) => half::f16::from_bits(word(2) as u16).to_f64(),
            Element::Float(32) | Element::Complex(64) => f32::from_bits(word(4) as u32).into(),
            Element::Float(_) | Element::Complex(_) => f64::from_bits(word(8)),
            Element::Unsigned(bits) => word(bits as usize / 8) as f64,
            Element::Signed(bits) => ((word(bits as usize / 8) << (64 - bits)) as i64 >> (64 - bits)) as f64,
        }
    }

    /// The bytes of an element that is `number`; of a complex one, the imaginary part is 0.
    pub fn write(self, number: f64) -> Vec<u8> {
        match self {
            Element::Bool => vec![u8::from(number != 0.0)],
            Element::BFloat16 => half::bf16::from_f64(number).to_le_bytes().to_vec(),
            Element::Float(16) => half::f16::from_f64(number).to_le_bytes().to_vec(),
            Element::Float(32) => (number as f32).to_le_bytes().to_vec(),
            Element::Float(_) => number.to_le_bytes().to_vec(),
            Element::Complex(64) => [(number as f32).to_le_bytes(), [0; 4]].concat(),
            Element::Complex(_) => [number.to_le_bytes(), [0; 8]].concat(),
            Element::Signed(bits) => (number as i64).to_le_bytes()[..bits as usize / 8].to_vec(),
            Element::Unsigned(bits) => (number as u64).to_le_bytes()[..bits as usize / 8].to_vec(),
        }
    }

    pub fn is_float(self) -> bool {
        matches!(self, Element::Float(_) | Element::BFloat16 | Element::Complex(_))
    }
}
