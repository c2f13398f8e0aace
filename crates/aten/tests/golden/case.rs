//! A call of an operator, and the text of what it is lowered to.

use std::fmt::{Display, Write};
use std::sync::Arc;

use aten::{
    ArgSpec, Call, CallBody, DType, Graph, Lowered, Number, ResultSpec, ScalarSpec, StorageSpec, Target, TensorSpec,
    Type, contiguous_strides, lower_call, table,
};

/// A call in the making: an operator and its arguments in the order of its schema.
pub struct Case {
    title: String,
    call: Call,
    targets: Vec<Target>,
}

impl Case {
    /// A call of a row of the table.
    pub fn row(operator: &str) -> Case {
        let row = table::find(operator).unwrap_or_else(|| panic!("{operator} has no row"));
        Case::new(operator, CallBody::Row(row))
    }

    /// A call of a graph of rows.
    pub fn graph(title: &str, graph: Graph) -> Case {
        Case::new(title, CallBody::Graph(Arc::new(graph)))
    }

    fn new(operator: &str, body: CallBody) -> Case {
        let call = Call {
            operator: operator.into(),
            body,
            names: Vec::new(),
            args: Vec::new(),
            storages: Vec::new(),
            mutated: Vec::new(),
            results: None,
            precision: Default::default(),
            default_dtype: DType::F32,
            target: Target::Cpu,
            is_checked: true,
        };
        Case { title: operator.into(), call, targets: vec![Target::Cpu, Target::Tpu] }
    }

    fn arg(mut self, name: &str, shown: impl Display, arg: ArgSpec) -> Case {
        let separator = if self.call.names.is_empty() { ": " } else { ", " };
        let _ = write!(self.title, "{separator}{name} = {shown}");
        self.call.names.push(name.into());
        self.call.args.push(arg);
        self
    }

    /// A contiguous tensor that is all of a storage of its own.
    pub fn tensor(mut self, name: &str, dtype: DType, sizes: &[i64]) -> Case {
        let spec = self.storage(dtype, sizes);
        self.arg(name, Type::new(dtype, sizes), ArgSpec::Tensor(spec))
    }

    /// A list of such tensors.
    pub fn tensors(mut self, name: &str, types: &[(DType, &[i64])]) -> Case {
        let specs = types.iter().map(|(dtype, sizes)| ArgSpec::Tensor(self.storage(*dtype, sizes))).collect();
        let shown: Vec<String> = types.iter().map(|(dtype, sizes)| Type::new(*dtype, sizes).to_string()).collect();
        self.arg(name, shown.join(" and "), ArgSpec::List(specs))
    }

    /// The next storage, whose views are arguments.
    pub fn over(mut self, dtype: DType, sizes: &[i64]) -> Case {
        let spec = self.storage(dtype, sizes);
        let _ = write!(self.title, " over storage {} = {}", spec.storage, Type::new(dtype, sizes));
        self
    }

    /// A view of a storage.
    pub fn view(self, name: &str, storage: usize, sizes: &[i64], strides: &[i64], offset: i64) -> Case {
        self.view_with(name, storage, sizes, strides, offset, |_| ())
    }

    /// [`Case::view`], changed by `change`.
    pub fn view_with(
        self,
        name: &str,
        storage: usize,
        sizes: &[i64],
        strides: &[i64],
        offset: i64,
        change: impl FnOnce(&mut TensorSpec),
    ) -> Case {
        let mut spec = self.spec(storage, sizes, strides, offset);
        change(&mut spec);
        self.arg(name, shown(&spec), ArgSpec::Tensor(spec))
    }

    /// A list of views of one storage, each by its sizes, strides and offset.
    pub fn views(self, name: &str, storage: usize, views: &[(&[i64], &[i64], i64)]) -> Case {
        let specs: Vec<TensorSpec> =
            views.iter().map(|(sizes, strides, offset)| self.spec(storage, sizes, strides, *offset)).collect();
        let all: Vec<String> = specs.iter().map(shown).collect();
        self.arg(name, all.join(" and "), ArgSpec::List(specs.into_iter().map(ArgSpec::Tensor).collect()))
    }

    fn storage(&mut self, dtype: DType, sizes: &[i64]) -> TensorSpec {
        let base = Type::new(dtype, sizes);
        self.call.storages.push(StorageSpec { nbytes: base.size_bytes(), base: Some(base) });
        self.spec(self.call.storages.len() - 1, sizes, &contiguous_strides(sizes), 0)
    }

    fn spec(&self, storage: usize, sizes: &[i64], strides: &[i64], offset: i64) -> TensorSpec {
        TensorSpec {
            storage,
            dtype: self.call.storages[storage].base.as_ref().expect("a storage with a value").dtype,
            sizes: sizes.to_vec(),
            strides: strides.to_vec(),
            offset,
            is_conj: false,
            is_neg: false,
            offset_input: None,
        }
    }

