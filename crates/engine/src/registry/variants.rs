//! The programs of calls whose sizes change.
//!
//! Calls whose arguments are alike but for the actual sizes share a program if it computes the sizes that PyTorch gives
//! their results. So a size that equals another one by chance has the program of the others.

use std::cell::RefCell;
use std::sync::Arc;

use aten::{Call, CallBody, Dim, ResultSpec, Sizes, Target, computed_results, lower_sized};

use super::instance::{Instance, SizedCall};
use super::key::CallParts;
use super::sizes::{Search, SizedSpecs, exact_specs, sized_specs};
use super::types::Types;
use super::{OWN_OFFSETS, Registry, encode, options, unfitting_results};
use crate::call::{Arg, Meta, to_spec};
use crate::capacities::of_computed;
use crate::error::Result;
use crate::growth::{Changing, any_changes};
use crate::padded::any_live;

/// A program of calls whose arguments are alike but for the actual sizes.
pub(super) struct Variant {
    /// The sizes of the results, first of the written arguments. `None` for what the row makes of the arguments.
    results: Vec<Option<Vec<Dim>>>,
    /// The capacities of the sizes: those of the arguments, and behind them those that only results have.
    capacities: Vec<i64>,
    /// Whether the row has computed the sizes of the results, before their actual sizes were looked at.
    is_computed: bool,
    /// The instance, or why there is none.
    made: std::result::Result<Arc<Instance>, String>,
}

/// Why a program does not serve a call.
const OTHER_SIZES: &str = "the program would compute other sizes, or too much padding";

impl Variant {
    fn new(sizes: Sizes, is_computed: bool, made: std::result::Result<Arc<Instance>, String>) -> Variant {
        Variant { results: sizes.results, capacities: sizes.capacities, is_computed, made }
    }

    pub fn is_in_use(&self) -> bool {
        self.made.as_ref().is_ok_and(|instance| Arc::strong_count(instance.programs()) > 1)
    }

    /// The actual sizes of a call: those of its arguments, and those of its results that no argument has. `None` if a
    /// result does not fit.
    fn numbers(&self, of_arguments: &[i64], results: &[Option<ResultSpec>]) -> Option<Vec<i64>> {
        let mut numbers: Vec<Option<i64>> = of_arguments.iter().copied().map(Some).collect();
        numbers.resize(self.capacities.len(), None);
        for (dims, spec) in self.results.iter().zip(results) {
            let (Some(dims), Some(spec)) = (dims, spec) else { continue };
            for (dim, &size) in dims.iter().zip(&spec.sizes) {
                let [symbol] = dim.sizes[..] else { continue };
                let symbol = symbol as usize;
                if symbol < of_arguments.len() {
                    continue;
                }
                let times = (dim.capacity / self.capacities[symbol].max(1)).max(1);
                let number = size / times;
                let fits = number * times == size && (2..=self.capacities[symbol]).contains(&number);
                if !fits || numbers[symbol].is_some_and(|known| known != number) {
                    return None;
                }
                numbers[symbol] = Some(number);
            }
        }
        numbers.into_iter().collect()
    }

    /// The instance of a call by this program. `None` if it does not fit.
    fn instance(&self, specs: &SizedSpecs, sought: &Sought<'_>, types: &mut Types) -> Option<Instance> {
        let template = self.made.as_ref().ok().filter(|template| template.refusal().is_none())?;
        let numbers = self.numbers(&specs.numbers, sought.results)?;
        let sized = SizedCall { numbers, wanted: specs.wanted.clone(), exact: sought.exact.clone() };
        template.at_sizes(sought.arguments.clone(), sized, sought.results, sought.written, types)
    }
}

/// A call with sizes that change.
struct Sought<'a> {
    op: u32,
    /// PyTorch's results.
    results: &'a [Option<ResultSpec>],
    arguments: Vec<String>,
    exact: Call,
    written: usize,
}

/// Whether a call whose ints are constants has a program of its own, as the first few have. `known` are those that do, by
/// description.
fn has_own_program(known: &mut Vec<String>, description: &str) -> bool {
    let is_known = known.iter().any(|each| each == description);
    let is_first = !is_known && known.len() < OWN_OFFSETS as usize;
    if is_first {
        known.push(description.into());
    }
    is_known || is_first
}

