//! Calls whose arguments have sizes that change: which sizes become inputs of the program, and the arguments at their
//! capacities.
//!
//! Tensors with padding say which of their sizes change. A view of such a tensor is divided into parts of the padded
//! value. This is done with the actual sizes of each call, so it is exact for it. Calls for which the outcome is the
//! same but for the actual sizes share a program.

use aten::{ArgSpec, Dim, ResultSpec, SizedView, Sizes, StorageSpec, TensorSpec, Type};

use super::division::{Around, dims_around, divide, divide_pairs, divide_windows};
use super::held::{Axes, Held, exact, padded, padded_axes, places, storage_dtype};
use super::operators::Operator;
use super::symbols::{Place, Symbols, fixed};
use super::types::Types;
use crate::call::{self, Arg, Tag, TensorArg};
use crate::error::Result;
use crate::growth::{Changing, any_changes};
use crate::padded::{actual_sizes, any_live, live_capacity};
use crate::registry::key::{CallParts, Specs};
use crate::storage::Storage;

/// The int arguments that may be sizes. Others, such as dimension numbers, are constants of the program.
pub(crate) const SIZE_ARGUMENTS: [&str; 21] = [
    "size",
    "input_size",
    "input_sizes",
    "self_size",
    "output_size",
    "start",
    "end",
    "length",
    "N",
    "HxW",
    "height",
    "width",
    "pad",
    "repeats",
    "shape",
    "sizes",
    "last_dim_size",
    "steps",
    "n",
    "m",
    "k",
];

/// The int argument that is a size of the result, and a constant of the program.
const SIZE_OF_RESULT: &str = "num_samples";

/// A call with its changing sizes as inputs.
pub(crate) struct SizedSpecs {
    pub args: Vec<ArgSpec>,
    pub storages: Vec<StorageSpec>,
    pub sizes: Sizes,
    /// The actual values of the sizes.
    pub numbers: Vec<i64>,
    /// The padded form that the program takes of each storage. `None` for the exact value.
    pub wanted: Vec<Option<Axes>>,
    symbols: Symbols,
    products: Vec<(i64, Vec<Place>)>,
}

/// How to look for sizes that change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Search {
    /// Dimensions of values without padding do not change.
    Padded,
    /// Dimensions of values without padding change if they equal a size that does.
    All,
    /// As [`Search::Padded`]. Sizes of results that no argument has change too.
    Grown,
    /// As [`Search::Padded`]. Sizes of results that the row computes from those that change are inputs.
    Computed,
}

