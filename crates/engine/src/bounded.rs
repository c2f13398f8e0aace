//! Calls of compiled graphs with bounded dimensions.
//!
//! Their programs take and give values that are as long as they can get. What a tensor shows is as long as it is, dense,
//! and of the strides that PyTorch expects, so its storage may hold two values: the exact one, which all other programs
//! take, and a padded one. A result begins with the padded one only; the exact one is made when somebody other than such
//! a program asks for it. Either is made of the other on the host: a program for it would be one for every size.

use std::sync::Arc;

use aten::{Bounds, Dim, Extent, Factor};
use stablehlo::{DType, Type};

use crate::call::{Arg, Generator, Out, Tag, TensorArg};
use crate::compiled::CompiledGraph;
use crate::engine::{Engine, Status};
use crate::error::{Error, Result};
use crate::explain::Reason;
use crate::instance::{FreshResult, Instance, ResultPlan};
use crate::storage::{Storage, Value, ValueState};

/// A tensor argument of a compiled graph that has bounded dimensions.
#[derive(Clone, Debug)]
pub struct BoundedInput {
    /// The argument's number, and the graph's input's.
    pub arg: usize,
    pub dims: Vec<Dim>,
    /// As large as they can get.
    pub sizes: Vec<i64>,
    pub strides: Vec<i64>,
}

/// A factor of a dimension of a padded value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    capacity: i64,
    actual: i64,
    is_bounded: bool,
}

/// A storage's padded value, and what it is the padded form of: a dense tensor.
pub(crate) struct Padded {
    storage: Arc<Storage>,
    dtype: DType,
    /// Of each dimension of the tensor.
    axes: Vec<Vec<Place>>,
    /// The tensor's dimensions in memory, the outermost first.
    order: Vec<usize>,
}

impl Padded {
    fn sizes(&self) -> Vec<i64> {
        self.axes.iter().map(|places| places.iter().map(|place| place.actual).product()).collect()
    }

    fn strides(&self) -> Vec<i64> {
        dense_strides(&self.sizes(), &self.order)
    }

    /// Capacity and length in the order of memory, without those that fill what is around them.
    fn layout(&self) -> Vec<(i64, i64)> {
        let mut layout: Vec<(i64, i64)> = Vec::new();
        for place in self.order.iter().flat_map(|&axis| &self.axes[axis]) {
            match layout.last_mut() {
                _ if place.capacity == 1 && place.actual == 1 => {}
                Some(outer) if place.capacity == place.actual => {
                    outer.0 *= place.capacity;
                    outer.1 *= place.actual;
                }
                _ => layout.push((place.capacity, place.actual)),
            }
        }
        layout
    }

    fn bytes(&self) -> usize {
        let capacity: i64 = self.axes.iter().flatten().map(|place| place.capacity).product();
        capacity as usize * self.dtype.size_bytes()
    }

    /// How to walk over the elements of a tensor of these strides and over those of the padded value.
    fn walk(&self, strides: &[i64]) -> Vec<Walk> {
        let mut walks = Vec::new();
        let mut inner = 1;
        for &axis in self.order.iter().rev() {
            let mut stride = strides[axis];
            for place in self.axes[axis].iter().rev() {
                walks.push(Walk { length: place.actual, exact: stride, padded: inner });
                inner *= place.capacity;
                stride *= place.actual;
            }
        }
        walks.retain(|walk| walk.length != 1);
        walks.reverse();
        walks
    }
}

/// The elements of a storage, of which a tensor shows those from `offset` on along `strides`.
struct HostView {
    bytes: Vec<u8>,
    offset: i64,
    strides: Vec<i64>,
}

/// One loop of a copy between a tensor and its padded form.
struct Walk {
    length: i64,
    exact: i64,
    padded: i64,
}

/// Calls `f` with the positions of runs of elements that lie together in both.
fn each_run(walks: &[Walk], exact: i64, padded: i64, f: &mut impl FnMut(usize, usize, usize)) {
    match walks {
        [] => f(exact as usize, padded as usize, 1),
        [last] if last.length == 0 => {}
        [last] if last.exact == 1 && last.padded == 1 => f(exact as usize, padded as usize, last.length as usize),
        [first, rest @ ..] => {
            (0..first.length).for_each(|i| each_run(rest, exact + i * first.exact, padded + i * first.padded, f));
        }
    }
}

fn dtype_of(tensor: &TensorArg) -> Result<DType> {
    crate::call::held(tensor.dtype)
}

fn dense_strides(sizes: &[i64], order: &[usize]) -> Vec<i64> {
    let mut strides = vec![1; sizes.len()];
    let mut inner = 1;
    for &axis in order.iter().rev() {
        strides[axis] = inner;
        inner *= sizes[axis].max(1);
    }
    strides
}

