//! Between the host and the devices: uploads, downloads, resizing, waiting.

use std::any::Any;
use std::sync::Arc;

use stablehlo::{DType, Type};

use crate::bounded::copy_padded_to_host;
use crate::call::{self, Arg, TensorArg};
use crate::checks::look_at_answers;
use crate::engine::{Engine, Mode, lock};
use crate::error::{Error, Result};
use crate::explain::{Reason, Waiting};
use crate::record::BEAT_CHUNK;
use crate::runtime::element_type;
use crate::storage::{Storage, Value, ValueState};

impl Engine {
    /// Writes dense row-major host data into a tensor. With an `owner`, the data is borrowed until the
    /// owner is dropped.
    ///
    /// # Safety
    /// `data` points to as many bytes as the tensor has; with an owner, until that is dropped.
    pub unsafe fn copy_from_host(
        &mut self,
        destination: &TensorArg,
        data: *const u8,
        owner: Option<Box<dyn Any + Send>>,
    ) -> Result<()> {
        let ty = type_of(destination)?;
        if ty.numel() == 0 {
            return Ok(());
        }
        let storage = destination.storage();
        self.runtime()?;
        let bytes = ty.size_bytes();
        let chunk = self.chunks.get_mut(storage.device);
        let reason = chunk.filter(|chunk| !chunk.is_empty()).and_then(|chunk| {
            chunk.bytes += bytes;
            match () {
                () if chunk.bytes > self.max_chunk_bytes => Some(Reason::Large),
                // A training loop uploads a batch at the start of each step: a good place to cut.
                () if chunk.nodes.len() >= BEAT_CHUNK => Some(Reason::Upload),
                () => None,
            }
        });
        if let Some(reason) = reason {
            self.flush(storage.device, reason)?;
        }
        let runtime = self.runtime()?;
        let buffer = match owner {
            Some(owner) => {
                let client = &runtime.platform.client;
                // SAFETY: by the contract above.
                unsafe { client.buffer_from_host_owned(data, element_type(ty.dtype), &ty.dims, storage.device, owner) }
                    .map(Arc::new)?
            }
            None => {
                // SAFETY: by the contract above.
                let bytes = unsafe { std::slice::from_raw_parts(data, ty.size_bytes()) };
                runtime.upload(storage.device, bytes, ty.dtype, &ty.dims)?
            }
        };
        let value = Value::new(self.types.intern(&ty), ValueState::Ready(buffer));
        if covers_densely(destination, &ty) {
            storage.set_value(Some(value));
            return Ok(());
        }
        let staged = Storage::with_value(storage.device, ty.size_bytes(), Some(value));
        let strides = aten::contiguous_strides(&ty.dims);
        let source = TensorArg::new(&staged, &ty.dims, &strides, 0, ty.dtype);
        self.copy(Arg::of_tensor(*destination), Arg::of_tensor(source), storage.device)
    }

    /// Copies a dense tensor to a dense tensor of the same type on another device.
    pub fn copy_across(&mut self, source: &TensorArg, destination: &TensorArg) -> Result<()> {
        let ty = type_of(source)?;
        if ty.numel() == 0 {
            return Ok(());
        }
        let from = source.storage();
        let staged = self.contiguous(Arg::of_tensor(*source), from.device)?;
        self.launch_all(from.device, Reason::OtherDevice)?;
        let Some(value) = staged.value() else { return Ok(()) };
        let buffer = Arc::new(value.buffer()?.copy_to_device(destination.storage().device)?);
        let to = destination.storage();
        let value = Value::new(self.types.intern(&ty), ValueState::Ready(buffer));
        let arrived = Storage::with_value(to.device, ty.size_bytes(), Some(value));
        let strides = aten::contiguous_strides(&ty.dims);
        let arrived_tensor = TensorArg::new(&arrived, &ty.dims, &strides, 0, ty.dtype);
        self.copy(Arg::of_tensor(*destination), Arg::of_tensor(arrived_tensor), to.device)
    }

    /// Gives a storage another size, keeping the bytes that both sizes have.
    pub fn resize(&mut self, storage: &Storage, nbytes: usize) -> Result<()> {
        self.unpad_storage(storage)?;
        let Some(old) = storage.value() else {
            storage.replace(nbytes, None);
            return Ok(());
        };
        let dtype = self.types.get(old.ty).dtype;
        let kept = (storage.nbytes().min(nbytes) / dtype.size_bytes()) as i64;
        if kept == 0 {
            storage.replace(nbytes, None);
            return Ok(());
        }
        let resized = Storage::new(storage.device, nbytes);
        let (sizes, strides) = ([kept], [1]);
        let view = |of: &Storage| Arg::of_tensor(TensorArg::new(of, &sizes, &strides, 0, dtype));
        self.copy(view(&resized), view(storage), storage.device)?;
        storage.replace(nbytes, resized.value());
        Ok(())
    }