/// The arguments of a call with its changing sizes as inputs. `changing` are sizes that change although no argument has
/// padding, and their capacities. `open_ints` makes ints that vary inputs as well. `None` if it has no such sizes, or if a
/// view does not divide into parts.
pub(crate) fn sized_specs(
    args: &[Arg],
    operator: &Operator,
    parts: &CallParts,
    types: &Types,
    search: Search,
    changing: &[Changing],
    open_ints: bool,
) -> Option<SizedSpecs> {
    let mut symbols = Symbols::default();
    for factor in parts.storages().filter_map(padded_axes).flatten().flatten().filter(|factor| factor.is_bounded) {
        match symbols.known(factor.actual) {
            Some(known) => {
                let symbol = &mut symbols.list[known as usize];
                symbol.capacity = symbol.capacity.max(factor.capacity);
            }
            None if factor.actual > 1 => {
                symbols.add(factor.actual, factor.capacity);
            }
            None => return None,
        }
    }
    if symbols.list.is_empty() {
        if !any_changes(changing) && (!any_live() || search == Search::All) {
            return None;
        }
        symbols.asks_others = !any_changes(changing);
    }
    args.iter().for_each(|arg| add_views(arg, &mut symbols));
    let merged = parts.storages().filter_map(padded_axes).filter_map(|axes| places(&axes, &symbols));
    symbols.merged = merged.map(|axes| axes.concat()).collect();
    let mut products = Vec::new();
    for &each in changing {
        match each {
            Changing::Count(size, capacity) if symbols.known(size).is_none() => _ = symbols.add(size, capacity),
            Changing::Size(size, capacity) if symbols.known(size).is_none() && symbols.merged(size).is_none() => {
                // A view that repeats elements has the sizes of a value with merged dimensions.
                let merged = live_capacity(size).map_or_else(|| symbols.product_in_use(size), |_| None);
                match merged {
                    Some(places) => symbols.merged.push(places),
                    None => _ = symbols.add(size, capacity),
                }
            }
            Changing::Count(..) | Changing::Size(..) => {}
            Changing::Part(size) => symbols.parts_that_stay.push(size),
            Changing::Constant(size) => symbols.constants.push(size),
            Changing::Product(size) => products.extend(symbols.product_in_use(size).map(|places| (size, places))),
        }
    }
    let mut written = Vec::new();
    operator.mutated.iter().for_each(|&i| add_storages(&args[i], &mut written));
    let is_written = |storage: &Storage| written.contains(&std::ptr::from_ref(storage));
    let held: Option<Vec<Option<Held>>> = parts
        .storages()
        .map(|storage| match storage.has_padding() {
            true => padded(storage, &symbols),
            false => Some(exact(storage, types, &symbols, search == Search::All && !is_written(storage))),
        })
        .collect();
    let mut call = SizedCall { held: held?, products, views: Vec::new() };
    let mut specs = Specs::new(types, false, false);
    let mut lowered = Vec::with_capacity(args.len());
    for (i, (arg, info)) in args.iter().zip(&operator.args).enumerate() {
        let spec = specs.arg(arg, *info, &operator.types[i]).ok()?;
        let is_written = operator.mutated.contains(&i);
        lowered.push(match spec {
            ArgSpec::Ints(ints) if info.varies && open_ints => {
                ArgSpec::Dims(symbols.numbers(&ints, operator.opens_offsets()))
            }
            ArgSpec::Int(int) if info.varies && open_ints => ArgSpec::Dim(symbols.number(int)),
            // The number of elements depends on these numbers.
            ArgSpec::Scalar(_) if info.varies && arg.tag == Tag::Int && any_changes(changing) => {
                ArgSpec::Dim(symbols.number(arg.int()))
            }
            spec => call.arg(arg, spec, is_written, &operator.names[i], types, &mut symbols)?,
        });
    }
    // The number of arguments that are joined may be the only size that changes.
    if !symbols.has_sizes() && search != Search::Grown {
        return None;
    }
    let held: Vec<Held> = call.held.into_iter().collect::<Option<_>>()?;
    let storages = held.iter().zip(parts.storages()).map(|(held, storage)| {
        let dtype = storage_dtype(storage, types)?;
        let ty = held.is_written.then(|| Type::new(dtype.unwrap_or(stablehlo::DType::U8), &held.dims()));
        let nbytes = if held.is_bounded() { 0 } else { storage.nbytes() };
        Some(StorageSpec { base: ty, nbytes })
    });
    let storages = storages.collect::<Option<Vec<_>>>()?;
    let written = call.views.iter().filter(|(_, is_written)| *is_written);
    let sizes = Sizes {
        capacities: symbols.capacities(),
        storages: held.iter().map(Held::extents).collect(),
        results: written.map(|(view, _)| Some(view.sizes())).collect(),
        views: call.views.into_iter().map(|(view, _)| view).collect(),
    };
    let wanted = held.iter().map(|held| (held.is_written && held.is_bounded()).then(|| held.wanted())).collect();
    let numbers = symbols.list.iter().map(|symbol| symbol.actual).collect();
    Some(SizedSpecs { args: lowered, storages, sizes, numbers, wanted, symbols, products: call.products })
}