/// What padding holds that the host makes: NaN, so that a program which reads it is found out.
const PADDING: u8 = 0xff;

impl Engine {
    /// See [`Engine::call`].
    pub(crate) fn call_bounded(
        &mut self,
        compiled: &Arc<CompiledGraph>,
        op: u32,
        args: &[Arg],
        device: usize,
        generator: Option<&mut Generator>,
        outs: &mut [Out],
    ) -> Result<Status> {
        let Some(bounds) = &compiled.graph.bounds else { return Ok(Status::NewKey) };
        let actual: Vec<i64> = bounds.sizes.iter().map(|&(arg, _)| args[arg].int()).collect();
        if bounds.sizes.iter().zip(&actual).any(|(&(_, capacity), &size)| size > capacity) {
            return Err(Error::runtime(format!("internal error: sizes {actual:?} are beyond their bounds")));
        }
        let compiled = self.placed(compiled, op, args, &actual);
        let placed = compiled.graph.bounds.as_ref().map_or(&[][..], |bounds| &bounds.inputs);
        let mut given = args.to_vec();
        let mut held = Vec::with_capacity(compiled.bounded.len());
        for (input, (_, extents)) in compiled.bounded.iter().zip(placed) {
            if args[input.arg].tag != Tag::Tensor {
                return Err(Error::runtime("internal error: a bounded argument is not a tensor"));
            }
            let tensor = args[input.arg].tensor();
            let padded = self.padded(tensor, input, extents, &actual)?;
            let dtype = dtype_of(tensor)?;
            given[input.arg] = Arg::of_tensor(TensorArg::new(&padded, &input.sizes, &input.strides, 0, dtype));
            held.push(padded);
        }
        self.unpad(&given)?;
        let Some(instance) = self.instance_of(op, &given)? else { return Ok(Status::NewKey) };
        let status = self.call_instance(&instance, device, generator, outs)?;
        if matches!(status, Status::Done(_)) {
            cut_results(&instance, &actual, outs);
        }
        Ok(status)
    }

    /// The graph with a decision on how inputs whose dimensions are products lie in their padded values: as in those
    /// that its first call brings, else as other inputs, else with what is bounded outermost.
    fn placed(&mut self, compiled: &Arc<CompiledGraph>, op: u32, args: &[Arg], actual: &[i64]) -> Arc<CompiledGraph> {
        let Some(bounds) = compiled.graph.bounds.as_ref().filter(|bounds| bounds.inputs.len() < compiled.bounded.len())
        else {
            return Arc::clone(compiled);
        };
        let known: Vec<Vec<Option<Extent>>> =
            compiled.bounded.iter().map(|input| known_places(input, &args[input.arg], bounds, actual)).collect();
        let dims: Vec<(&Dim, &Extent)> = compiled
            .bounded
            .iter()
            .zip(&known)
            .flat_map(|(input, known)| input.dims.iter().zip(known))
            .filter_map(|(dim, known)| Some((dim, known.as_ref()?)))
            .collect();
        let inputs = compiled.bounded.iter().zip(&known).map(|(input, known)| {
            let extents = input.dims.iter().zip(known).map(|(dim, known)| match known {
                Some(known) => known.clone(),
                None => dims
                    .iter()
                    .find(|(other, _)| *other == dim)
                    .map_or_else(|| dim.extent(|size| bounds.sizes[size as usize].1), |(_, e)| (*e).clone()),
            });
            (input.arg, extents.collect::<Vec<_>>())
        });
        let mut placed = CompiledGraph::clone(compiled);
        let mut graph = aten::Graph::clone(&compiled.graph);
        graph.bounds = Some(Bounds { inputs: inputs.collect(), ..bounds.clone() });
        placed.graph = Arc::new(graph);
        let placed = Arc::new(placed);
        self.operators[op as usize].compiled = Some(Arc::clone(&placed));
        placed
    }