    /// The buffer behind a tensor, dense and row-major, after a flush of its device.
    fn download(&mut self, source: &TensorArg, ty: &Type) -> Result<Option<Arc<pjrt::Buffer>>> {
        let storage = source.storage();
        self.unpad_storage(storage)?;
        let (value, base) = match storage.value() {
            Some(value) => {
                let base = self.types.get(value.ty).clone();
                (value, base)
            }
            None => return Ok(None),
        };
        let direct = source.offset == 0
            && !source.is_lazy()
            && base.dtype == ty.dtype
            && base.numel() == ty.numel()
            && source.strides() == aten::contiguous_strides(&ty.dims);
        let value = if direct {
            value
        } else {
            drop(value);
            match self.contiguous(Arg::of_tensor(*source), storage.device)?.value() {
                Some(value) => value,
                None => return Ok(None),
            }
        };
        self.launch_all(storage.device, Reason::Read)?;
        value.buffer().map(Some)
    }
}

/// Waits for a tensor's value and copies it out, dense and row-major.
///
/// # Errors
/// Where the value could not be computed, or something was wrong with the data of a program before it.
pub fn copy_to_host(source: &TensorArg, out: &mut [u8]) -> Result<()> {
    read_to_host(source, out)?;
    look_at_answers(source.storage().device)
}

fn read_to_host(source: &TensorArg, out: &mut [u8]) -> Result<()> {
    let ty = type_of(source)?;
    if ty.size_bytes() != out.len() {
        return Err(Error::runtime(format!("a tensor of {} bytes does not fit into {}", ty.size_bytes(), out.len())));
    }
    if out.is_empty() {
        return Ok(());
    }
    if copy_padded_to_host(source, out)? {
        return Ok(());
    }
    // The lock is not held while waiting: other threads go on.
    let (buffer, waiting) = {
        let mut engine = lock()?;
        let waiting = Waiting::begin(&engine, Reason::Read);
        (engine.download(source, &ty)?, waiting)
    };
    match buffer {
        Some(buffer) => {
            let read = buffer.to_host(out);
            if let Some(waiting) = waiting {
                waiting.end();
            }
            Ok(read?)
        }
        None => {
            out.fill(0);
            Ok(())
        }
    }
}

/// Runs what is recorded and waits for everything on a device, or on all of them.
pub fn synchronize(device: Option<usize>) -> Result<()> {
    let (mut runs, mut result) = (Vec::new(), Ok(()));
    let devices;
    let waiting = {
        let mut engine = lock()?;
        if !engine.is_open() {
            return Ok(());
        }
        devices = match device {
            Some(device) => device..device + 1,
            None => 0..engine.chunks.len(),
        };
        let waiting = Waiting::begin(&engine, Reason::Synchronize);
        for device in devices.clone() {
            result = result.and(engine.launch_all(device, Reason::Synchronize));
            runs.extend(engine.runtime()?.take_in_flight(device));
        }
        waiting
    };
    // All of them, also behind one that failed.
    for run in runs {
        result = result.and(run.wait().map_err(Error::from));
    }
    if let Some(waiting) = waiting {
        waiting.end();
    }
    devices.fold(result, |result, device| result.and(look_at_answers(device)))
}

pub(crate) fn read_i64(value: &Value) -> Result<i64> {
    let mut bytes = [0; 8];
    value.buffer()?.to_host(&mut bytes)?;
    Ok(i64::from_ne_bytes(bytes))
}

fn type_of(tensor: &TensorArg) -> Result<Type> {
    let dtype = call::held(tensor.dtype)?;
    Ok(Type::new(dtype, tensor.sizes()))
}

/// Whether a tensor is all of its storage, row-major.
fn covers_densely(tensor: &TensorArg, ty: &Type) -> bool {
    tensor.offset == 0
        && !tensor.is_lazy()
        && tensor.storage().nbytes() == ty.size_bytes()
        && tensor.strides() == aten::contiguous_strides(&ty.dims)
}

/// "NaN" or "Inf" when the elements contain one.
pub(crate) fn first_non_finite(bytes: &[u8], dtype: DType) -> Option<&'static str> {
    let judge = |x: f64| match x {
        x if x.is_nan() => Some("NaN"),
        x if x.is_infinite() => Some("Inf"),
        _ => None,
    };
    let two = |c: &[u8]| [c[0], c[1]];
    match dtype.real() {
        DType::F16 => bytes.chunks_exact(2).find_map(|c| judge(half::f16::from_ne_bytes(two(c)).to_f64())),
        DType::BF16 => bytes.chunks_exact(2).find_map(|c| judge(half::bf16::from_ne_bytes(two(c)).to_f64())),
        DType::F32 => bytes.chunks_exact(4).find_map(|c| judge(f32::from_ne_bytes([c[0], c[1], c[2], c[3]]).into())),
        _ => bytes
            .chunks_exact(8)
            .find_map(|c| judge(f64::from_ne_bytes([c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]]))),
    }
}

impl Mode {
    /// By the names that users write.
    pub fn from_name(name: &str) -> Option<Mode> {
        match name.to_ascii_lowercase().as_str() {
            "debug" => Some(Mode::Debug),
            "strict" => Some(Mode::Strict),
            "fused" => Some(Mode::Fused),
            _ => None,
        }
    }
}
