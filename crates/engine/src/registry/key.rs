//! The key of a call: everything that decides its program, and nothing else.

use aten::{ArgSpec, OffsetClass, ScalarSpec, StorageSpec, TensorSpec};
use stablehlo::{DType, Number, Type};

use super::operators::{ArgInfo, Operator};
use super::types::Types;
use crate::call::{self, Arg, Generator, Tag, TensorArg};
use crate::error::{Error, Result};
use crate::storage::Storage;

/// A number that is an input of a program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ScalarInput(pub Number);

impl ScalarInput {
    /// Distinguishes numbers by value and by kind.
    pub fn bits(self) -> [u64; 3] {
        match self.0 {
            Number::Bool(b) => [0, u64::from(b), 0],
            Number::Int(i) => [1, i as u64, 0],
            Number::Float(f) => [2, f.to_bits(), 0],
            Number::Unsigned(i) => [4, i, 0],
            Number::Complex(re, im) => [3, re.to_bits(), im.to_bits()],
        }
    }
}

/// The storages of the tensor arguments, in order of appearance. A storage comes once more for each argument that is an
/// input of its own.
#[derive(Default)]
struct Storages(Vec<*const Storage>);

impl Storages {
    /// The number of a tensor's storage, and whether it is new.
    fn number(&mut self, tensor: &TensorArg, info: ArgInfo) -> (usize, bool) {
        let storage: *const Storage = tensor.storage();
        if !(info.is_own_input && is_whole(tensor))
            && let Some(known) = self.0.iter().position(|&known| std::ptr::eq(known, storage))
        {
            return (known, false);
        }
        self.0.push(storage);
        (self.0.len() - 1, true)
    }
}

/// Whether a tensor has as many elements as its storage. Parts of a storage stay parts of one input.
fn is_whole(tensor: &TensorArg) -> bool {
    let numel: i64 = tensor.sizes().iter().product();
    call::tensor_dtype(tensor.dtype).is_ok_and(|dtype| numel as usize * dtype.size_bytes() == tensor.storage().nbytes())
}

/// A call split into its key and the parts that differ between calls with the same key. Only used while the arguments
/// live.
#[derive(Default)]
pub(crate) struct CallParts {
    pub key: Vec<u64>,
    storages: Storages,
    /// The numbers that are inputs of the program.
    pub scalars: Vec<ScalarInput>,
    /// Whether the call has no tensors, or has one without a value.
    pub makes_values: bool,
    /// Whether offsets are left out of the key.
    without_offsets: bool,
    /// Whether ints that vary are left out of the key.
    without_ints: bool,
    /// Whether the call takes the exact values of storages that also have a padded one.
    pub is_exact: bool,
    /// The offset of every tensor argument, lists flattened, and every int that varies.
    pub offsets: Vec<i64>,
    /// The generator that is an argument of the call.
    pub generator: Option<*mut Generator>,
}

// SAFETY: the pointers are only used during the call that stored them, while its arguments live.
unsafe impl Send for CallParts {}

const NO_VALUE: u64 = 1 << 63;

/// Marks a storage whose value has padding.
const PADDED: u64 = 1 << 62;

impl CallParts {
    /// The parts of a call that takes exact values.
    pub fn exact() -> CallParts {
        CallParts { is_exact: true, ..CallParts::default() }
    }

    /// Splits a call into its parts, and reuses the memory of an earlier call. `options` are other values that the
    /// program depends on.
    pub fn encode(&mut self, op: u32, operator: &Operator, args: &[Arg], options: u64) {
        self.key.clear();
        self.storages.0.clear();
        self.scalars.clear();
        self.offsets.clear();
        self.generator = None;
        self.makes_values = false;
        self.key.push(u64::from(op) | options << 32);
        for (arg, info) in args.iter().zip(&operator.args) {
            self.arg(arg, *info);
        }
        self.makes_values |= self.storages.0.is_empty();
    }

