//! The open plugin: uploads, numbers as buffers, executables, and runs in flight.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use pjrt::{Buffer, ElementType, Event};
use rustc_hash::{FxHashMap, FxHasher};
use stablehlo::{DType, Number, Type, half_pair};

use crate::cache::{Cache, Executable, Settings, Source, Urgency};
use crate::error::Result;
use crate::memory::out_of_memory;
use crate::placement::Placement;
use crate::platform::{self, Kind, Platform, host_memory, return_freed_memory};
use crate::run::collectives::Collectives;
use crate::storage::Value;

/// The number of number buffers kept for reuse.
const SCALAR_CACHE: usize = 4096;

/// The least number of bytes of a run for which free memory is looked up.
const LARGE: u64 = 64 << 20;

/// The number of runs in flight from which finished ones are dropped.
const IN_FLIGHT: usize = 512;

pub(crate) struct Runtime {
    pub platform: Arc<Platform>,
    pub cache: Arc<Cache>,
    /// Called on some thread when an executable is ready or a job of the host has finished.
    pub made: fn(),
    scalars: FxHashMap<(Placement, DType, [u8; 16]), Arc<Buffer>>,
    in_flight: Vec<Vec<Arc<Event>>>,
    collectives: Vec<Collectives>,
    /// The bytes of large runs since the last wait for all runs, on the host. The kernel counts memory only once it is
    /// written.
    unwritten: u64,
    /// The values that were donated to runs that may not be done. A plugin may wait for the run when such a buffer is
    /// dropped.
    donated: VecDeque<(Arc<Event>, Vec<Arc<Value>>)>,
    /// The number of launches on each list of devices.
    launches: FxHashMap<Vec<i64>, u16>,
}

impl Runtime {
    pub fn open(made: fn()) -> Result<Runtime> {
        let platform = Arc::new(platform::open()?);
        let devices = platform.devices.len();
        let cache = Arc::new(Cache::open(&platform, &Settings::from_environment()));
        Ok(Runtime {
            platform,
            cache,
            made,
            scalars: FxHashMap::default(),
            in_flight: vec![Vec::new(); devices],
            collectives: (0..devices).map(|_| Collectives::default()).collect(),
            unwritten: 0,
            donated: VecDeque::new(),
            launches: FxHashMap::default(),
        })
    }

    pub fn upload(&mut self, placement: Placement, data: &[u8], dtype: DType, dims: &[i64]) -> Result<Arc<Buffer>> {
        let buffer = self.platform.client.buffer_from_host(data, element_type(dtype), dims, placement.device())?;
        Ok(Arc::new(buffer))
    }

    /// Whether the device keeps the elements of an array. A dry device keeps those of small arrays only.
    pub fn keeps_elements(&self, ty: &Type) -> bool {
        !self.platform.is_dry || ty.numel() <= dry::MOST
    }

    /// A buffer with the elements that `read` returns. It is not called if the device does not keep them.
    pub fn upload_kept(
        &mut self,
        placement: Placement,
        ty: &Type,
        read: impl FnOnce() -> Result<Vec<u8>>,
    ) -> Result<Arc<Buffer>> {
        if self.keeps_elements(ty) {
            // The memory of the CPU plugin holds the elements that are read, too.
            let copies = if self.platform.kind == Kind::Cpu { 2 } else { 1 };
            self.make_room(placement, copies * ty.size_bytes() as u64)?;
            return self.upload(placement, &read()?, ty.dtype, &ty.dims);
        }
        let client = &self.platform.client;
        Ok(Arc::new(client.uninitialized_buffer(element_type(ty.dtype), &ty.dims, placement.device())?))
    }