impl Registry {
    /// The instance of a new key, which [`Registry::find`] has put into `parts`, if its changing sizes can be inputs of
    /// a program; else why they cannot. Calls that differ only in these sizes share the program.
    pub fn define_sized(
        &mut self,
        op: u32,
        args: &[Arg],
        parts: &mut CallParts,
        metas: Option<&[Meta]>,
        changing: &[Changing],
        target: Target,
    ) -> Result<std::result::Result<Arc<Instance>, String>> {
        let operator = &self.operators[op as usize];
        const NO_LOWERING: &str = "the operator has no lowering with sizes as inputs";
        let Some(row) = operator.row.filter(|_| operator.compiled.is_none()) else {
            return Ok(Err(NO_LOWERING.into()));
        };
        // The first reason is that of the arguments as they are.
        let mut why: Option<String> = None;
        let known: Option<Vec<Option<ResultSpec>>> =
            metas.map(|metas| metas.iter().map(to_spec).collect::<Result<_>>()).transpose()?;
        let results = known.as_deref().unwrap_or_default();
        let (exact_args, exact_storages) = exact_specs(args, operator, parts, &self.types)?;
        let exact = Call {
            operator: operator.name.clone(),
            body: CallBody::Row(row),
            names: operator.names.clone(),
            args: exact_args,
            storages: exact_storages,
            mutated: operator.mutated.clone(),
            results: known.clone(),
            precision: self.precision,
            default_dtype: self.default_dtype,
            target,
            is_checked: true,
        };
        if unfitting_results(&exact).is_some() {
            return Ok(Err("its out= arguments are resized first".into()));
        }
        let layout = |result: &Option<ResultSpec>| {
            result.as_ref().map(|spec| (spec.dtype, aten::memory_order(&spec.sizes, &spec.strides)))
        };
        let layouts: Vec<_> = results.iter().map(layout).collect();
        let settings = options(true, self.precision, self.default_dtype);
        let arguments: Vec<String> = args.iter().map(Arg::to_string).collect();
        let written = exact.written_tensors().len();
        let sought = Sought { op, results, arguments, exact, written };
        let varies = operator.class(args).is_some();
        for search in [if row.grows { Search::Grown } else { Search::Padded }, Search::All, Search::Computed] {
            let operator = &self.operators[op as usize];
            let make = |open_ints| {
                let specs = sized_specs(args, operator, parts, &self.types, search, changing, open_ints)?;
                let key =
                    format!("{op} {settings} {:?} {:?} {:?} {layouts:?}", specs.args, specs.storages, specs.sizes);
                Some((specs, key))
            };
            let Some((mut specs, mut key)) = make(varies) else { continue };
            // Where sizes change besides those of arguments, the ints follow them.
            if varies
                && !any_changes(changing)
                && !operator.opens_offsets()
                && let Some(own) = make(false)
                && has_own_program(self.own_ints.entry(key.clone()).or_default(), &own.1)
            {
                (specs, key) = own;
            }
            let call = Call { args: specs.args.clone(), storages: specs.storages.clone(), ..sought.exact.clone() };
            let mut made = self.known_variant(&key, &specs, &sought);
            if made.is_none() && search == Search::Padded && specs.sizes.is_bounded() && row.is_bounded() {
                made = self.computed_variant(&key, &call, &specs, &sought);
            }
            if made.is_none() {
                let growth = RefCell::new(&mut self.growth);
                let room = |size| growth.borrow_mut().room(size);
                if !specs.find_results(args, &self.operators[op as usize], results, search, room) {
                    continue;
                }
                if !row.is_bounded() && specs.sizes.is_bounded() {
                    why.get_or_insert_with(|| NO_LOWERING.into());
                    continue;
                }
                match self.variant(&key, &call, &specs, &sought) {
                    Ok(instance) => made = Some(instance),
                    Err(reason) => _ = why.get_or_insert(reason),
                }
            }
            let Some(instance) = made else { continue };
            let operator = &self.operators[op as usize];
            if operator.follows_precision {
                encode(parts, op, operator, args, settings, any_live());
            }
            let instance = Arc::new(instance);
            self.remember(&parts.key, Arc::clone(&instance));
            return Ok(Ok(instance));
        }
        Ok(Err(why.unwrap_or_else(|| "a view does not divide at the sizes that change".into())))
    }