    /// A storage of the call, by its number in order of appearance.
    #[inline]
    pub fn storage(&self, index: usize) -> &Storage {
        // SAFETY: the storages are those of the call's tensor arguments, which live as long as the parts are used.
        unsafe { &*self.storages.0[index] }
    }

    /// The storages of the call.
    #[inline]
    pub fn storages(&self) -> impl Iterator<Item = &Storage> {
        (0..self.storages.0.len()).map(|index| self.storage(index))
    }

    fn arg(&mut self, arg: &Arg, info: ArgInfo) {
        let head = arg.tag as u64;
        if let Some(ints) = arg.varying().filter(|_| info.varies) {
            self.offsets.extend_from_slice(ints);
            if self.without_ints {
                self.key.push(head | (ints.len() as u64) << 8);
                return;
            }
        }
        match arg.tag {
            Tag::Tensor => self.tensor(arg, info),
            Tag::ScalarTensor => {
                self.key.push(head | (arg.dtype as u64) << 8 | u64::from(arg.wrapped) << 16);
                self.scalars.push(ScalarInput(arg.number()));
            }
            Tag::Int | Tag::Float | Tag::Bool | Tag::Complex => {
                let number = arg.number();
                if info.is_input(number) {
                    self.key.push(head | 1 << 8);
                    self.scalars.push(ScalarInput(number));
                } else {
                    self.key.push(head);
                    self.key.push(arg.bits());
                    if arg.tag == Tag::Complex {
                        self.key.push(arg.complex()[1].to_bits());
                    }
                }
            }
            Tag::Dtype => self.key.extend([head, arg.bits()]),
            Tag::Ints => {
                self.key.push(head | u64::from(arg.length) << 8);
                self.key.extend(arg.ints().iter().map(|&i| i as u64));
            }
            Tag::Floats => {
                self.key.push(head | u64::from(arg.length) << 8);
                self.key.extend(arg.floats().iter().map(|f| f.to_bits()));
            }
            Tag::Bools => {
                self.key.push(head | u64::from(arg.length) << 8);
                self.key.extend(arg.bools().iter().map(|&x| u64::from(x)));
            }
            Tag::String => {
                self.key.push(head | u64::from(arg.length) << 8);
                self.key.extend(arg.string().iter().map(|&byte| u64::from(byte)));
            }
            Tag::List => {
                // The length is a word of its own, because it may be a size.
                self.key.extend([head, u64::from(arg.length)]);
                for item in arg.list() {
                    self.arg(item, info);
                }
            }
            Tag::Generator => {
                self.generator = Some(arg.generator());
                self.key.push(Tag::None as u64);
            }
            Tag::None | Tag::Ignored => self.key.push(Tag::None as u64),
        }
    }

    /// The factors of a padded value.
    fn padded(&mut self, storage: &Storage) {
        let Some(padded) = storage.padded() else { return };
        self.key.push(padded.dtype as u64 | (padded.order.len() as u64) << 8 | PADDED);
        for &axis in &padded.order {
            self.key.push(padded.axes[axis].len() as u64);
            for factor in &padded.axes[axis] {
                self.key.push(factor.capacity as u64 | u64::from(factor.is_bounded) << 63);
                self.key.push(factor.actual as u64);
            }
        }
    }

    fn tensor(&mut self, arg: &Arg, info: ArgInfo) {
        let tensor = arg.tensor();
        let (index, is_new) = self.storages.number(tensor, info);
        let (sizes, strides) = (tensor.sizes(), tensor.strides());
        let head = Tag::Tensor as u64 | (tensor.dtype as u64) << 8 | (sizes.len() as u64) << 16 | (index as u64) << 32;
        let lazy = u64::from(tensor.is_conj) << 62 | u64::from(tensor.is_neg) << 63;
        self.key.push(head | lazy);
        if is_new {
            let takes_padded = !self.is_exact && tensor.storage().has_padding();
            match tensor.storage().base() {
                _ if takes_padded => self.padded(tensor.storage()),
                Ok(ty) => self.key.push(u64::from(ty)),
                Err(nbytes) => {
                    self.key.push(nbytes as u64 | NO_VALUE);
                    self.makes_values = true;
                }
            }
        }
        self.offsets.push(tensor.offset);
        self.key.push(if self.without_offsets { 0 } else { tensor.offset as u64 });
        self.key.extend(sizes.iter().map(|&n| n as u64));
        self.key.extend(strides.iter().map(|&n| n as u64));
    }
}

