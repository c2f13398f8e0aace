//! Convolutions, windows, gathers and scatters: operations described by a struct.

use crate::Builder;
use crate::bounds::Extent;
use crate::builder::{Precision, Target, Type, Value, array, join};
use crate::dtype::DType;
use crate::refusal::Refusal;

/// A window over all dimensions of an operand.
#[derive(Clone, Debug)]
pub struct Window {
    pub sizes: Vec<i64>,
    pub strides: Vec<i64>,
    pub base_dilations: Vec<i64>,
    pub window_dilations: Vec<i64>,
    /// `(low, high)` of each dimension. May be negative.
    pub padding: Vec<(i64, i64)>,
}

impl Window {
    /// A window of size 1 in all dimensions, to be modified.
    pub fn unit(rank: usize) -> Window {
        Window {
            sizes: vec![1; rank],
            strides: vec![1; rank],
            base_dilations: vec![1; rank],
            window_dilations: vec![1; rank],
            padding: vec![(0, 0); rank],
        }
    }

    /// The size of dimension `i` of the result, if the operand has `size` elements there.
    pub fn output_size(&self, i: usize, size: i64) -> i64 {
        let dilated = |n: i64, by: i64| if n == 0 { 0 } else { (n - 1) * by + 1 };
        let base = dilated(size, self.base_dilations[i]) + self.padding[i].0 + self.padding[i].1;
        let window = dilated(self.sizes[i], self.window_dilations[i]);
        if base < window { 0 } else { (base - window) / self.strides[i] + 1 }
    }

    /// Whether the window does not change dimension `i`.
    fn is_unit_along(&self, i: usize) -> bool {
        self.sizes[i] == 1 && self.strides[i] == 1 && self.base_dilations[i] == 1 && self.padding[i] == (0, 0)
    }

    fn padding_attribute(&self) -> String {
        padding_attribute(&self.padding)
    }
}

fn padding_attribute(padding: &[(i64, i64)]) -> String {
    if padding.is_empty() {
        return "padding = dense<> : tensor<0x2xi64>".into();
    }
    let pairs: Vec<String> = padding.iter().map(|(low, high)| format!("[{low}, {high}]")).collect();
    format!("padding = dense<[{}]> : tensor<{}x2xi64>", pairs.join(", "), padding.len())
}

/// A convolution. Every list has one element for each spatial dimension. The dimension numbers give the batch,
/// feature and spatial dimensions of each operand.
#[derive(Clone, Debug)]
pub struct Convolution {
    pub strides: Vec<i64>,
    pub padding: Vec<(i64, i64)>,
    pub lhs_dilation: Vec<i64>,
    pub rhs_dilation: Vec<i64>,
    pub feature_groups: i64,
    pub batch_groups: i64,
    /// Batch, feature, then spatial dimensions of the input.
    pub input: Vec<usize>,
    /// Output feature, input feature, then spatial dimensions of the kernel.
    pub kernel: Vec<usize>,
    /// Batch, feature, then spatial dimensions of the output.
    pub output: Vec<usize>,
    /// Whether the kernel is mirrored along each spatial dimension.
    pub reversal: Vec<bool>,
}

/// The kinds of Fourier transforms: complex, its inverse, real, its inverse.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fft {
    Fft,
    Ifft,
    Rfft,
    Irfft,
}

impl Convolution {
    /// Strides and dilations of 1, no padding, batch and feature first, as in PyTorch.
    pub fn standard(spatial: usize) -> Convolution {
        let order: Vec<usize> = (0..spatial + 2).collect();
        Convolution {
            strides: vec![1; spatial],
            padding: vec![(0, 0); spatial],
            lhs_dilation: vec![1; spatial],
            rhs_dilation: vec![1; spatial],
            feature_groups: 1,
            batch_groups: 1,
            input: order.clone(),
            kernel: order.clone(),
            output: order,
            reversal: vec![false; spatial],
        }
    }
}