impl SizedSpecs {
    /// Finds the sizes of the fresh results among those of the arguments, by their actual values. `given` are the
    /// arguments of the call, and `room` the capacity of a new size. False if no size changes.
    pub fn find_results(
        &mut self,
        given: &[Arg],
        operator: &Operator,
        results: &[Option<ResultSpec>],
        search: Search,
        room: impl Fn(i64) -> i64,
    ) -> bool {
        let (views, symbols) = (&self.sizes.views, &mut self.symbols);
        // Sizes that no argument has, such as products, are left to the row.
        let mut known: Vec<i64> = views.iter().flat_map(SizedView::capacities).collect();
        for (spec, name) in self.args.iter().zip(&operator.names) {
            match spec {
                ArgSpec::Int(size) if name == SIZE_OF_RESULT => known.push(*size),
                _ if !SIZE_ARGUMENTS.contains(&&name[..]) => {}
                ArgSpec::Ints(ints) => known.extend(ints),
                ArgSpec::Dims(dims) => known.extend(Dim::capacities(dims)),
                _ => {}
            }
        }
        let mut of_arguments: Vec<&[i64]> = Vec::new();
        given.iter().for_each(|arg| add_sizes(arg, &mut of_arguments));
        let mut fresh = |result: &ResultSpec| {
            if search == Search::Grown {
                return Some(grown(&result.sizes, &of_arguments, views, symbols, &room));
            }
            let dims = result.sizes.iter().map(|&size| {
                if search == Search::Computed && size > 1 && symbols.known(size).is_none() && !known.contains(&size) {
                    symbols.add(size, live_capacity(size).unwrap_or_else(|| room(size)));
                }
                let dim = dim(&self.products, symbols, size);
                (size < 2 || !dim.sizes.is_empty() || known.contains(&size)).then_some(dim)
            });
            dims.collect::<Option<Vec<Dim>>>()
        };
        let behind = results.get(self.sizes.results.len()..).unwrap_or_default();
        let fresh: Vec<Option<Vec<Dim>>> = behind.iter().map(|result| result.as_ref().and_then(&mut fresh)).collect();
        // PyTorch gives no results of some operators, not even the written ones.
        self.sizes.results.truncate(results.len());
        self.sizes.results.extend(fresh);
        self.sizes.capacities = self.symbols.capacities();
        self.numbers = self.symbols.list.iter().map(|symbol| symbol.actual).collect();
        !self.numbers.is_empty()
    }
}

/// The arguments and storages of a call on exact values.
///
/// # Errors
/// If an argument is refused.
pub(crate) fn exact_specs(
    args: &[Arg],
    operator: &Operator,
    parts: &CallParts,
    types: &Types,
) -> Result<(Vec<ArgSpec>, Vec<StorageSpec>)> {
    let mut specs = Specs::new(types, false, false);
    let args = args.iter().zip(&operator.args).zip(&operator.types);
    let args = args.map(|((arg, info), ty)| specs.arg(arg, *info, ty)).collect::<Result<_>>()?;
    for (spec, storage) in specs.storages.iter_mut().zip(parts.storages()) {
        if let Some(padded) = storage.padded().filter(|_| spec.base.is_none()) {
            spec.base = Some(Type::new(padded.dtype, &actual_sizes(&padded.held())));
        }
    }
    Ok((args, specs.storages))
}

/// The fewest tensors whose number may be a size that changes. Fewer need few programs, and are seldom a length.
pub(crate) const MANY: usize = 5;