fn number_dtype(number: Number) -> DType {
    match number {
        Number::Bool(_) => DType::Bool,
        Number::Int(_) => DType::I64,
        Number::Unsigned(_) => DType::U64,
        Number::Float(_) => DType::F64,
        Number::Complex(..) => DType::C128,
    }
}

/// The arguments of a new key, for the lowering.
pub(crate) struct Specs<'a> {
    pub types: &'a Types,
    pub storages: Vec<StorageSpec>,
    seen: Storages,
    /// Whether offsets become inputs of the program if possible.
    open_offsets: bool,
    /// Whether that holds for views at the start of their storage too.
    from_start: bool,
    /// Whether ints that vary become inputs of the program.
    pub open_ints: bool,
    /// The number of offsets so far.
    offsets: usize,
}

impl<'a> Specs<'a> {
    pub fn new(types: &'a Types, open_offsets: bool, from_start: bool) -> Specs<'a> {
        Specs {
            types,
            storages: Vec::new(),
            seen: Storages::default(),
            open_offsets,
            from_start,
            open_ints: false,
            offsets: 0,
        }
    }

    pub fn arg(&mut self, arg: &Arg, info: ArgInfo, ty: &str) -> Result<ArgSpec> {
        if let Some(ints) = arg.varying().filter(|_| info.varies) {
            let first = self.offsets;
            self.offsets += ints.len();
            if self.open_ints {
                return Ok(if arg.tag == Tag::Int {
                    ArgSpec::Input(first)
                } else {
                    ArgSpec::Inputs(first, ints.len())
                });
            }
        }
        Ok(match arg.tag {
            Tag::None | Tag::Generator | Tag::Ignored => ArgSpec::None,
            Tag::Tensor => ArgSpec::Tensor(self.tensor(arg, info)?),
            Tag::ScalarTensor => ArgSpec::Scalar(ScalarSpec {
                dtype: call::tensor_dtype(arg.dtype)?,
                wrapped: arg.wrapped != 0,
                is_tensor: true,
                baked: None,
            }),
            Tag::Int if !info.dynamic && !ty.contains("Scalar") && !ty.contains("float") => ArgSpec::Int(arg.int()),
            Tag::Bool if !ty.contains("Scalar") => ArgSpec::Bool(arg.int() != 0),
            Tag::Int | Tag::Float | Tag::Bool | Tag::Complex => {
                let number = arg.number();
                let baked = (!info.is_input(number)).then_some(number);
                ArgSpec::Scalar(ScalarSpec { dtype: number_dtype(number), wrapped: true, is_tensor: false, baked })
            }
            Tag::String => ArgSpec::Str(String::from_utf8_lossy(arg.string()).into_owned()),
            Tag::Dtype => ArgSpec::DType(call::tensor_dtype(arg.int() as i8)?),
            Tag::Ints => ArgSpec::Ints(arg.ints().to_vec()),
            Tag::Floats => ArgSpec::Floats(arg.floats().to_vec()),
            Tag::Bools => ArgSpec::Bools(arg.bools().iter().map(|&x| x != 0).collect()),
            Tag::List => ArgSpec::List(arg.list().iter().map(|item| self.arg(item, info, ty)).collect::<Result<_>>()?),
        })
    }

    fn tensor(&mut self, arg: &Arg, info: ArgInfo) -> Result<TensorSpec> {
        let tensor = arg.tensor();
        let storage = tensor.storage();
        let (index, is_new) = self.seen.number(tensor, info);
        if is_new {
            let base = storage.base().ok().map(|id| self.types.get(id).clone());
            self.storages.push(StorageSpec { base, nbytes: storage.nbytes() });
        }
        let element = call::tensor_dtype(tensor.dtype)?.size_bytes();
        let dims = tensor.sizes().iter().zip(tensor.strides());
        let last = dims.fold(tensor.offset, |last, (&size, &stride)| {
            last.saturating_add((size - 1).max(0).saturating_mul(stride))
        });
        let needed = (last as usize).saturating_add(1).saturating_mul(element);
        if !tensor.sizes().contains(&0) && needed > storage.nbytes() {
            return Err(Error::runtime(format!(
                "setStorage: sizes {:?}, strides {:?}, storage offset {}, and itemsize {element} requiring a storage \
                 size of {needed} are out of bounds for storage of size {}",
                tensor.sizes(),
                tensor.strides(),
                tensor.offset,
                storage.nbytes()
            )));
        }
        let mut spec = TensorSpec {
            storage: index,
            dtype: call::tensor_dtype(tensor.dtype)?,
            sizes: tensor.sizes().to_vec(),
            strides: tensor.strides().to_vec(),
            offset: tensor.offset,
            is_conj: tensor.is_conj != 0,
            is_neg: tensor.is_neg != 0,
            offset_input: None,
        };
        if self.open_offsets && self.offset_class(&spec).is_some() {
            spec.offset_input = Some(self.offsets);
        }
        self.offsets += 1;
        Ok(spec)
    }

    fn offset_class(&self, spec: &TensorSpec) -> Option<OffsetClass> {
        let storage = &self.storages[spec.storage];
        let unwritten = || Type::new(spec.dtype, &[(storage.nbytes / spec.dtype.size_bytes()) as i64]);
        let base = storage.base.clone().or_else(|| self.from_start.then(unwritten))?;
        aten::offset_class(&base, spec, self.from_start)
    }
}

/// Marks an offset in the key that is replaced by the class of offsets that share a program.
const OPEN_OFFSET: u64 = 1 << 63;

/// The key of a call without the offsets and ints that can be inputs of its program.
pub(crate) struct FamilyKey {
    pub key: Vec<u64>,
    /// Whether the program costs as much as one with constant offsets.
    pub is_cheap: bool,
}

impl FamilyKey {
    fn open(&mut self, class: impl ExactSizeIterator<Item = u64>) {
        self.key.push(OPEN_OFFSET | class.len() as u64);
        self.key.extend(class);
    }

