//! A builder for one function. Values are typed and checked when they are created.
//!
//! Methods do not panic and return no `Result`. After a mistake the builder continues with a value of the requested
//! type. It keeps the mistake ([`crate::Refusal`]), and [`Builder::finish`] returns it. So a formula can be written
//! as `(x - mean) * rstd`.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt::{self, Write};
use std::rc::Rc;

use error::{Error, Result};

use crate::bounds::Extent;
use crate::dtype::{DType, Number};
use crate::refusal::{Refusal, overflow_of};

/// The precision of float32 matrix products and convolutions (XLA's precision config).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Precision {
    Default,
    High,
    #[default]
    Highest,
}

/// A tensor's element type and sizes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Type {
    pub dtype: DType,
    pub dims: Vec<i64>,
}

impl Type {
    pub fn new(dtype: DType, dims: &[i64]) -> Type {
        Type { dtype, dims: dims.to_vec() }
    }

    /// The number of elements; the largest integer if there are more.
    pub fn numel(&self) -> i64 {
        self.dims.iter().fold(1, |product, &dim| product.saturating_mul(dim))
    }

    pub fn size_bytes(&self) -> usize {
        (self.numel() as usize).saturating_mul(self.dtype.size_bytes())
    }

    /// Whether an int64 does not hold its size in bytes, or would not if each dimension had an element. XLA refuses such
    /// a type, or throws an exception.
    fn is_beyond_addresses(&self) -> bool {
        let sizes = self.dims.iter().map(|&dim| dim.max(1));
        sizes.fold(self.dtype.size_bytes() as i64, i64::saturating_mul) == i64::MAX
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("tensor<")?;
        for dim in &self.dims {
            write!(f, "{dim}x")?;
        }
        write!(f, "{}>", self.dtype)
    }
}

/// The element of a value whose elements are all the same.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Uniform {
    Number(Number),
    /// The 0-d parameter with this number.
    Parameter(usize),
}

/// A finished function. It can be printed under any name.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    pub params: Vec<Type>,
    pub results: Vec<Type>,
    /// The element of the result, if there is one result and all of its elements are known to be the same.
    pub uniform: Option<Uniform>,
    /// The text of other functions that it calls; see [`Builder::call`].
    pub functions: Vec<String>,
    signature: String,
    body: String,
}

impl Function {
    /// The function as text. `attributes` has one attribute dictionary for each parameter (such as `{jax.buffer_donor
    /// = true}`), or is empty.
    pub fn print(&self, name: &str, visibility: &str, attributes: &[&str]) -> String {
        let mut text = String::with_capacity(self.body.len() + 256);
        let _ = write!(text, "func.func {visibility} @{name}(");
        let mut names = self.signature.split(' ');
        for (i, param) in self.params.iter().enumerate() {
            let separator = if i == 0 { "" } else { ", " };
            let value = names.next().unwrap_or_default();
            let attribute = attributes.get(i).copied().unwrap_or_default();
            let _ = write!(text, "{separator}{value}: {param} {attribute}");
        }
        let _ = write!(text, ") -> ({}) {{\n{}}}\n", join(&self.results), self.body);
        text
    }

    /// A module whose only function is this one, as `@main`.
    pub fn module(&self, attributes: &[&str]) -> String {
        format!("module @torchtpu {{\n{}{}}}\n", self.print("main", "public", attributes), self.functions.concat())
    }
}

/// The compiler that the function is for. Some values can be written in several ways, which compilers treat
/// differently.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Target {
    /// XLA's compiler for the host's processor.
    Cpu,
    /// XLA's compiler for TPUs.
    Tpu,
    #[default]
    Other,
}