    /// The padded form of a tensor, as a graph wants its input.
    fn padded(
        &mut self,
        tensor: &TensorArg,
        input: &BoundedInput,
        extents: &[Extent],
        actual: &[i64],
    ) -> Result<Arc<Storage>> {
        let storage = tensor.storage();
        let axes: Vec<Vec<Place>> =
            extents.iter().zip(&input.sizes).map(|(e, &size)| places(e, size, actual)).collect();
        let order =
            aten::memory_order(&input.sizes, &input.strides).unwrap_or_else(|| (0..input.sizes.len()).collect());
        let dims: Vec<i64> = order.iter().map(|&axis| input.sizes[axis]).collect();
        let dtype = dtype_of(tensor)?;
        let ty = Type::new(dtype, &dims);
        let wanted = Padded { storage: Storage::new(storage.device, 0), dtype, axes, order };
        if wanted.sizes() != tensor.sizes() {
            return Err(Error::runtime(format!(
                "internal error: sizes {:?} where {:?} are due",
                tensor.sizes(),
                wanted.sizes()
            )));
        }
        let is_whole = tensor.offset == 0
            && !tensor.is_lazy()
            && storage.nbytes() == wanted.sizes().iter().product::<i64>() as usize * dtype.size_bytes()
            && same_strides(&wanted.sizes(), &wanted.strides(), tensor.strides());
        let known = storage.padded().filter(|known| known.dtype == dtype && known.layout() == wanted.layout());
        if let Some(known) = known.filter(|_| is_whole) {
            return Ok(Arc::clone(&known.storage));
        }
        self.op_stats.padded += 1;
        let mut bytes = vec![if dtype == DType::Bool { 1 } else { PADDING }; ty.size_bytes()];
        let element = dtype.size_bytes();
        if let Some(HostView { bytes: exact, offset, strides }) = self.exact_bytes(tensor)? {
            each_run(&wanted.walk(&strides), offset, 0, &mut |from, to, length| {
                bytes[to * element..(to + length) * element]
                    .copy_from_slice(&exact[from * element..(from + length) * element]);
            });
        } else {
            bytes.fill(0);
        }
        let buffer = self.runtime()?.upload(storage.device, &bytes, dtype, &dims)?;
        let value = Value::new(self.types.intern(&ty), ValueState::Ready(buffer));
        let padded = Storage::with_value(storage.device, ty.size_bytes(), Some(value));
        if is_whole {
            storage.add_padded(Padded { storage: Arc::clone(&padded), ..wanted });
        }
        Ok(padded)
    }

    /// What a tensor shows, on the host; `None` where nothing has been written.
    fn exact_bytes(&mut self, tensor: &TensorArg) -> Result<Option<HostView>> {
        let storage = tensor.storage();
        self.unpad_storage(storage)?;
        let dtype = dtype_of(tensor)?;
        let Some(mut value) = storage.value() else { return Ok(None) };
        let (mut offset, mut strides) = (tensor.offset, tensor.strides().to_vec());
        if tensor.is_lazy() || self.types.get(value.ty).dtype != dtype {
            drop(value);
            let Some(copied) = self.contiguous(Arg::of_tensor(*tensor), storage.device)?.value() else {
                return Ok(None);
            };
            (value, offset, strides) = (copied, 0, aten::contiguous_strides(tensor.sizes()));
        }
        self.launch_all(storage.device, Reason::Read)?;
        let mut bytes = vec![0; self.types.get(value.ty).size_bytes()];
        value.buffer()?.to_host(&mut bytes)?;
        Ok(Some(HostView { bytes, offset, strides }))
    }

