//! Calls of compiled graphs with bounded dimensions.
//!
//! Their programs take and return values at their capacity. A tensor shows only the valid elements, with the strides
//! that PyTorch expects. So its storage may hold two values: the exact value, which all other programs take, and a
//! padded value. A result has only the padded value at first. The exact value is made when another program, or a
//! read, needs it. The host converts between the two, because a program for the conversion would be compiled for
//! every size.

use std::borrow::Cow;
use std::sync::Arc;

use aten::{Bounds, Dim, Extent, Factor};
use stablehlo::{DType, Type};

use crate::call::{self, Arg, Generator, Out, Tag, TensorArg};
use crate::engine::{Engine, lock};
use crate::error::{Error, Result};
use crate::operator_call::{Found, Status};
use crate::overdue;
use crate::padded::{
    LiveSizes, Padded, PaddedFactor, copy_exact, held_sizes, padded_factors, same_strides, with_padding,
};
use crate::placement::Placement;
use crate::record::reason::Reason;
use crate::registry::compiled::{BoundedInput, CompiledGraph};
use crate::registry::instance::{FreshResult, Instance, ResultPlan};
use crate::registry::key::CallParts;
use crate::storage::{Storage, Value, ValueState};

/// The elements of a storage. The tensor shows those from `offset` on along `strides`.
struct HostView<'a> {
    bytes: Cow<'a, [u8]>,
    offset: i64,
    strides: Vec<i64>,
}

fn dtype_of(tensor: &TensorArg) -> Result<DType> {
    call::tensor_dtype(tensor.dtype)
}

impl Engine {
    /// See [`Engine::call`].
    pub(crate) fn call_bounded(
        &mut self,
        compiled: &Arc<CompiledGraph>,
        op: u32,
        args: &[Arg],
        parts: &mut CallParts,
        placement: Placement,
        generator: Option<&mut Generator>,
        outs: &mut [Out],
    ) -> Result<Status> {
        let Some(bounds) = &compiled.graph.bounds else { return Ok(Status::NewKey) };
        let actual: Vec<i64> = bounds.sizes.iter().map(|&(arg, _)| args[arg].int()).collect();
        if bounds.sizes.iter().zip(&actual).any(|(&(_, capacity), &size)| size > capacity) {
            return Err(Error::runtime(format!("internal error: sizes {actual:?} are beyond their bounds")));
        }
        let compiled = self.with_input_layouts(compiled, op, args, &actual);
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
        parts.is_exact = true;
        let Some(instance) = self.find(op, &given, parts)? else { return Ok(Status::NewKey) };
        let status =
            self.call_found(Found { instance: &instance, parts, placement, runs_by_itself: false }, generator, outs)?;
        if matches!(status, Status::Done(_)) {
            set_result_sizes(&instance, &actual, outs);
        }
        Ok(status)
    }

    /// Chooses the order of the factors of merged dimensions in the padded inputs of a graph: the order of the padded
    /// values in its first call, else the order in other inputs, else bounded factors outermost. Returns the graph
    /// with this choice.
    fn with_input_layouts(
        &mut self,
        compiled: &Arc<CompiledGraph>,
        op: u32,
        args: &[Arg],
        actual: &[i64],
    ) -> Arc<CompiledGraph> {
        let Some(bounds) = compiled.graph.bounds.as_ref().filter(|bounds| bounds.inputs.len() < compiled.bounded.len())
        else {
            return Arc::clone(compiled);
        };
        let known: Vec<Vec<Option<Extent>>> =
            compiled.bounded.iter().map(|input| known_factors(input, &args[input.arg], bounds, actual)).collect();
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
        self.registry.replace_graph(op, Arc::clone(&placed));
        placed
    }

