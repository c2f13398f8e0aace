//! The parameters of a lowered function.

use std::cell::{Cell, RefCell};

use stablehlo::{Builder, DType, Type, Value};

use crate::check::Check;
use crate::draw::Draw;
use crate::number_check::NumberCheck;
use crate::spec::{StorageSpec, TensorSpec};
use crate::view;

/// The source of a parameter of the lowered function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParamSource {
    /// The base value of one of the call's storages.
    Storage(usize),
    /// The `index`-th number of the call that is not baked in, converted to `dtype`.
    Scalar { index: usize, dtype: DType },
    /// The offset of the call's `i`-th tensor argument, as int64.
    Offset(usize),
    /// A size that is an input of the program, as int64.
    Size(u32),
    /// `tensor<2xui64>`: the generator's key and counter.
    RandomState,
}

/// The function's parameters. Each is created at its first read, so a program takes only what it reads.
pub(crate) struct Inputs<'b> {
    pub builder: &'b Builder,
    storages: Vec<StorageSpec>,
    made: RefCell<Vec<(ParamSource, Value<'b>)>>,
    /// The random state after the draws so far, and the number of 128-bit blocks drawn.
    random: Cell<Option<Value<'b>>>,
    random_blocks: Cell<u64>,
    /// Whether draws have as many numbers as valid elements, and the draw so far.
    draws_exactly: Cell<bool>,
    draw: RefCell<Option<Draw>>,
    /// Whether draws repeat earlier ones. The generator has counted those already.
    random_replays: Cell<bool>,
    /// The checks of the data. `None` if the caller does not read them.
    checks: Option<RefCell<Vec<(Value<'b>, Check)>>>,
    /// The checks of the call's numbers.
    number_checks: RefCell<Vec<NumberCheck>>,
}

impl<'b> Inputs<'b> {
    pub fn new(builder: &'b Builder, storages: &[StorageSpec], is_checked: bool) -> Inputs<'b> {
        Inputs {
            builder,
            storages: storages.to_vec(),
            made: RefCell::default(),
            random: Cell::new(None),
            random_blocks: Cell::new(0),
            draws_exactly: Cell::new(false),
            draw: RefCell::default(),
            random_replays: Cell::new(false),
            checks: is_checked.then(RefCell::default),
            number_checks: RefCell::default(),
        }
    }

    /// Whether rows may check the data. They may not in a region, because its values cannot be returned.
    pub fn is_checked(&self) -> bool {
        self.checks.is_some() && !self.builder.is_in_region()
    }

    pub fn add_check(&self, number: Value<'b>, check: Check) {
        if let Some(checks) = &self.checks {
            checks.borrow_mut().push((number, check));
        }
    }

    pub fn checks(&self) -> Vec<(Value<'b>, Check)> {
        self.checks.as_ref().map_or_else(Vec::new, |checks| checks.borrow().clone())
    }

    pub fn add_number_check(&self, check: NumberCheck) {
        let mut checks = self.number_checks.borrow_mut();
        if !checks.contains(&check) {
            checks.push(check);
        }
    }

    pub fn number_checks(&self) -> Vec<NumberCheck> {
        self.number_checks.borrow().clone()
    }

    pub fn param(&self, source: ParamSource, ty: Type) -> Value<'b> {
        if let Some((_, value)) = self.made.borrow().iter().find(|(s, _)| *s == source) {
            return *value;
        }
        let value = self.builder.parameter(ty);
        self.made.borrow_mut().push((source, value));
        value
    }

    /// The value of a storage. `None` if nothing has been written to it.
    pub fn base(&self, storage: usize) -> Option<Value<'b>> {
        let ty = self.storages[storage].base.clone()?;
        Some(self.param(ParamSource::Storage(storage), ty))
    }

    /// Whether a value is the one that a storage holds.
    pub fn is_base(&self, storage: usize, value: Value<'b>) -> bool {
        let is_it =
            |(source, made): &(ParamSource, Value<'b>)| *source == ParamSource::Storage(storage) && made.is(value);
        self.made.borrow().iter().any(is_it)
    }

    /// The offset of a view, if it is an input of the program.
    pub fn offset(&self, spec: &TensorSpec) -> Option<Value<'b>> {
        let source = ParamSource::Offset(spec.offset_input?);
        Some(self.param(source, Type::new(DType::I64, &[])))
    }

    pub fn read(&self, spec: &TensorSpec) -> Value<'b> {
        let held = match self.base(spec.storage) {
            Some(base) => view::read(base, spec, self.offset(spec)),
            None => self.builder.splat(0, spec.dtype, &spec.sizes),
        };
        view::shown(held, spec)
    }

    pub fn storages(&self) -> &[StorageSpec] {
        &self.storages
    }

    pub fn sources(&self) -> Vec<ParamSource> {
        self.made.borrow().iter().map(|(source, _)| *source).collect()
    }

    pub fn random_blocks(&self) -> u64 {
        self.random_blocks.get()
    }

    pub fn random_state(&self) -> Value<'b> {
        self.random.get().unwrap_or_else(|| self.param(ParamSource::RandomState, Type::new(DType::U64, &[2])))
    }

    pub fn set_random_state(&self, state: Value<'b>, replays: bool) {
        self.random.set(Some(state));
        self.random_replays.set(replays);
    }

    /// From now on draws have as many numbers as valid elements.
    pub fn draw_exactly(&self) {
        self.draws_exactly.set(true);
    }

    pub fn draws_exactly(&self) -> bool {
        self.draws_exactly.get()
    }

    /// Notes a draw. Whether it is the first: where the next one begins depends on the sizes.
    pub fn note_draw(&self, draw: Draw) -> bool {
        self.draw.replace(Some(draw)).is_none()
    }

    /// Forgets the draws of a row that is lowered again.
    pub fn forget_draws(&self) {
        self.random.set(None);
        self.random_blocks.set(0);
        self.draw.replace(None);
    }

    pub fn draw(&self) -> Option<Draw> {
        self.draw.borrow().clone()
    }

    pub fn random_bits(&self, dtype: DType, dims: &[i64]) -> Value<'b> {
        let (after, bits) = self.builder.random_bits(self.random_state(), dtype, dims);
        self.random.set(Some(after));
        if !self.random_replays.get() {
            let bytes = Type::new(dtype, dims).size_bytes() as u64;
            self.random_blocks.set(self.random_blocks.get() + bytes.div_ceil(16));
        }
        bits
    }
}