    /// A number that is an input of the program.
    pub fn number(self, name: &str, dtype: DType) -> Case {
        let spec = ScalarSpec { dtype, wrapped: true, is_tensor: false, baked: None };
        self.arg(name, format!("a number of {dtype}"), ArgSpec::Scalar(spec))
    }

    /// A number that is part of the program.
    pub fn baked(self, name: &str, number: impl Into<Number>) -> Case {
        let number = number.into();
        let dtype = match number {
            Number::Bool(_) => DType::Bool,
            Number::Int(_) => DType::I64,
            Number::Float(_) => DType::F64,
            Number::Unsigned(_) => DType::U64,
            Number::Complex(..) => DType::C128,
        };
        let spec = ScalarSpec { dtype, wrapped: true, is_tensor: false, baked: Some(number) };
        self.arg(name, format!("{number:?}"), ArgSpec::Scalar(spec))
    }

    pub fn int(self, name: &str, int: i64) -> Case {
        self.arg(name, int, ArgSpec::Int(int))
    }

    pub fn ints(self, name: &str, ints: &[i64]) -> Case {
        self.arg(name, format!("{ints:?}"), ArgSpec::Ints(ints.to_vec()))
    }

    pub fn bool(self, name: &str, bool: bool) -> Case {
        self.arg(name, bool, ArgSpec::Bool(bool))
    }

    pub fn str(self, name: &str, text: &str) -> Case {
        self.arg(name, format!("{text:?}"), ArgSpec::Str(text.into()))
    }

    pub fn dtype(self, name: &str, dtype: DType) -> Case {
        self.arg(name, dtype, ArgSpec::DType(dtype))
    }

    /// The call writes its arguments of these names.
    pub fn writes(mut self, names: &[&str]) -> Case {
        let place = |name: &&str| self.call.names.iter().position(|other| other == name).expect("an argument's name");
        self.call.mutated = names.iter().map(place).collect();
        let _ = write!(self.title, "; writes {}", names.join(" and "));
        self
    }

    /// What PyTorch's meta kernel says of the next result: contiguous.
    pub fn result(self, dtype: DType, sizes: &[i64]) -> Case {
        self.strided_result(dtype, sizes, &contiguous_strides(sizes))
    }

    /// What PyTorch's meta kernel says of the next result.
    pub fn strided_result(mut self, dtype: DType, sizes: &[i64], strides: &[i64]) -> Case {
        let spec = ResultSpec { dtype, sizes: sizes.to_vec(), strides: strides.to_vec() };
        self.call.results.get_or_insert_default().push(Some(spec));
        self
    }

    /// Lowers the call for one target, where the other's text is long and says no more.
    pub fn only_for(mut self, target: Target) -> Case {
        self.targets = vec![target];
        self
    }

    /// The title and what the call is lowered to for each target.
    pub fn text(self) -> String {
        let lowered = self.targets.iter().map(|&target| match lower_call(&Call { target, ..self.call.clone() }) {
            Ok(lowered) => describe(&lowered),
            Err(error) => format!("// {:?}: {error}\n", error.kind),
        });
        let lowered: Vec<String> = lowered.collect();
        if lowered.windows(2).all(|pair| pair[0] == pair[1]) {
            return format!("// {}\n{}", self.title, lowered[0]);
        }
        let texts = self.targets.iter().zip(&lowered).map(|(target, text)| format!("// for {target:?}:\n{text}"));
        format!("// {}\n{}", self.title, texts.collect::<String>())
    }
}

fn shown(spec: &TensorSpec) -> String {
    let offset = if spec.offset_input.is_some() { "an input".into() } else { spec.offset.to_string() };
    let conjugate = if spec.is_conj { "the conjugate of " } else { "" };
    let ty = Type::new(spec.dtype, &spec.sizes);
    format!("{conjugate}{ty} in storage {}, strides {:?}, offset {offset}", spec.storage, spec.strides)
}

/// All that a lowered call consists of.
fn describe(lowered: &Lowered) -> String {
    let mut text = String::new();
    for (i, source) in lowered.params.iter().enumerate() {
        let _ = writeln!(text, "// parameter {i}: {source:?}");
    }
    for check in &lowered.number_checks {
        let _ = writeln!(text, "// {check:?}");
    }
    text += &lowered.function.module(&[]);
    for (i, output) in lowered.outputs.iter().enumerate() {
        let _ = writeln!(text, "// output {i}: {output:?}");
    }
    if lowered.random_blocks > 0 {
        let _ = writeln!(text, "// draws {} blocks of random bits", lowered.random_blocks);
    }
    text
}