/// The attributes of `stablehlo.gather`, with the names of its specification.
#[derive(Clone, Debug, Default)]
pub struct Gather {
    pub offset_dims: Vec<i64>,
    pub collapsed_slice_dims: Vec<i64>,
    pub operand_batching_dims: Vec<i64>,
    pub start_indices_batching_dims: Vec<i64>,
    pub start_index_map: Vec<i64>,
    pub index_vector_dim: i64,
    pub slice_sizes: Vec<i64>,
    pub indices_are_sorted: bool,
}

/// The attributes of `stablehlo.scatter`, with the names of its specification.
#[derive(Clone, Debug, Default)]
pub struct Scatter {
    pub update_window_dims: Vec<i64>,
    pub inserted_window_dims: Vec<i64>,
    pub input_batching_dims: Vec<i64>,
    pub scatter_indices_batching_dims: Vec<i64>,
    pub scatter_dims_to_operand_dims: Vec<i64>,
    pub index_vector_dim: i64,
    pub indices_are_sorted: bool,
    pub unique_indices: bool,
}

impl Scatter {
    /// The indices, set out of range where the updates are padding. Such updates are dropped.
    fn without_padded_updates<'b>(&self, operand: Value<'b>, indices: Value<'b>, updates: Value<'b>) -> Value<'b> {
        let vector = self.index_vector_dim as usize;
        let mut extents = indices.extents();
        let own = (0..indices.rank()).filter(|&i| i != vector);
        let scattered = (0..updates.rank()).filter(|i| !self.update_window_dims.contains(&(*i as i64)));
        for (i, j) in own.zip(scattered) {
            extents[i] = indices.common_extent(i, updates, j);
        }
        let kept = (0..operand.rank()).filter(|i| {
            let i = *i as i64;
            !self.inserted_window_dims.contains(&i) && !self.input_batching_dims.contains(&i)
        });
        for (i, &j) in kept.zip(&self.update_window_dims) {
            // A window that is bounded in a dimension where the operand is not would write its padding.
            let (of_operand, of_update) = (operand.extent(i), updates.extent(j as usize));
            if !of_update.is_whole() && of_operand != of_update {
                operand.builder.refuse_bounded("an update with a bounded window");
            }
        }
        for (&i, &j) in self.input_batching_dims.iter().zip(&self.scatter_indices_batching_dims) {
            // The first elements of both have the same places.
            if !(operand.extent(i as usize).is_prefix() && indices.extent(j as usize).is_prefix()) {
                operand.common_extent(i as usize, indices, j as usize);
            }
        }
        let axes: Vec<usize> = (0..extents.len()).filter(|&i| i != vector && !extents[i].is_whole()).collect();
        match axes.is_empty() {
            true => indices,
            false => indices.masked_by(&extents, &axes, operand.builder.scalar(-1, indices.dtype())),
        }
    }
}

/// Whether the pairs of dimensions that an operand and its indices share are equally long.
fn same_batch<'i>(operand: Value<'_>, indices: Value<'_>, mut pairs: impl Iterator<Item = (&'i i64, &'i i64)>) -> bool {
    pairs.all(|(&i, &j)| operand.dim(i as usize) == indices.dim(j as usize))
}

fn brackets(items: &[i64]) -> String {
    format!("[{}]", join(items))
}

impl<'b> Value<'b> {
    /// Both values with zeros in the padding of the contracted pairs of dimensions. Both are needed, because a
    /// padding may be NaN.
    pub(crate) fn zero_padded_pair(self, other: Value<'b>, pairs: &[(usize, usize)]) -> (Value<'b>, Value<'b>) {
        let (mut of_self, mut of_other) = (self.extents(), other.extents());
        for &(i, j) in pairs {
            let extent = self.common_extent(i, other, j);
            (of_self[i], of_other[j]) = (extent.clone(), extent);
        }
        let (axes, other_axes): (Vec<usize>, Vec<usize>) = pairs.iter().copied().unzip();
        let zero = |value: Value<'b>| value.builder.scalar(0, value.dtype());
        match pairs.iter().any(|&(i, _)| !of_self[i].is_whole()) {
            true => (self.masked_by(&of_self, &axes, zero(self)), other.masked_by(&of_other, &other_axes, zero(other))),
            false => (self, other),
        }
    }

