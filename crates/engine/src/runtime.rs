//! The open plugin: uploads, numbers as buffers, compilation, and what is in flight.

use std::sync::{Arc, Weak};

use pjrt::{Buffer, CompileOptions, ElementType, LoadedExecutable};
use rustc_hash::FxHashMap;
use stablehlo::{DType, Number};

use crate::error::Result;
use crate::platform::{self, Platform};

/// How many number buffers are kept for reuse.
const SCALAR_CACHE: usize = 4096;

/// How many buffers are remembered as in flight before those that are done get forgotten.
const IN_FLIGHT: usize = 512;

pub(crate) struct Runtime {
    pub platform: Platform,
    scalars: FxHashMap<(usize, DType, [u8; 16]), Arc<Buffer>>,
    in_flight: Vec<Vec<Weak<Buffer>>>,
}

impl Runtime {
    pub fn open() -> Result<Runtime> {
        let platform = platform::open()?;
        let devices = platform.devices.len();
        Ok(Runtime { platform, scalars: FxHashMap::default(), in_flight: vec![Vec::new(); devices] })
    }

    pub fn upload(&mut self, device: usize, data: &[u8], dtype: DType, dims: &[i64]) -> Result<Arc<Buffer>> {
        let buffer = self.platform.client.buffer_from_host(data, element_type(dtype), dims, device)?;
        Ok(Arc::new(buffer))
    }

    /// A 0-d buffer that holds `number` as `dtype`. Programs never write to it: it is shared.
    pub fn scalar(&mut self, device: usize, number: Number, dtype: DType) -> Result<Arc<Buffer>> {
        let bytes = encode(number, dtype);
        if let Some(buffer) = self.scalars.get(&(device, dtype, bytes)) {
            return Ok(Arc::clone(buffer));
        }
        if self.scalars.len() >= SCALAR_CACHE {
            self.scalars.clear();
        }
        let buffer = self.upload(device, &bytes[..dtype.size_bytes()], dtype, &[])?;
        self.scalars.insert((device, dtype, bytes), Arc::clone(&buffer));
        Ok(buffer)
    }

    /// `flags` are XLA's, for this program alone.
    pub fn compile(&self, program: &str, flags: &[(String, pjrt::Value)]) -> Result<LoadedExecutable> {
        let mut options = CompileOptions::default();
        if self.platform.kind == platform::Kind::Cpu {
            // XLA's quick maximum and minimum lose a NaN that stands on the right.
            options.overrides.push(("xla_cpu_enable_fast_min_max".into(), pjrt::Value::Bool(false)));
        }
        options.overrides.extend_from_slice(flags);
        Ok(self.platform.client.compile(program.as_bytes(), &options)?)
    }

    /// Remembers a buffer until its program is done, for synchronisation.
    pub fn track(&mut self, device: usize, buffer: &Arc<Buffer>) {
        let list = &mut self.in_flight[device];
        if list.len() >= IN_FLIGHT {
            list.retain(|weak| weak.upgrade().is_some_and(|buffer| !buffer.is_ready().unwrap_or(true)));
            if list.len() >= IN_FLIGHT {
                // Everything is still running: what was queued first is the best to wait for.
                list.drain(..IN_FLIGHT / 2).filter_map(|weak| weak.upgrade()).for_each(|buffer| {
                    let _ = buffer.ready();
                });
            }
        }
        list.push(Arc::downgrade(buffer));
    }

    /// The buffers whose programs may still run; forgets them.
    pub fn take_in_flight(&mut self, device: usize) -> Vec<Arc<Buffer>> {
        self.in_flight[device].drain(..).filter_map(|weak| weak.upgrade()).collect()
    }

    /// The buffers whose programs may still run.
    pub fn in_flight(&self, device: usize) -> Vec<Arc<Buffer>> {
        self.in_flight[device].iter().filter_map(Weak::upgrade).collect()
    }

    pub fn clear_caches(&mut self) {
        self.scalars.clear();
    }
}

pub(crate) fn element_type(dtype: DType) -> ElementType {
    match dtype {
        DType::Bool => ElementType::Pred,
        DType::U8 => ElementType::U8,
        DType::U16 => ElementType::U16,
        DType::U32 => ElementType::U32,
        DType::U64 => ElementType::U64,
        DType::I8 => ElementType::S8,
        DType::I16 => ElementType::S16,
        DType::I32 => ElementType::S32,
        DType::I64 => ElementType::S64,
        DType::F16 => ElementType::F16,
        DType::BF16 => ElementType::BF16,
        DType::F32 => ElementType::F32,
        DType::F64 => ElementType::F64,
        DType::C64 => ElementType::C64,
        DType::C128 => ElementType::C128,
    }
}

/// A number's bytes as `dtype`, converted as a C cast does.
fn encode(number: Number, dtype: DType) -> [u8; 16] {
    let mut bytes = [0; 16];
    let mut put = |source: &[u8]| bytes[..source.len()].copy_from_slice(source);
    match dtype {
        DType::Bool => put(&[u8::from(!number.is_zero())]),
        DType::F16 => put(&half::f16::from_f64(number.to_f64()).to_ne_bytes()),
        DType::BF16 => put(&half::bf16::from_f64(number.to_f64()).to_ne_bytes()),
        DType::F32 => put(&(number.to_f64() as f32).to_ne_bytes()),
        DType::F64 => put(&number.to_f64().to_ne_bytes()),
        DType::C64 | DType::C128 => {
            let (re, im) = match number {
                Number::Complex(re, im) => (re, im),
                other => (other.to_f64(), 0.0),
            };
            if dtype == DType::C64 {
                put(&[(re as f32).to_ne_bytes(), (im as f32).to_ne_bytes()].concat());
            } else {
                put(&[re.to_ne_bytes(), im.to_ne_bytes()].concat());
            }
        }
        // Truncation to the low bytes is C's cast between integers.
        _ => put(&number.to_i64().to_le_bytes()[..dtype.size_bytes()]),
    }
    bytes
}