    fn add(&mut self, arg: &Arg, info: ArgInfo, specs: &mut Specs<'_>) -> Option<()> {
        match arg.tag {
            Tag::Tensor => {
                let spec = specs.tensor(arg, info).ok()?;
                match specs.offset_class(&spec) {
                    Some(class) => {
                        self.open(class.tokens.into_iter());
                        self.is_cheap &= class.is_cheap;
                    }
                    None => self.key.push(spec.offset as u64),
                }
            }
            Tag::List => arg.list().iter().try_for_each(|item| self.add(item, info, specs))?,
            _ => {}
        }
        Some(())
    }
}

/// The key of a call's family. `None` if no offset and no int can be an input.
pub(crate) fn family_key(parts: &CallParts, operator: &Operator, args: &[Arg], types: &Types) -> Option<FamilyKey> {
    let from_start = operator.opens_offsets();
    if !from_start && parts.offsets.iter().all(|&offset| offset == 0) {
        return None;
    }
    if !parts.is_exact && parts.storages().any(Storage::has_padding) {
        return None;
    }
    let class = operator.class(args);
    let mut plain = CallParts { without_offsets: true, without_ints: class.is_some(), ..CallParts::exact() };
    plain.encode(parts.key[0] as u32, operator, args, parts.key[0] >> 32);
    let mut specs = Specs::new(types, false, from_start);
    let length = plain.key.len();
    let mut family = FamilyKey { key: plain.key, is_cheap: true };
    args.iter().zip(&operator.args).try_for_each(|(arg, info)| family.add(arg, *info, &mut specs))?;
    if let Some(class) = class {
        family.open(class.iter().map(|&n| n as u64));
    }
    family.key[length..].iter().any(|token| token & OPEN_OFFSET != 0).then_some(family)
}