    /// Makes the exact values of arguments that have none.
    pub(crate) fn unpad(&mut self, args: &[Arg]) -> Result<()> {
        for arg in args {
            match arg.tag {
                Tag::Tensor => self.unpad_storage(arg.tensor().storage())?,
                Tag::List => self.unpad(arg.list())?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Makes the exact value of a storage that has a padded one only.
    pub(crate) fn unpad_storage(&mut self, storage: &Storage) -> Result<()> {
        if !storage.is_only_padded() {
            return Ok(());
        }
        let Some(padded) = storage.padded() else { return Ok(()) };
        self.launch_all(storage.device, Reason::Read)?;
        self.op_stats.unpadded += 1;
        let mut bytes = vec![0; storage.nbytes()];
        copy_exact(&padded, &padded.strides(), &mut bytes)?;
        let sizes = padded.sizes();
        let dims: Vec<i64> = padded.order.iter().map(|&axis| sizes[axis]).collect();
        let buffer = self.runtime()?.upload(storage.device, &bytes, padded.dtype, &dims)?;
        let value = Value::new(self.types.intern(&Type::new(padded.dtype, &dims)), ValueState::Ready(buffer));
        storage.add_exact(value);
        Ok(())
    }
}

/// Copies a padded value out, without its padding and with other strides.
fn copy_exact(padded: &Padded, strides: &[i64], exact: &mut [u8]) -> Result<()> {
    let element = padded.dtype.size_bytes();
    let Some(value) = padded.storage.value().filter(|_| !exact.is_empty()) else { return Ok(()) };
    let mut bytes = vec![0; padded.bytes()];
    value.buffer()?.to_host(&mut bytes)?;
    each_run(&padded.walk(strides), 0, 0, &mut |to, from, length| {
        exact[to * element..(to + length) * element].copy_from_slice(&bytes[from * element..(from + length) * element]);
    });
    Ok(())
}

/// Copies out a tensor that shows all of a storage which has a padded value only; says whether it is one.
pub(crate) fn copy_padded_to_host(source: &TensorArg, out: &mut [u8]) -> Result<bool> {
    let storage = source.storage();
    let Some(padded) = storage.padded().filter(|_| storage.is_only_padded()) else { return Ok(false) };
    let is_whole = source.offset == 0
        && !source.is_lazy()
        && dtype_of(source)? == padded.dtype
        && source.sizes() == padded.sizes()
        && same_strides(source.sizes(), source.strides(), &padded.strides());
    if is_whole {
        let mut engine = crate::engine::lock()?;
        engine.op_stats.unpadded += 1;
        engine.launch_all(storage.device, Reason::Read)?;
        drop(engine); // not held while waiting: other threads go on
        copy_exact(&padded, &aten::contiguous_strides(source.sizes()), out)?;
    }
    Ok(is_whole)
}

/// Of dimensions that have size 1 strides mean nothing.
fn same_strides(sizes: &[i64], a: &[i64], b: &[i64]) -> bool {
    (0..sizes.len()).all(|i| sizes[i] == 1 || a[i] == b[i])
}

fn places(extent: &Extent, dim: i64, actual: &[i64]) -> Vec<Place> {
    if extent.is_whole() {
        return vec![Place { capacity: dim, actual: dim, is_bounded: false }];
    }
    let place = |factor: &Factor| Place {
        capacity: factor.capacity,
        actual: factor.size.map_or(factor.capacity, |size| actual[size as usize]),
        is_bounded: factor.size.is_some(),
    };
    extent.0.iter().map(place).collect()
}

/// How the dimensions of an input lie in the padded value that its storage has; `None` of those of which it does not
/// tell.
fn known_places(input: &BoundedInput, arg: &Arg, bounds: &Bounds, actual: &[i64]) -> Vec<Option<Extent>> {
    let known = (arg.tag == Tag::Tensor).then(|| arg.tensor().storage().padded()).flatten();
    let known = known.filter(|known| known.sizes() == arg.tensor().sizes());
    let extent = |(axis, dim): (usize, &Dim)| match dim.sizes.is_empty() {
        true => Some(Extent::default()),
        false => known.as_ref().and_then(|known| like(&known.axes[axis], dim, bounds, actual)),
    };
    input.dims.iter().enumerate().map(extent).collect()
}

/// The factors of a dimension in the order that a padded value has them; `None` where they are others.
fn like(places: &[Place], dim: &Dim, bounds: &Bounds, actual: &[i64]) -> Option<Extent> {
    let mut left = dim.sizes.clone();
    let mut factors = Vec::new();
    for place in places {
        let size = match place.is_bounded {
            true => {
                let fits = |&size: &u32| {
                    bounds.sizes[size as usize].1 == place.capacity && actual[size as usize] == place.actual
                };
                Some(left.remove(left.iter().position(fits)?))
            }
            false => None,
        };
        factors.push(Factor { capacity: place.capacity, size });
    }
    let capacity: i64 = factors.iter().map(|factor| factor.capacity).product();
    (left.is_empty() && capacity == dim.capacity).then_some(Extent(factors))
}

/// Gives results the sizes that they have this time.
fn cut_results(instance: &Arc<Instance>, actual: &[i64], outs: &mut [Out]) {
    thread_local! {
        // Read by the caller right after the call.
        static SHAPES: std::cell::RefCell<Vec<[Vec<i64>; 2]>> = const { std::cell::RefCell::new(Vec::new()) };
    }
    SHAPES.with_borrow_mut(|shapes| {
        shapes.clear();
        let fresh = instance.outputs.iter().filter(|plan| matches!(plan, ResultPlan::Fresh(_) | ResultPlan::Absent));
        for (out, plan) in outs.iter_mut().zip(fresh) {
            let ResultPlan::Fresh(FreshResult { sizes, strides, extents, dtype, .. }) = plan else { continue };
            if extents.is_empty() {
                continue;
            }
            let axes = extents.iter().zip(*sizes).map(|(extent, &size)| places(extent, size, actual)).collect();
            let order = aten::memory_order(sizes, strides).unwrap_or_else(|| (0..sizes.len()).collect());
            // SAFETY: the call put its own reference there.
            let storage = unsafe { Arc::from_raw(out.storage()) };
            let padded = Padded { storage, dtype: *dtype, axes, order };
            let shape = [padded.sizes(), padded.strides()];
            out.nbytes = shape[0].iter().product::<i64>() as usize * dtype.size_bytes();
            let shown = Storage::with_padded(padded.storage.device, out.nbytes, padded);
            out.set_storage(shown);
            shapes.push(shape);
            let [sizes, strides] = &shapes[shapes.len() - 1];
            (out.sizes, out.strides) = (sizes.as_ptr(), strides.as_ptr());
        }
    });
}