    /// The padded value of a tensor, in the layout of a graph's input.
    fn padded(
        &mut self,
        tensor: &TensorArg,
        input: &BoundedInput,
        extents: &[Extent],
        actual: &[i64],
    ) -> Result<Arc<Storage>> {
        let storage = tensor.storage();
        let axes: Vec<Vec<PaddedFactor>> =
            extents.iter().zip(&input.sizes).map(|(e, &size)| padded_factors(e, size, actual)).collect();
        let order =
            aten::memory_order(&input.sizes, &input.strides).unwrap_or_else(|| (0..input.sizes.len()).collect());
        let dtype = dtype_of(tensor)?;
        let wanted = Padded {
            storage: Storage::new(storage.placement, 0),
            dtype,
            axes,
            order,
            is_origin: false,
            _live: LiveSizes::default(),
        };
        if wanted.sizes() != tensor.sizes() {
            return Err(Error::runtime(format!(
                "internal error: sizes {:?} instead of {:?}",
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
        self.observer.op_stats.padded += 1;
        let exact = self.exact_bytes(tensor)?;
        let padded = self.upload_as(&wanted, exact.as_ref())?;
        if is_whole {
            storage.add_padded(Padded { storage: Arc::clone(&padded), ..wanted });
        }
        Ok(padded)
    }

    /// The elements of a tensor, on the host. `None` if nothing was written.
    fn exact_bytes(&mut self, tensor: &TensorArg) -> Result<Option<HostView<'static>>> {
        let storage = tensor.storage();
        self.unpad_storage(storage)?;
        let dtype = dtype_of(tensor)?;
        let Some(mut value) = storage.value() else { return Ok(None) };
        let (mut offset, mut strides) = (tensor.offset, tensor.strides().to_vec());
        if tensor.is_lazy() || self.registry.types.get(value.ty).dtype != dtype {
            drop(value);
            let Some(copied) = self.contiguous(Arg::of_tensor(*tensor), storage.placement)?.value() else {
                return Ok(None);
            };
            (value, offset, strides) = (copied, 0, aten::contiguous_strides(tensor.sizes()));
        }
        self.launch_all(storage.placement, Reason::Read)?;
        let bytes = self.read_kept(&value)?;
        Ok(Some(HostView { bytes: bytes.into(), offset, strides }))
    }

    /// The bytes of a value. Empty if the device does not keep its elements.
    fn read_kept(&mut self, value: &Value) -> Result<Vec<u8>> {
        let ty = self.registry.types.get(value.ty).clone();
        if !self.runtime()?.keeps_elements(&ty) {
            return Ok(Vec::new());
        }
        let mut bytes = vec![0; ty.size_bytes()];
        value.buffer()?.to_host(&mut bytes)?;
        Ok(bytes)
    }

    /// Makes the padded values that an instance takes.
    pub(crate) fn pad_arguments(&mut self, instance: &Instance, parts: &CallParts) -> Result<()> {
        for (number, storage) in parts.storages().enumerate() {
            let Some(axes) = instance.wanted(number) else {
                self.unpad_storage(storage)?;
                continue;
            };
            if !storage.padded().is_some_and(|padded| padded.is_held_as(axes)) {
                self.pad_storage(storage, axes, storage.has_padding())?;
            }
        }
        Ok(())
    }

    /// Makes the padded value of a storage with these factors.
    pub(crate) fn pad_storage(&mut self, storage: &Storage, axes: &[Vec<PaddedFactor>], is_origin: bool) -> Result<()> {
        self.unpad_storage(storage)?;
        let Some(value) = storage.value() else { return Ok(()) };
        self.launch_all(storage.placement, Reason::Read)?;
        self.observer.op_stats.padded += 1;
        let ty = self.registry.types.get(value.ty).clone();
        let exact = self.read_kept(&value)?;
        let padded = self.upload_padded(storage.placement, ty.dtype, axes, &exact)?;
        let live = if is_origin { LiveSizes::of(axes) } else { LiveSizes::default() };
        storage.add_padded(Padded { is_origin, _live: live, ..padded });
        Ok(())
    }

    /// A padded value from dense elements.
    pub(crate) fn upload_padded(
        &mut self,
        placement: Placement,
        dtype: DType,
        axes: &[Vec<PaddedFactor>],
        exact: &[u8],
    ) -> Result<Padded> {
        let wanted = Padded {
            storage: Storage::new(placement, 0),
            dtype,
            axes: axes.to_vec(),
            order: (0..axes.len()).collect(),
            is_origin: true,
            _live: LiveSizes::of(axes),
        };
        let exact = HostView { bytes: exact.into(), offset: 0, strides: wanted.strides() };
        let storage = self.upload_as(&wanted, Some(&exact))?;
        Ok(Padded { storage, ..wanted })
    }

    /// Uploads elements as a padded value of this form. All is 0 where there are no elements.
    fn upload_as(&mut self, wanted: &Padded, exact: Option<&HostView<'_>>) -> Result<Arc<Storage>> {
        let (ty, placement) = (Type::new(wanted.dtype, &held_sizes(&wanted.held())), wanted.storage.placement);
        let buffer = self.runtime()?.upload_kept(placement, &ty, || {
            Ok(match exact {
                Some(HostView { bytes, offset, strides }) => {
                    let start = *offset as usize * wanted.dtype.size_bytes();
                    with_padding(&wanted.walk(strides), &ty, &bytes[start..])
                }
                None => vec![0; ty.size_bytes()],
            })
        })?;
        let value = Value::new(self.registry.types.intern(&ty), ValueState::Ready(buffer));
        Ok(Storage::with_value(placement, ty.size_bytes(), Some(value)))
    }

    /// Makes the exact value of each argument that has only a padded one.
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

    /// Makes the exact value of a storage that has only a padded one.
    pub(crate) fn unpad_storage(&mut self, storage: &Storage) -> Result<()> {
        if !storage.is_only_padded() {
            return Ok(());
        }
        let Some(padded) = storage.padded() else { return Ok(()) };
        self.launch_all(storage.placement, Reason::Read)?;
        self.observer.op_stats.unpadded += 1;
        let sizes = padded.sizes();
        let dims: Vec<i64> = padded.order.iter().map(|&axis| sizes[axis]).collect();
        let ty = Type::new(padded.dtype, &dims);
        let buffer = self.runtime()?.upload_kept(storage.placement, &ty, || {
            let mut bytes = vec![0; storage.nbytes()];
            copy_exact(&padded, &padded.strides(), &mut bytes)?;
            Ok(bytes)
        })?;
        let value = Value::new(self.registry.types.intern(&ty), ValueState::Ready(buffer));
        storage.add_exact(value);
        Ok(())
    }
}

/// Copies a tensor to the host, if its storage has only a padded value and the tensor shows all of it. Returns
/// whether it copied.
pub(crate) fn copy_padded_to_host(source: &TensorArg, out: &mut [u8]) -> Result<bool> {
    let storage = source.storage();
    let Some(padded) = storage.padded().filter(|_| storage.is_only_padded()) else { return Ok(false) };
    let is_whole = source.offset == 0
        && !source.is_lazy()
        && dtype_of(source)? == padded.dtype
        && source.sizes() == padded.sizes()
        && same_strides(source.sizes(), source.strides(), &padded.strides());
    if is_whole {
        let mut engine = lock()?;
        engine.observer.op_stats.unpadded += 1;
        engine.launch_all(storage.placement, Reason::Read)?;
        drop(engine); // other threads can use the engine during the wait
        if let Some(value) = padded.storage.value() {
            overdue::wait_for_value(storage.placement, &value)?;
        }
        copy_exact(&padded, &aten::contiguous_strides(source.sizes()), out)?;
    }
    Ok(is_whole)
}

/// The factors of each dimension of an input, in the order of the padded value of its storage. `None` for a dimension
/// whose order this value does not determine.
fn known_factors(input: &BoundedInput, arg: &Arg, bounds: &Bounds, actual: &[i64]) -> Vec<Option<Extent>> {
    let known = (arg.tag == Tag::Tensor).then(|| arg.tensor().storage().padded()).flatten();
    let known = known.filter(|known| known.sizes() == arg.tensor().sizes());
    let extent = |(axis, dim): (usize, &Dim)| match dim.sizes.is_empty() {
        true => Some(Extent::default()),
        false => known.as_ref().and_then(|known| factors_in_order(&known.axes[axis], dim, bounds, actual)),
    };
    input.dims.iter().enumerate().map(extent).collect()
}

/// The factors of a dimension in the order of a padded value. `None` if the padded value has other factors.
fn factors_in_order(places: &[PaddedFactor], dim: &Dim, bounds: &Bounds, actual: &[i64]) -> Option<Extent> {
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

/// Sets the results' actual sizes for this call.
fn set_result_sizes(instance: &Arc<Instance>, actual: &[i64], outs: &mut [Out]) {
    thread_local! {
        // The caller reads this directly after the call.
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
            let axes = extents.iter().zip(*sizes).map(|(extent, &size)| padded_factors(extent, size, actual)).collect();
            let order = aten::memory_order(sizes, strides).unwrap_or_else(|| (0..sizes.len()).collect());
            // SAFETY: the call stored its own reference there.
            let storage = unsafe { Arc::from_raw(out.storage()) };
            let live = LiveSizes::default();
            let padded = Padded { storage, dtype: *dtype, axes, order, is_origin: true, _live: live };
            let shape = [padded.sizes(), padded.strides()];
            out.nbytes = shape[0].iter().product::<i64>() as usize * dtype.size_bytes();
            let shown = Storage::with_padded(padded.storage.placement, out.nbytes, padded);
            out.set_storage(shown);
            shapes.push(shape);
            let [sizes, strides] = &shapes[shapes.len() - 1];
            (out.sizes, out.strides) = (sizes.as_ptr(), strides.as_ptr());
        }
    });
}