/// Builds one function. See the [module documentation](self).
#[derive(Default)]
pub struct Builder {
    types: RefCell<Vec<Type>>,
    params: RefCell<Vec<u32>>,
    body: RefCell<String>,
    functions: RefCell<Vec<String>>,
    pub(crate) refusal: RefCell<Option<Refusal>>,
    precision: Cell<Precision>,
    follows_precision: Cell<bool>,
    pub(crate) target: Target,
    /// The nesting depth of the regions being built.
    regions: Cell<u32>,
    /// The sizes of bounded dimensions with their capacities, and the extents of the values with such dimensions.
    pub(crate) sizes: RefCell<Vec<(u32, i64)>>,
    pub(crate) extents: RefCell<HashMap<u32, Rc<[Extent]>>>,
    /// The operands of reshapes, by the id of the result.
    pub(crate) reshapes: RefCell<HashMap<u32, u32>>,
    /// The operands and permutations of transposes, by the id of the result.
    pub(crate) transposes: RefCell<HashMap<u32, (u32, Vec<usize>)>>,
    /// The elements of values that are known to have only one, by the id of the value.
    pub(crate) uniforms: RefCell<HashMap<u32, Uniform>>,
}

/// A value of the function under construction.
#[derive(Clone, Copy)]
pub struct Value<'b> {
    pub(crate) builder: &'b Builder,
    pub(crate) id: u32,
}

impl Builder {
    pub fn new(precision: Precision, target: Target) -> Builder {
        Builder { precision: Cell::new(precision), target, ..Builder::default() }
    }

    /// What the program is made for.
    pub fn target(&self) -> Target {
        self.target
    }

    pub fn precision(&self) -> Precision {
        self.follows_precision.set(true);
        self.precision.get()
    }

    /// Whether the function depends on the precision.
    pub fn follows_precision(&self) -> bool {
        self.follows_precision.get()
    }

    /// Builds with another precision, for products that must not use the user's setting.
    pub fn with_precision<T>(&self, precision: Precision, build: impl FnOnce() -> T) -> T {
        let before = self.precision.replace(precision);
        let result = build();
        self.precision.set(before);
        result
    }