    /// A 0-d buffer with `number` as `dtype`. It is shared, and programs never write to it.
    pub fn scalar(&mut self, placement: Placement, number: Number, dtype: DType) -> Result<Arc<Buffer>> {
        let bytes = encode(number, dtype);
        if let Some(buffer) = self.scalars.get(&(placement, dtype, bytes)) {
            return Ok(Arc::clone(buffer));
        }
        if self.scalars.len() >= SCALAR_CACHE {
            self.scalars.clear();
        }
        let buffer = self.upload(placement, &bytes[..dtype.size_bytes()], dtype, &[])?;
        self.scalars.insert((placement, dtype, bytes), Arc::clone(&buffer));
        Ok(buffer)
    }

    /// A buffer whose elements are all `number`. A few kilobytes arrive before a program for them is compiled.
    pub fn uniform(&mut self, placement: Placement, number: Number, ty: &Type) -> Result<Arc<Buffer>> {
        let data = encode(number, ty.dtype)[..ty.dtype.size_bytes()].repeat(ty.numel() as usize);
        self.upload(placement, &data, ty.dtype, &ty.dims)
    }

    /// The executable of a program, and whether it was known. If not, it is being made.
    pub fn executable(&self, source: Source) -> (Arc<Executable>, bool) {
        self.cache.executable(&self.platform, source, self.made)
    }

    /// The executable of a program, to be compiled with full effort in the background.
    pub fn executable_later(&self, source: Source, urgency: Urgency) -> Arc<Executable> {
        self.cache.executable_later(&self.platform, source, urgency, self.made)
    }

    /// The number of a launch on several devices, which is the same on all ranks: 15 bits for the devices, and 16 that
    /// count the launches on them. It is not zero.
    pub fn launch_id(&mut self, devices: &[i64]) -> i32 {
        let mut hasher = FxHasher::default();
        devices.hash(&mut hasher);
        let launches = self.launches.entry(devices.to_vec()).or_default();
        *launches = launches.checked_add(1).unwrap_or(1);
        ((hasher.finish() >> 49) as i32) << 16 | i32::from(*launches)
    }

    /// Keeps a run until it is done, for synchronization.
    pub fn track(&mut self, placement: Placement, run: Event) -> Arc<Event> {
        let runs = &mut self.in_flight[placement.device()];
        if runs.len() >= IN_FLIGHT {
            runs.retain(|run| !run.is_ready().unwrap_or(true));
            if runs.len() >= IN_FLIGHT {
                // All runs are still in flight. The runs that were queued first finish first.
                runs.drain(..IN_FLIGHT / 2).for_each(|run| {
                    let _ = run.wait();
                });
            }
        }
        let run = Arc::new(run);
        runs.push(Arc::clone(&run));
        run
    }

    /// The runs with collectives at a placement.
    pub fn collectives(&mut self, placement: Placement) -> &mut Collectives {
        &mut self.collectives[placement.device()]
    }

    /// Keeps the values that were donated to a run until it is done.
    pub fn keep_donated(&mut self, run: Arc<Event>, values: Vec<Arc<Value>>) {
        self.drop_donated();
        if !values.is_empty() {
            self.donated.push_back((run, values));
        }
    }

    /// Drops the values that were donated to runs that are done.
    fn drop_donated(&mut self) {
        while self.donated.front().is_some_and(|(run, _)| run.is_ready().unwrap_or(true)) {
            self.donated.pop_front();
        }
    }

    /// Takes the runs that may not be done.
    pub fn take_in_flight(&mut self, placement: Placement) -> Vec<Arc<Event>> {
        std::mem::take(&mut self.in_flight[placement.device()])
    }