    /// The precision of a product of this value and another.
    pub(crate) fn precision_attribute(self, other: Value<'b>) -> String {
        // The default rounds to bfloat16 at most. Of these dtypes, some chips' compilers take no other precision.
        let is_exact = |dtype: DType| dtype == DType::BF16 || dtype.is_float8();
        let precision = match is_exact(self.dtype()) && is_exact(other.dtype()) {
            true => Precision::Default,
            false => self.builder.precision(),
        };
        let name = match precision {
            Precision::Default => "DEFAULT",
            Precision::High => "HIGH",
            Precision::Highest => "HIGHEST",
        };
        let one = format!("#stablehlo<precision {name}>");
        format!("precision_config = [{one}, {one}]")
    }

    /// `stablehlo.convolution` of this input with `kernel`.
    pub fn convolution(self, kernel: Value<'b>, c: &Convolution) -> Value<'b> {
        if self.is_paired() {
            self.builder.refuse(Refusal::Target("TPUs have no convolutions of 64-bit integers"));
        }
        let (input, filter) = (self.dims(), kernel.dims());
        let spatial = c.strides.len();
        let mut dims = vec![0; spatial + 2];
        let mut window = Window::unit(spatial);
        window.strides = c.strides.clone();
        window.base_dilations = c.lhs_dilation.clone();
        window.window_dilations = c.rhs_dilation.clone();
        window.padding = c.padding.clone();
        window.sizes = (0..spatial).map(|i| filter[c.kernel[i + 2]]).collect();
        dims[c.output[0]] = input[c.input[0]] / c.batch_groups;
        dims[c.output[1]] = filter[c.kernel[0]];
        for i in 0..spatial {
            dims[c.output[i + 2]] = window.output_size(i, input[c.input[i + 2]]);
        }
        let ty = Type::new(self.dtype(), &dims);
        if filter[c.kernel[1]] * c.feature_groups != input[c.input[1]] {
            return self.builder.fail(format!("convolution of {self:?} with {kernel:?}: {c:?}"), ty);
        }
        let numbers = |first: &str, second: &str, order: &[usize]| -> String {
            let mut names = vec![String::new(); order.len()];
            names[order[0]] = first.into();
            names[order[1]] = second.into();
            for (i, &place) in order[2..].iter().enumerate() {
                names[place] = i.to_string();
            }
            format!("[{}]", names.join(", "))
        };
        let reversal: Vec<String> = c.reversal.iter().map(bool::to_string).collect();
        let reversal = if spatial == 0 { "array<i1>".into() } else { format!("array<i1: {}>", reversal.join(", ")) };
        let attributes = format!(
            "window_strides = {}, {}, lhs_dilation = {}, rhs_dilation = {}, window_reversal = {reversal}, \
             dimension_numbers = #stablehlo.conv<{}x{}->{}>, feature_group_count = {} : i64, \
             batch_group_count = {} : i64, {}",
            array(&c.strides),
            padding_attribute(&c.padding),
            array(&c.lhs_dilation),
            array(&c.rhs_dilation),
            numbers("b", "f", &c.input),
            numbers("o", "i", &c.kernel),
            numbers("b", "f", &c.output),
            c.feature_groups,
            c.batch_groups,
            self.precision_attribute(kernel)
        );
        let grouped = c.feature_groups != 1 || c.batch_groups != 1;
        let spatial_bounded = self.is_bounded_along(&c.input[2..]) || kernel.is_bounded_along(&c.kernel[2..]);
        if spatial_bounded || grouped && (self.is_bounded_along(&[c.input[1]]) || kernel.is_bounded()) {
            self.builder.refuse_bounded("a convolution along a bounded dimension");
        }
        if c.batch_groups != 1 {
            self.builder.refuse_bounded_operands("a convolution in groups", &[self]);
        }
        let mut extents = vec![Extent::default(); spatial + 2];
        (extents[c.output[0]], extents[c.output[1]]) = (self.extent(c.input[0]), kernel.extent(c.kernel[0]));
        let (input, filter) = match c.feature_groups {
            1 => self.zero_padded_pair(kernel, &[(c.input[1], c.kernel[1])]),
            _ => (self, kernel),
        };
        self.builder.emit("stablehlo.convolution", &[input, filter], &attributes, ty).with_extents(extents)
    }

    /// `stablehlo.gather` with integer `indices`.
    pub fn gather(self, indices: Value<'b>, g: &Gather) -> Value<'b> {
        let index_dims = indices.dims();
        let vector = g.index_vector_dim as usize;
        let mut batch = index_dims.iter().enumerate().filter(|(i, _)| *i != vector).map(|(_, &d)| d);
        let mut window = (0..g.slice_sizes.len() as i64)
            .filter(|i| !g.collapsed_slice_dims.contains(i) && !g.operand_batching_dims.contains(i))
            .map(|i| g.slice_sizes[i as usize]);
        let batch_rank = index_dims.len() - usize::from(vector < index_dims.len());
        let rank = batch_rank + g.offset_dims.len();
        let dims: Vec<i64> = (0..rank as i64)
            .map(|i| if g.offset_dims.contains(&i) { window.next() } else { batch.next() }.unwrap_or(1))
            .collect();
        let attributes = format!(
            "dimension_numbers = #stablehlo.gather<offset_dims = {}, collapsed_slice_dims = {}, \
             operand_batching_dims = {}, start_indices_batching_dims = {}, start_index_map = {}, \
             index_vector_dim = {}>, slice_sizes = {}, indices_are_sorted = {}",
            brackets(&g.offset_dims),
            brackets(&g.collapsed_slice_dims),
            brackets(&g.operand_batching_dims),
            brackets(&g.start_indices_batching_dims),
            brackets(&g.start_index_map),
            g.index_vector_dim,
            array(&g.slice_sizes),
            g.indices_are_sorted
        );
        let pairs = g.operand_batching_dims.iter().zip(&g.start_indices_batching_dims);
        let ty = Type::new(self.dtype(), &dims);
        if !same_batch(self, indices, pairs) {
            return self.builder.fail(format!("gather of {self:?} at {indices:?}"), ty);
        }
        // Indexed elements are valid, and at the index that they would have without padding.
        let (named, walked): (Vec<usize>, Vec<usize>) =
            (0..self.rank()).partition(|i| g.start_index_map.contains(&(*i as i64)));
        for axis in named {
            self.require_prefix(axis, "an index into merged dimensions");
            if g.slice_sizes[axis] != 1 {
                self.extents_if("a slice", |i| i != axis);
            }
        }
        let own: Vec<usize> = (0..index_dims.len()).filter(|&i| i != vector).collect();
        let mut of_batch = own.into_iter().map(|i| {
            let pair = g.start_indices_batching_dims.iter().position(|&dim| dim == i as i64);
            pair.map_or_else(
                || indices.extent(i),
                |k| indices.common_extent(i, self, g.operand_batching_dims[k] as usize),
            )
        });
        let mut of_window = walked
            .into_iter()
            .chain(g.start_index_map.iter().map(|&i| i as usize))
            .filter(|&i| {
                !g.collapsed_slice_dims.contains(&(i as i64)) && !g.operand_batching_dims.contains(&(i as i64))
            })
            .collect::<Vec<_>>();
        of_window.sort_unstable();
        let mut of_window = of_window.into_iter().map(|i| self.extent(i));
        let extents: Vec<Extent> = (0..rank as i64)
            .map(|i| if g.offset_dims.contains(&i) { of_window.next() } else { of_batch.next() }.unwrap_or_default())
            .collect();
        self.builder.emit("stablehlo.gather", &[self, indices], &attributes, ty).with_extents(extents)
    }

    /// `stablehlo.scatter` of `updates` at integer `indices`. Updates whose index is out of range are dropped.
    /// `combine` gets the old element and the update, 0-d.
    pub fn scatter(
        self,
        indices: Value<'b>,
        updates: Value<'b>,
        s: &Scatter,
        combine: impl FnOnce(Value<'b>, Value<'b>) -> Value<'b>,
    ) -> Value<'b> {
        let pairs = s.input_batching_dims.iter().zip(&s.scatter_indices_batching_dims);
        if self.dtype() != updates.dtype() || !same_batch(self, indices, pairs) {
            return self.builder.fail(format!("scatter of {updates:?} into {self:?}"), self.ty());
        }
        let scalar = Type::new(self.dtype(), &[]);
        let region = self.builder.region(&[scalar.clone(), scalar], |args| vec![combine(args[0], args[1])]);
        let attributes = format!(
            "scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = {}, inserted_window_dims = {}, \
             input_batching_dims = {}, scatter_indices_batching_dims = {}, scatter_dims_to_operand_dims = {}, \
             index_vector_dim = {}>, indices_are_sorted = {}, unique_indices = {}",
            brackets(&s.update_window_dims),
            brackets(&s.inserted_window_dims),
            brackets(&s.input_batching_dims),
            brackets(&s.scatter_indices_batching_dims),
            brackets(&s.scatter_dims_to_operand_dims),
            s.index_vector_dim,
            s.indices_are_sorted,
            s.unique_indices
        );
        for &axis in &s.scatter_dims_to_operand_dims {
            self.require_prefix(axis as usize, "an index into merged dimensions");
        }
        let indices = s.without_padded_updates(self, indices, updates);
        let operands = [self, indices, updates.before_write()];
        let result =
            self.builder.emit_with_regions("stablehlo.scatter", &operands, &[region], &attributes, vec![self.ty()])[0];
        result.with_extents(self.extents())
    }

    /// `stablehlo.select_and_scatter`: adds each element of `source` at the position in its window that `select`
    /// prefers (`select(a, b)` keeps `a`).
    pub fn select_and_scatter(
        self,
        source: Value<'b>,
        window: &Window,
        select: impl FnOnce(Value<'b>, Value<'b>) -> Value<'b>,
    ) -> Value<'b> {
        let scalar = Type::new(self.dtype(), &[]);
        let pair = [scalar.clone(), scalar];
        let select = self.builder.region(&pair, |args| vec![select(args[0], args[1])]);
        let scatter = self.builder.region(&pair, |args| vec![args[0] + args[1]]);
        let zero = self.builder.scalar(0, self.dtype());
        let attributes = format!(
            "window_dimensions = {}, window_strides = {}, {}",
            array(&window.sizes),
            array(&window.strides),
            window.padding_attribute()
        );
        let operands = [self, source, zero];
        let types = vec![self.ty()];
        let untouched = |i: usize| window.is_unit_along(i);
        self.extents_if("a window", untouched);
        source.extents_if("a window", untouched);
        let extents: Vec<Extent> = (0..self.rank())
            .map(|i| if untouched(i) { self.common_extent(i, source, i) } else { Extent::default() })
            .collect();
        let regions = [select, scatter];
        let name = "stablehlo.select_and_scatter";
        self.builder.emit_with_regions(name, &operands, &regions, &attributes, types)[0].with_extents(extents)
    }