/// The sizes of a result that joins arguments: those of an argument in the same dimension, else multiples of the number
/// of arguments if that changes, else new ones where the arguments change.
fn grown(
    result: &[i64],
    given: &[&[i64]],
    views: &[SizedView],
    symbols: &mut Symbols,
    room: &impl Fn(i64) -> i64,
) -> Vec<Dim> {
    let dims: Vec<(&[i64], Vec<Dim>)> = given.iter().zip(views).map(|(sizes, view)| (*sizes, view.sizes())).collect();
    let dims: Vec<_> = dims.iter().filter(|(sizes, _)| sizes.len() == result.len()).collect();
    let size = |(axis, &size): (usize, &i64)| {
        if let Some((_, dims)) = dims.iter().find(|(sizes, _)| sizes[axis] == size) {
            return dims[axis].clone();
        }
        let each = dims.first().map_or(0, |(sizes, _)| sizes[axis]);
        let is_alike = dims.iter().all(|(sizes, dims)| sizes[axis] == each && dims[axis].sizes.is_empty());
        let number = dims.len() as i64;
        if is_alike
            && dims.len() >= MANY
            && number * each == size
            && let Some(symbol) = symbols.in_use(number)
        {
            return Dim::new(symbols.factor(symbol).capacity * each, vec![symbol]);
        }
        let changing = dims.iter().map(|(_, dims)| &dims[axis]).filter(|dim| !dim.sizes.is_empty());
        let Some(held) = changing.map(|dim| dim.capacity).max() else { return symbols.dim(size) };
        // The capacity of the argument serves as long as the result fits.
        let capacity = if size <= held { held } else { live_capacity(size).unwrap_or_else(|| room(size)) };
        Dim::new(capacity, vec![symbols.add(size, capacity)])
    };
    result.iter().enumerate().map(size).collect()
}

/// The factors of a size that is a product.
fn product(products: &[(i64, Vec<Place>)], size: i64) -> Option<&[Place]> {
    products.iter().find(|product| product.0 == size).map(|product| &product.1[..])
}

/// A size of a result.
fn dim(products: &[(i64, Vec<Place>)], symbols: &Symbols, size: i64) -> Dim {
    match product(products, size) {
        Some(places) => Dim::of(&places.iter().map(|place| place.factor).collect::<Vec<_>>()),
        None => symbols.dim(size),
    }
}

/// The sizes of the tensors of an argument.
fn add_sizes<'a>(arg: &'a Arg, into: &mut Vec<&'a [i64]>) {
    match arg.tag {
        Tag::Tensor => into.push(arg.tensor().sizes()),
        Tag::List => arg.list().iter().for_each(|item| add_sizes(item, into)),
        _ => {}
    }
}

/// The dimensions without padding of whole values with padding among the tensors of an argument, and the factors of
/// dimensions that their views need.
fn add_views(arg: &Arg, symbols: &mut Symbols) {
    match arg.tag {
        Tag::Tensor => {
            let (storage, sizes) = (arg.tensor().storage(), arg.tensor().sizes());
            if let Some(axes) = padded_axes(storage) {
                symbols.choose_factors(&axes, sizes, arg.tensor().strides());
            }
            let padded = storage.padded().filter(|padded| storage.has_padding() && padded.sizes() == sizes);
            for (axis, factors) in padded.iter().flat_map(|padded| padded.axes.iter().enumerate()) {
                if factors.iter().all(|factor| !factor.is_bounded) {
                    symbols.stays.push((sizes.len() - axis, sizes[axis]));
                }
            }
        }
        Tag::List => arg.list().iter().for_each(|item| add_views(item, symbols)),
        _ => {}
    }
}

/// The storages of the tensors of an argument.
fn add_storages(arg: &Arg, into: &mut Vec<*const Storage>) {
    match arg.tag {
        Tag::Tensor => into.push(arg.tensor().storage()),
        Tag::List => arg.list().iter().for_each(|item| add_storages(item, into)),
        _ => {}
    }
}

/// The parts of a call that are found so far.
struct SizedCall {
    held: Vec<Option<Held>>,
    /// The factors of sizes that are products.
    products: Vec<(i64, Vec<Place>)>,
    /// The view of each tensor argument, and whether the call writes it.
    views: Vec<(SizedView, bool)>,
}