    /// Checks that the device has `bytes` for a run, where no call would fail for a lack of memory: on the host, the
    /// kernel ends the process when the memory is written, and on a GPU the run fails later, with all its results.
    ///
    /// # Errors
    /// Out of memory if they are not free after all earlier runs.
    pub fn make_room(&mut self, placement: Placement, bytes: u64) -> Result<()> {
        // A TPU reserves memory for the temporary values of its programs. Its numbers do not tell how much.
        if bytes < LARGE || self.platform.kind == Kind::Tpu {
            return Ok(());
        }
        let memory = |platform: &Platform| match platform.kind {
            Kind::Cpu => Some(host_memory()),
            _ => platform.device_memory(placement.device()),
        };
        let Some((free, _)) = memory(&self.platform) else { return Ok(()) };
        if self.platform.kind == Kind::Cpu {
            self.unwritten += bytes;
            if self.unwritten <= free / 2 {
                return Ok(());
            }
        } else if bytes <= free {
            return Ok(());
        }
        for run in self.in_flight.iter().flatten() {
            let _ = run.wait();
        }
        self.unwritten = 0;
        // A plugin may have copied them instead of reusing their memory.
        self.drop_donated();
        return_freed_memory();
        let (free, total) = memory(&self.platform).unwrap_or_default();
        if total > 0 && bytes > free {
            return Err(out_of_memory(placement, bytes, Some(free)));
        }
        self.unwritten = bytes;
        Ok(())
    }

    /// The runs that may not be done.
    pub fn in_flight(&self, placement: Placement) -> Vec<Arc<Event>> {
        self.in_flight[placement.device()].clone()
    }

    pub fn clear_caches(&mut self) {
        self.scalars.clear();
    }
}

pub(crate) fn element_type(dtype: DType) -> ElementType {
    match dtype {
        DType::Bool => ElementType::Pred,
        DType::U8 | DType::F8E8M0FNU | DType::F4E2M1FNX2 => ElementType::U8,
        DType::U16 => ElementType::U16,
        DType::U32 | DType::C32 => ElementType::U32,
        DType::U64 => ElementType::U64,
        DType::I8 => ElementType::S8,
        DType::I16 => ElementType::S16,
        DType::I32 => ElementType::S32,
        DType::I64 => ElementType::S64,
        DType::F8E4M3FN => ElementType::F8E4M3FN,
        DType::F8E5M2 => ElementType::F8E5M2,
        DType::F8E4M3FNUZ => ElementType::F8E4M3FNUZ,
        DType::F8E5M2FNUZ => ElementType::F8E5M2FNUZ,
        DType::F16 => ElementType::F16,
        DType::BF16 => ElementType::BF16,
        DType::F32 => ElementType::F32,
        DType::F64 => ElementType::F64,
        DType::C64 => ElementType::C64,
        DType::C128 => ElementType::C128,
    }
}

/// The bytes of a number as `dtype`, converted as in C.
fn encode(number: Number, dtype: DType) -> [u8; 16] {
    debug_assert!(!dtype.is_float8(), "programs take these numbers as float32");
    let mut bytes = [0; 16];
    let mut put = |source: &[u8]| bytes[..source.len()].copy_from_slice(source);
    match dtype {
        DType::Bool => put(&[u8::from(!number.is_zero())]),
        DType::F16 => put(&half::f16::from_f64(number.to_f64()).to_ne_bytes()),
        DType::BF16 => put(&half::bf16::from_f64(number.to_f64()).to_ne_bytes()),
        DType::F32 => put(&(number.to_f64() as f32).to_ne_bytes()),
        DType::F64 => put(&number.to_f64().to_ne_bytes()),
        DType::C32 | DType::C64 | DType::C128 => {
            let (re, im) = match number {
                Number::Complex(re, im) => (re, im),
                other => (other.to_f64(), 0.0),
            };
            if dtype == DType::C32 {
                put(&half_pair(re, im).to_ne_bytes());
            } else if dtype == DType::C64 {
                put(&[(re as f32).to_ne_bytes(), (im as f32).to_ne_bytes()].concat());
            } else {
                put(&[re.to_ne_bytes(), im.to_ne_bytes()].concat());
            }
        }
        DType::U64 => put(&number.to_u64().to_le_bytes()),
        // C converts between integers by truncation to the low bytes.
        _ => put(&number.to_i64().to_le_bytes()[..dtype.size_bytes()]),
    }
    bytes
}