    /// `stablehlo.fft` along the last dimension. `size` is the number of elements on the real side, or on the complex
    /// side if both are complex.
    pub fn fft(self, kind: Fft, size: i64) -> Value<'b> {
        let mut ty = self.ty();
        if self.builder.target == Target::Tpu && ty.dtype.real() == DType::F64 {
            self.builder.refuse(Refusal::Target("TPUs have no Fourier transforms in double precision"));
        }
        let half = size / 2 + 1;
        let (name, from, to) = match kind {
            Fft::Fft => ("FFT", size, size),
            Fft::Ifft => ("IFFT", size, size),
            Fft::Rfft => ("RFFT", size, half),
            Fft::Irfft => ("IRFFT", half, size),
        };
        if ty.dims.last() != Some(&from) || ty.dtype.is_complex() == matches!(kind, Fft::Rfft) {
            return self.builder.fail(format!("{name} of {size} elements of {self:?}"), ty);
        }
        ty.dims.pop();
        ty.dims.push(to);
        ty.dtype = match kind {
            Fft::Irfft => ty.dtype.real(),
            _ => ty.dtype.complex(),
        };
        let attributes = format!("fft_type = #stablehlo<fft_type {name}>, fft_length = {}", array(&[size]));
        let last = self.rank() - 1;
        let extents = self.extents_if("a Fourier transform", |axis| axis != last);
        self.builder.emit("stablehlo.fft", &[self], &attributes, ty).with_extents(extents)
    }

    /// Lower-triangular Cholesky factors of the last two dimensions.
    pub fn cholesky(self) -> Value<'b> {
        self.builder.op("stablehlo.cholesky", &[self], "lower = true", self.ty())
    }

    /// Solves `self · X = other` (or `X · self = other` unless `left`) for a triangular `self`.
    pub fn triangular_solve(
        self,
        other: Value<'b>,
        left: bool,
        lower: bool,
        unit_diagonal: bool,
        transpose: bool,
    ) -> Value<'b> {
        let transpose = if transpose { "TRANSPOSE" } else { "NO_TRANSPOSE" };
        let attributes = format!(
            "left_side = {left}, lower = {lower}, unit_diagonal = {unit_diagonal}, \
             transpose_a = #stablehlo<transpose {transpose}>"
        );
        self.builder.op("stablehlo.triangular_solve", &[self, other], &attributes, other.ty())
    }
}