impl SizedCall {
    fn arg(
        &mut self,
        arg: &Arg,
        spec: ArgSpec,
        is_written: bool,
        name: &str,
        types: &Types,
        symbols: &mut Symbols,
    ) -> Option<ArgSpec> {
        Some(match spec {
            ArgSpec::Tensor(spec) => ArgSpec::Tensor(self.tensor(arg.tensor(), spec, is_written, types, symbols)?),
            ArgSpec::List(items) if arg.tag == Tag::List => {
                let items = items.into_iter().zip(arg.list());
                let items = items.map(|(spec, arg)| self.arg(arg, spec, is_written, name, types, symbols));
                ArgSpec::List(items.collect::<Option<_>>()?)
            }
            ArgSpec::Int(size) if SIZE_ARGUMENTS.contains(&name) => match dim(&self.products, symbols, size) {
                dim if dim.sizes.is_empty() => ArgSpec::Int(size),
                dim => ArgSpec::Dim(dim),
            },
            ArgSpec::Ints(ints) if SIZE_ARGUMENTS.contains(&name) => {
                let dims: Vec<Dim> = ints.iter().map(|&size| dim(&self.products, symbols, size)).collect();
                match dims.iter().all(|dim| dim.sizes.is_empty()) {
                    true => ArgSpec::Ints(ints),
                    false => ArgSpec::Dims(dims),
                }
            }
            other => other,
        })
    }

    fn tensor(
        &mut self,
        tensor: &TensorArg,
        spec: TensorSpec,
        is_written: bool,
        types: &Types,
        symbols: &mut Symbols,
    ) -> Option<TensorSpec> {
        let index = spec.storage;
        let dtype = storage_dtype(tensor.storage(), types)?;
        if spec.sizes.contains(&0) {
            self.held[index].as_ref().filter(|held| !held.is_bounded() && !is_written)?;
            self.views.push((SizedView::Fixed(spec.sizes.clone()), is_written));
            return Some(spec);
        }
        let is_lazy = tensor.is_lazy();
        let other = dtype.filter(|&dtype| dtype != spec.dtype);
        if self.held[index].is_none() {
            // A storage without a value gets the dimensions of the first view of it.
            let element = call::tensor_dtype(tensor.dtype).ok()?.size_bytes() as i64;
            let numel = tensor.storage().nbytes() as i64 / element;
            if is_lazy || other.is_some() || !is_written && spec.sizes.iter().product::<i64>() != numel {
                return None;
            }
            let mut place = |axis: usize| {
                let size = spec.sizes[axis];
                if let Some(symbol) = symbols.live(size) {
                    return vec![Place { actual: size, factor: symbols.factor(symbol) }];
                }
                let product = product(&self.products, size).map(<[Place]>::to_vec);
                product.or_else(|| symbols.merged(size)).unwrap_or_else(|| vec![fixed(size)])
            };
            let axes = dims_around(&spec.sizes, &spec.strides, numel)?.into_iter().map(|dim| match dim {
                Around::Shown(axis) => place(axis),
                Around::Other(size) => vec![fixed(size)],
            });
            self.held[index] = Some(Held { axes: axes.collect(), is_written: false });
        }
        let places: Vec<Place> = self.held[index].iter().flat_map(|held| held.axes.iter().flatten().copied()).collect();
        let divided = match other {
            _ if is_written && (is_lazy || other.is_some()) => None,
            Some(held) => divide_pairs(&places, &spec, held, symbols).map(|(view, form)| SizedView::Paired(view, form)),
            None => divide(&places, &spec, is_written, symbols).map(SizedView::Divided).or_else(|| {
                let windows = (!is_written).then(|| divide_windows(&places, &spec, symbols))?;
                windows.map(|(rows, windows)| SizedView::Windowed(rows, windows))
            }),
        };
        let Some(view) = divided else {
            // A view of an exact value may have any form, with its sizes as constants.
            if places.iter().any(|place| place.factor.size.is_some()) {
                return None;
            }
            self.views.push((SizedView::Fixed(spec.sizes.clone()), is_written));
            return Some(spec);
        };
        let sizes = view.capacities();
        let strides = aten::contiguous_strides(&sizes);
        self.views.push((view, is_written));
        Some(TensorSpec { sizes, strides, offset: 0, ..spec })
    }
}