    /// The instance of a call by a program that exists.
    fn known_variant(&mut self, key: &str, specs: &SizedSpecs, sought: &Sought<'_>) -> Option<Instance> {
        // Without sizes of the arguments, which results change depends on other values.
        if specs.numbers.is_empty() {
            return None;
        }
        let types = &mut self.types;
        self.sized.get(key)?.iter().find_map(|variant| variant.instance(specs, sought, types))
    }

    /// The instance of a call by a new program for sizes of results that the row computes from those of the arguments.
    fn computed_variant(
        &mut self,
        key: &str,
        call: &Call,
        specs: &SizedSpecs,
        sought: &Sought<'_>,
    ) -> Option<Instance> {
        let given = &specs.sizes.capacities;
        let capacity = |largest, result: usize, axis: usize| {
            let size = sought.results[result].as_ref().map_or(largest, |spec| spec.sizes[axis]);
            of_computed(largest, size, given)
        };
        let is_refused = |variant: &Variant| variant.is_computed && variant.made.is_err();
        if self.sized.get(key).is_some_and(|variants| variants.iter().any(is_refused)) {
            return None;
        }
        let mut sizes = specs.sizes.clone();
        let found = computed_results(call, &sizes, capacity);
        let made = found.map_err(|error| error.message).and_then(|(results, new)| {
            sizes.results = results;
            sizes.capacities.extend(new);
            self.lower_variant(call, &sizes, sought)
        });
        self.add_variant(key, Variant::new(sizes, true, made), specs, sought).ok()
    }

    /// The instance of a call by a new program for its sizes; else why there is none.
    fn variant(
        &mut self,
        key: &str,
        call: &Call,
        specs: &SizedSpecs,
        sought: &Sought<'_>,
    ) -> std::result::Result<Instance, String> {
        let sizes = &specs.sizes;
        let is_it = |variant: &&Variant| {
            !variant.is_computed && variant.results == sizes.results && variant.capacities == sizes.capacities
        };
        let known = self.sized.get(key).and_then(|variants| variants.iter().find(is_it));
        match known.map(|variant| &variant.made) {
            Some(Err(reason)) => Err(reason.clone()),
            Some(Ok(template)) => Err(match template.refusal() {
                Some(refusal) => format!("the compiler refuses its program with sizes as inputs: {refusal}"),
                None => OTHER_SIZES.into(),
            }),
            None => {
                let made = self.lower_variant(call, sizes, sought);
                self.add_variant(key, Variant::new(sizes.clone(), false, made), specs, sought)
            }
        }
    }

    fn lower_variant(
        &mut self,
        call: &Call,
        sizes: &Sizes,
        sought: &Sought<'_>,
    ) -> std::result::Result<Arc<Instance>, String> {
        let lowered = lower_sized(call, sizes).map_err(|error| error.message)?;
        self.operators[sought.op as usize].follows_precision |= lowered.follows_precision;
        let (id, arguments) = (self.next_instance, sought.arguments.clone());
        self.next_instance += 1;
        Ok(Arc::new(Instance::new(id, &call.operator, arguments, false, None, Ok(lowered), &mut self.types)))
    }

    /// Keeps a new program, and makes the instance of the call that it was made for.
    fn add_variant(
        &mut self,
        key: &str,
        mut variant: Variant,
        specs: &SizedSpecs,
        sought: &Sought<'_>,
    ) -> std::result::Result<Instance, String> {
        let instance = variant.instance(specs, sought, &mut self.types);
        let made = instance.ok_or_else(|| variant.made.as_ref().err().cloned().unwrap_or_else(|| OTHER_SIZES.into()));
        if let Err(reason) = &made {
            variant.made = Err(reason.clone());
        }
        self.sized.entry(key.into()).or_default().push(variant);
        made
    }
}