impl Builder {
    /// `stablehlo.reduce_window` of several operands of one shape.
    pub fn reduce_window<'b>(
        &'b self,
        operands: &[Value<'b>],
        initial: &[Value<'b>],
        window: &Window,
        combine: impl FnOnce(&[Value<'b>], &[Value<'b>]) -> Vec<Value<'b>>,
    ) -> Vec<Value<'b>> {
        let count = operands.len();
        let scalars: Vec<Type> = operands.iter().chain(operands).map(|v| Type::new(v.dtype(), &[])).collect();
        let region = self.region(&scalars, |args| combine(&args[..count], &args[count..]));
        let results = operands
            .iter()
            .map(|v| {
                let dims = v.dims();
                Type { dtype: v.dtype(), dims: (0..dims.len()).map(|i| window.output_size(i, dims[i])).collect() }
            })
            .collect();
        let attributes = format!(
            "window_dimensions = {}, window_strides = {}, base_dilations = {}, window_dilations = {}, {}",
            array(&window.sizes),
            array(&window.strides),
            array(&window.base_dilations),
            array(&window.window_dilations),
            window.padding_attribute()
        );
        let extents = self.merged(operands);
        operands.iter().for_each(|operand| {
            operand.extents_if("a window", |i| window.is_unit_along(i));
        });
        let all: Vec<Value<'b>> = operands.iter().chain(initial).copied().collect();
        let results = self.emit_with_regions("stablehlo.reduce_window", &all, &[region], &attributes, results);
        results.into_iter().map(|result| result.with_extents(extents.clone())).collect()
    }

    /// `stablehlo.custom_call`: an operation that the compiler implements by name. `config` has its parameters.
    pub fn custom_call<'b>(
        &'b self,
        target: &str,
        operands: &[Value<'b>],
        config: &str,
        results: Vec<Type>,
    ) -> Vec<Value<'b>> {
        let attributes = format!("call_target_name = \"{target}\", backend_config = \"{config}\"");
        self.op_with_regions("stablehlo.custom_call", operands, &[], &attributes, results)
    }
}