    /// A new parameter. It may be added at any time; parameters are in the order of the calls.
    pub fn parameter(&self, ty: Type) -> Value<'_> {
        let is_number = ty.dims.is_empty();
        let value = self.value(ty);
        let mut params = self.params.borrow_mut();
        if is_number {
            self.uniforms.borrow_mut().insert(value.id, Uniform::Parameter(params.len()));
        }
        params.push(value.id);
        value
    }

    /// A 0-d constant.
    pub fn scalar(&self, number: impl Into<Number>, dtype: DType) -> Value<'_> {
        self.splat(number, dtype, &[])
    }

    /// A constant whose elements are all `number`.
    pub fn splat(&self, number: impl Into<Number>, dtype: DType, dims: &[i64]) -> Value<'_> {
        if dtype.is_float8() {
            return self.splat(number, DType::F32, dims).convert(dtype);
        }
        let ty = Type::new(dtype, dims);
        let number = number.into();
        if dtype == DType::F4E2M1FNX2 && !number.is_zero() {
            self.refuse(Refusal::ElementType(dtype));
        }
        let literal = number.literal(dtype);
        let text = format!("\"stablehlo.constant\"() {{value = dense<{literal}> : {ty}}} : () -> {ty}");
        let value = self.line(ty, &text);
        self.uniforms.borrow_mut().insert(value.id, Uniform::Number(number));
        value
    }

    /// A constant with the given elements, in row-major order.
    pub fn constant<N: Into<Number> + Copy>(&self, numbers: &[N], dtype: DType, dims: &[i64]) -> Value<'_> {
        if dtype.is_float8() {
            return self.constant(numbers, DType::F32, dims).convert(dtype);
        }
        let ty = Type::new(dtype, dims);
        if numbers.len() as i64 != ty.numel() {
            return self.fail(format!("constant of {ty} from {} numbers", numbers.len()), ty);
        }
        if numbers.is_empty() {
            return self.splat(0, dtype, dims);
        }
        // MLIR requires nested brackets for a shaped literal. A flat list and a reshape are equivalent.
        let elements: Vec<String> = numbers.iter().map(|&n| n.into().literal(dtype)).collect();
        let flat = Type::new(dtype, &[numbers.len() as i64]);
        let list = format!("[{}]", elements.join(", "));
        let text = format!("\"stablehlo.constant\"() {{value = dense<{list}> : {flat}}} : () -> {flat}");
        self.line(flat, &text).reshape(dims)
    }

    /// Keeps a mistake and returns a placeholder of type `ty`.
    pub fn fail(&self, message: impl Into<String>, ty: Type) -> Value<'_> {
        self.refuse(Refusal::Mistake(message.into()));
        self.value(ty)
    }

    /// Emits `name(operands) {attributes} : types`, with one result. Refuses bounded operands.
    pub fn op<'b>(&'b self, name: &str, operands: &[Value<'b>], attributes: &str, ty: Type) -> Value<'b> {
        self.refuse_bounded_operands(name, operands);
        self.emit(name, operands, attributes, ty)
    }

    /// [`Builder::op`] for callers that set the extents of the result.
    pub(crate) fn emit<'b>(&'b self, name: &str, operands: &[Value<'b>], attributes: &str, ty: Type) -> Value<'b> {
        self.check_element_type(name, operands);
        let text =
            format!("\"{name}\"({}) {{{attributes}}} : ({}) -> {ty}", self.names(operands), self.type_list(operands),);
        self.line(ty, &text)
    }

    /// Emits an operation with regions and any number of results. Each region is a text from [`Builder::region`].
    /// Refuses bounded operands.
    pub fn op_with_regions<'b>(
        &'b self,
        name: &str,
        operands: &[Value<'b>],
        regions: &[String],
        attributes: &str,
        types: Vec<Type>,
    ) -> Vec<Value<'b>> {
        self.refuse_bounded_operands(name, operands);
        self.emit_with_regions(name, operands, regions, attributes, types)
    }

    /// [`Builder::op_with_regions`] for callers that set the extents of the results.
    pub(crate) fn emit_with_regions<'b>(
        &'b self,
        name: &str,
        operands: &[Value<'b>],
        regions: &[String],
        attributes: &str,
        types: Vec<Type>,
    ) -> Vec<Value<'b>> {
        self.check_element_type(name, operands);
        let regions = if regions.is_empty() { String::new() } else { format!(" ({})", regions.join(", ")) };
        let text = format!(
            "\"{name}\"({}){regions} {{{attributes}}} : ({}) -> ({})",
            self.names(operands),
            self.type_list(operands),
            join(&types),
        );
        let results: Vec<Value<'b>> = types.into_iter().map(|ty| self.value(ty)).collect();
        let mut body = self.body.borrow_mut();
        match results.as_slice() {
            [] => {}
            [one] => {
                let _ = write!(body, "%v{} = ", one.id);
            }
            // Each result has its own name, so that the name of a value only depends on its id.
            many => {
                let names: Vec<String> = many.iter().map(|v| format!("%v{}", v.id)).collect();
                let _ = write!(body, "{} = ", names.join(", "));
            }
        }
        body.push_str(&text);
        body.push('\n');
        drop(body);
        results
    }

    /// Calls a function of another module. `functions` is the text of that module's functions, `entry` the name of
    /// the function to call. No other text may contain functions with these names.
    pub fn call<'b>(
        &'b self,
        functions: String,
        entry: &str,
        operands: &[Value<'b>],
        types: Vec<Type>,
    ) -> Vec<Value<'b>> {
        let mut called = self.functions.borrow_mut();
        if !called.contains(&functions) {
            called.push(functions);
        }
        self.op_with_regions("func.call", operands, &[], &format!("callee = @{entry}"), types)
    }

    /// The text of a region whose block takes `params` and returns what `build` returns. Values of the enclosing
    /// function may only be used if the operation allows capturing.
    pub fn region<'b>(&'b self, params: &[Type], build: impl FnOnce(&[Value<'b>]) -> Vec<Value<'b>>) -> String {
        let arguments: Vec<Value<'b>> = params.iter().map(|ty| self.value(ty.clone())).collect();
        let outer = self.body.take();
        self.regions.set(self.regions.get() + 1);
        let results = build(&arguments);
        self.regions.set(self.regions.get() - 1);
        let inner = self.body.replace(outer);
        let arguments: Vec<String> = arguments.iter().zip(params).map(|(v, ty)| format!("%v{}: {ty}", v.id)).collect();
        let block = if arguments.is_empty() { String::new() } else { format!("^bb0({}):\n", arguments.join(", ")) };
        format!(
            "{{\n{block}{inner}\"stablehlo.return\"({}) : ({}) -> ()\n}}",
            self.names(&results),
            self.type_list(&results)
        )
    }

    /// Whether a region is being built.
    pub fn is_in_region(&self) -> bool {
        self.regions.get() > 0
    }

    /// Finishes the function. Takes the builder by reference, because its values borrow it.
    pub fn finish(&self, results: &[Value<'_>]) -> Result<Function> {
        if let Some(Refusal::Mistake(message)) = self.refusal() {
            return Err(Error::runtime(format!("internal error in a lowering: {message}")));
        }
        if let Some(Refusal::Sizes(sizes)) = self.refusal() {
            return Err(overflow_of(&sizes));
        }
        let mut body = self.body.take();
        let _ = writeln!(body, "\"func.return\"({}) : ({}) -> ()", self.names(results), self.type_list(results));
        let types = self.types.borrow();
        let params = self.params.borrow();
        let uniform = match results {
            [result] => self.uniforms.borrow().get(&result.id).copied(),
            _ => None,
        };
        let signature: Vec<String> = params.iter().map(|id| format!("%v{id}")).collect();
        Ok(Function {
            params: params.iter().map(|&id| types[id as usize].clone()).collect(),
            results: results.iter().map(|v| types[v.id as usize].clone()).collect(),
            uniform,
            functions: self.functions.take(),
            signature: signature.join(" "),
            body,
        })
    }

    fn value(&self, ty: Type) -> Value<'_> {
        if ty.is_beyond_addresses() {
            self.refuse(Refusal::Sizes(ty.dims.clone()));
        }
        let mut types = self.types.borrow_mut();
        types.push(ty);
        Value { builder: self, id: types.len() as u32 - 1 }
    }

    fn line(&self, ty: Type, text: &str) -> Value<'_> {
        let value = self.value(ty);
        let mut body = self.body.borrow_mut();
        let _ = writeln!(body, "%v{} = {text}", value.id);
        value
    }

    fn names(&self, values: &[Value<'_>]) -> String {
        let names: Vec<String> = values.iter().map(|v| format!("%v{}", v.id)).collect();
        names.join(", ")
    }

    fn type_list(&self, values: &[Value<'_>]) -> String {
        let types = self.types.borrow();
        let list: Vec<String> = values.iter().map(|v| types[v.id as usize].to_string()).collect();
        list.join(", ")
    }
}

impl<'b> Value<'b> {
    pub fn builder(self) -> &'b Builder {
        self.builder
    }

    /// Whether both are the same value of the function.
    pub fn is(self, other: Value<'b>) -> bool {
        self.id == other.id
    }

    pub fn ty(self) -> Type {
        self.builder.types.borrow()[self.id as usize].clone()
    }

    pub fn dtype(self) -> DType {
        self.builder.types.borrow()[self.id as usize].dtype
    }

    pub fn dims(self) -> Vec<i64> {
        self.ty().dims
    }

    pub fn dim(self, axis: usize) -> i64 {
        self.builder.types.borrow()[self.id as usize].dims[axis]
    }

    pub fn rank(self) -> usize {
        self.builder.types.borrow()[self.id as usize].dims.len()
    }

    pub fn numel(self) -> i64 {
        self.ty().numel()
    }
}

impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%v{}: {}", self.id, self.ty())
    }
}

pub(crate) fn join<T: ToString>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// An `array<i64: …>` attribute.
pub(crate) fn array(items: &[i64]) -> String {
    if items.is_empty() { "array<i64>".into() } else { format!("array<i64: {}>", join(items)) }
}
