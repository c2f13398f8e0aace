//! Collectives as programs: one replica on the device of each rank of a group. A collective is a compiled graph of the
//! table's rows, so it is recorded, cached and launched as any graph is, and runs in the order of the device's queue.

use std::sync::Arc;

use aten::{ArgSpec, Graph, GraphArg, Node, ResultSpec};
use stablehlo::{Number, Type};

use crate::agreement::Agreement;
use crate::call::{Arg, Out, TensorArg};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::host::type_of;
use crate::joined::watch;
use crate::mode::Mode;
use crate::operator_call::{Found, Status};
use crate::placement::Placement;
use crate::record::reason::Reason;
use crate::registry::compiled::{CompiledGraph, SchemaArg};
use crate::storage::{Storage, Value, ValueState};
use crate::vote::Ballot;

/// What the ranks of a group compute together. All ranks call it with the same forms and types.
pub struct Collective<'a> {
    /// The name in messages.
    pub name: &'a str,
    pub form: Form,
    /// PyTorch's name of the reduction.
    pub reduction: &'a str,
    /// The factor of "premul_sum".
    pub factor: f64,
    /// The rank in the group that gives the values.
    pub root: i64,
    /// The process of each rank of the group.
    pub processes: &'a [i64],
    /// The lane of the group.
    pub lane: u64,
    /// The number of the call in the group.
    pub number: u64,
}

/// The forms of collectives. In the forms of pairs, each input has an output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// Pairs: the reduction of the ranks' inputs.
    AllReduce,
    /// Pairs: the root's input.
    Broadcast,
    /// Pairs: the ranks' inputs, one after another.
    AllGather,
    /// One input; an output for each rank.
    AllGatherList,
    /// Pairs: a part of the reduction, which has a part for each rank.
    ReduceScatter,
    /// An input for each rank; one output.
    ReduceScatterList,
    /// Pairs: a part from each rank, one after another.
    AllToAll,
    /// An input for each rank, which is used if it is the root's; one output.
    Scatter,
}

impl Form {
    /// Whether it has an input or an output for each rank.
    fn is_list(self) -> bool {
        matches!(self, Form::AllGatherList | Form::ReduceScatterList | Form::Scatter)
    }
}

/// The tensors of a collective on this rank.
#[derive(Clone, Copy)]
pub struct Tensors<'a> {
    pub placement: Placement,
    pub inputs: &'a [TensorArg],
    /// Empty if the results are not used.
    pub outputs: &'a [TensorArg],
}

impl Engine {
    /// The global ids of the devices of these processes, in their order. `None` unless the plugin's client has a device
    /// of each, and of more processes than this one.
    fn devices_of(&mut self, processes: &[i64]) -> Result<Option<Vec<i64>>> {
        let all = &self.platform()?.all_devices;
        if all.iter().all(|device| device.process == all[0].process) {
            return Ok(None);
        }
        let device = |process: &i64| all.iter().find(|device| device.process == *process).map(|device| device.id);
        Ok(processes.iter().map(device).collect())
    }

    /// A process group of these processes begins. Returns whether its collectives can be programs.
    ///
    /// # Errors
    /// If the plugin cannot be opened.
    pub fn open_group(&mut self, processes: &[i64], agreement: Agreement) -> Result<bool> {
        let Some(devices) = self.devices_of(processes)? else { return Ok(false) };
        let ballot = Ballot::new(agreement.name.clone(), Arc::clone(&agreement.exchange), self.runtime()?.made);
        self.registry.open_group(devices, agreement, ballot);
        Ok(true)
    }

    /// The votes of the process group of a lane.
    pub(crate) fn ballot_of(&mut self, processes: &[i64], lane: u64) -> Result<Option<Ballot>> {
        Ok(self.devices_of(processes)?.and_then(|devices| self.registry.ballot(&devices, lane)))
    }

    /// The process group of a lane ends. Programs of its collectives are dropped, unless another group has the same devices.
    ///
    /// # Errors
    /// If the plugin cannot be opened.
    pub fn close_group(&mut self, processes: &[i64], lane: u64) -> Result<()> {
        if let Some(devices) = self.devices_of(processes)? {
            self.registry.close_group(&devices, lane);
        }
        Ok(())
    }

    /// Submits the calls that are recorded: the ranks differ in what they call before or after, as where each has a part of
    /// its own size, and that must be in no program with a collective.
    ///
    /// # Errors
    /// If the calls cannot be submitted.
    pub fn part_ranks(&mut self, placement: Placement) -> Result<()> {
        self.recorder.check(placement)?;
        Ok(self.flush(placement, Reason::Parted)?)
    }

    /// Runs a collective as a program; one for each pair, because a program that has several collectives may run them in
    /// different orders on its devices. The outputs have their new values immediately, as promises.
    ///
    /// # Errors
    /// If the arguments cannot be used. A read of an output raises a later error.
    pub fn run_collective(&mut self, collective: &Collective<'_>, tensors: Tensors<'_>) -> Result<()> {
        if collective.form.is_list() {
            return self.run_one_collective(collective, tensors);
        }
        (0..tensors.inputs.len()).try_for_each(|pair| {
            let outputs = tensors.outputs.get(pair..=pair).unwrap_or_default();
            self.run_one_collective(collective, Tensors { inputs: &tensors.inputs[pair..=pair], outputs, ..tensors })
        })
    }

    fn run_one_collective(&mut self, collective: &Collective<'_>, tensors: Tensors<'_>) -> Result<()> {
        let Tensors { placement, inputs, outputs } = tensors;
        let refuse = |what: &str| Err(Error::runtime(format!("{}: {what}", collective.name)));
        let Some(devices) = self.devices_of(collective.processes)? else {
            return refuse("the client does not have the devices of all ranks");
        };
        self.recorder.check(placement)?;
        let own = i64::from(self.platform()?.devices[placement.device()].id);
        if !devices.contains(&own) {
            return refuse(&format!("its tensors are on {placement}, which is not the device of this rank"));
        }
        let types = inputs.iter().map(type_of).collect::<Result<Vec<_>>>()?;
        let results = collective.results(&types, &outputs.iter().map(type_of).collect::<Result<Vec<_>>>()?);
        if results.iter().all(|ty| ty.numel() == 0) {
            return Ok(());
        }
        let mut read = Vec::with_capacity(inputs.len());
        for (input, ty) in inputs.iter().zip(&types) {
            let value = if ty.numel() == 0 { None } else { self.dense_value(input, ty)? };
            read.push(match value {
                Some(value) => value,
                None => self.zeros(placement, ty)?,
            });
        }
        let Collective { form, reduction, factor, root, .. } = collective;
        let described = format!("{form:?} {reduction} {factor} from {root} of {types:?} to {results:?}");
        let graph = || collective.graph(&types, &results, devices.clone());
        let op = self.registry.graph_of(&devices, described, graph);
        let store = |(value, ty): (Arc<Value>, &Type)| Storage::with_value(placement, ty.size_bytes(), Some(value));
        let staged: Vec<Arc<Storage>> = read.into_iter().zip(&types).map(store).collect();
        let strides: Vec<Vec<i64>> = types.iter().map(|ty| aten::contiguous_strides(&ty.dims)).collect();
        let args: Vec<Arg> = (0..types.len())
            .map(|i| Arg::of_tensor(TensorArg::new(&staged[i], &types[i].dims, &strides[i], 0, types[i].dtype)))
            .collect();
        let mut outs = vec![Out::absent(); results.len()];
        self.recorder.calling = self.registry.called(&devices, collective.lane, collective.number);
        if !self.join(collective, op, &args, placement, &devices, &mut outs)? {
            match self.call(op, &args, placement, None, &mut outs)? {
                Status::Done(_) => {}
                status => return refuse(&format!("internal error: it ended with {status:?}")),
            }
        }
        // SAFETY: the call stored a storage in each, whose reference is ours.
        let made: Vec<Arc<Storage>> = outs.iter().map(|out| unsafe { Arc::from_raw(out.storage()) }).collect();
        for ((output, ty), storage) in outputs.iter().zip(&results).zip(made) {
            if let Some(value) = storage.value() {
                self.write_whole(output, ty, value)?;
            }
        }
        Ok(())
    }

    /// Decides whether a collective is a part of the current chunk. If not, the chunk ends where the order of the collectives
    /// or a value needs it. Returns whether the collective has joined the chunk, so that the ranks will vote on its program.
    fn join(
        &mut self,
        collective: &Collective<'_>,
        op: u32,
        args: &[Arg],
        placement: Placement,
        devices: &[i64],
        outs: &mut [Out],
    ) -> Result<bool> {
        let (mode, lane) = (self.caller_mode().mode, collective.lane);
        if self.recorder.is_inside(devices, placement, mode) {
            return Ok(false);
        }
        if self.recorder.group(placement).is_some_and(|group| group != lane) {
            self.flush(placement, Reason::OtherGroup)?;
        }
        let ballot = self.registry.ballot(devices, lane);
        let storages = || args.iter().map(|arg| arg.tensor().storage());
        if let Some(ballot) = ballot.as_ref().filter(|_| self.recorder.can_join(placement, lane, mode))
            && !storages().any(Storage::is_of_job)
        {
            let mut parts = std::mem::take(&mut self.spare_parts);
            let found = self.find_with_values(op, args, &mut parts)?;
            let joined = found.map(|instance| {
                if self.recorder.is_beat(placement, &instance) {
                    self.flush(placement, Reason::Beat)?;
                }
                let place = self.recorder.place(placement, &instance, lane);
                let joined = self.recorder.joined(placement);
                if !ballot.joins(place, joined) {
                    return Ok(false);
                }
                watch();
                let found = Found { instance: &instance, parts: &parts, placement, runs_by_itself: false };
                self.record_joined(found, lane, place, outs).map(|()| true)
            });
            self.spare_parts = parts;
            if joined.unwrap_or(Ok(false))? {
                return Ok(true);
            }
        }
        // The collectives in the chunk have lower numbers.
        if self.recorder.group(placement).is_some() || storages().any(Storage::is_pending) {
            let is_spmd = self.recorder.scopes.is_spmd(mode);
            self.flush(placement, if is_spmd { Reason::OtherGroup } else { Reason::Collective })?;
        }
        if let Some(ballot) = ballot {
            ballot.cut(1, mode != Mode::Fused);
        }
        Ok(false)
    }

    fn zeros(&mut self, placement: Placement, ty: &Type) -> Result<Arc<Value>> {
        let buffer = self.runtime()?.upload(placement, &vec![0; ty.size_bytes()], ty.dtype, &ty.dims)?;
        Ok(Value::new(self.registry.types.intern(ty), ValueState::Ready(buffer)))
    }
}

impl Collective<'_> {
    fn size(&self) -> i64 {
        self.processes.len() as i64
    }

    /// The types of the results. Ranks that do not use them have none, but their program is the same.
    fn results(&self, inputs: &[Type], outputs: &[Type]) -> Vec<Type> {
        match self.form {
            _ if !outputs.is_empty() => outputs.to_vec(),
            Form::AllGatherList => vec![inputs[0].clone(); self.processes.len()],
            _ => inputs.to_vec(),
        }
    }

    fn graph(&self, inputs: &[Type], results: &[Type], replicas: Vec<i64>) -> CompiledGraph {
        let mut made = Nodes { nodes: Vec::new(), inputs: inputs.len(), size: self.size() };
        let (size, first) = (self.size(), &inputs[0]);
        let rows = [size, first.numel() / size];
        let outputs: Vec<usize> = match self.form {
            Form::AllReduce => vec![self.reduced(&mut made, "all_reduce", 0, first)],
            Form::Broadcast => {
                let root = ("root", GraphArg::Plain(ArgSpec::Int(self.root)));
                vec![made.of_pairs(0, first, |made, value| made.collective("broadcast_replica", value, Some(root)))]
            }
            Form::AllGather | Form::AllGatherList => {
                let row = made.view(0, &[1, first.numel()]);
                let gathered = made.collective("all_gather", row, None);
                match self.form {
                    Form::AllGather => vec![gathered],
                    _ => (0..size).map(|rank| made.row(gathered, rank)).collect(),
                }
            }
            Form::ReduceScatter => {
                let parts = made.view(0, &rows);
                vec![self.reduced(&mut made, "reduce_scatter", parts, first)]
            }
            Form::ReduceScatterList => {
                let parts = made.stacked(inputs);
                vec![self.reduced(&mut made, "reduce_scatter", parts, first)]
            }
            Form::AllToAll => {
                let parts = made.view(0, &rows);
                vec![made.collective("all_to_all", parts, None)]
            }
            Form::Scatter => {
                let parts = made.stacked(inputs);
                let received = made.collective("all_to_all", parts, None);
                vec![made.row(received, self.root)]
            }
        };
        let outputs = outputs.iter().zip(results).map(|(&output, ty)| Some(made.view(output, &ty.dims))).collect();
        let arg = |i: usize| SchemaArg {
            name: i.to_string(),
            ty: "Tensor".into(),
            is_mutated: false,
            is_out: false,
            default: None,
        };
        let result = |ty: &Type| ResultSpec {
            dtype: ty.dtype,
            sizes: ty.dims.clone(),
            strides: aten::contiguous_strides(&ty.dims),
        };
        CompiledGraph {
            name: self.name.to_owned(),
            graph: Arc::new(Graph { inputs: inputs.len(), nodes: made.nodes, outputs, bounds: None }),
            args: (0..inputs.len()).map(arg).collect(),
            results: results.iter().map(result).collect(),
            bounded: Vec::new(),
            options: Vec::new(),
            replicas,
        }
    }

    /// A collective that reduces.
    fn reduced(&self, made: &mut Nodes, row: &str, mut value: usize, ty: &Type) -> usize {
        let mut reduction = self.reduction;
        if reduction == "premul_sum" {
            let factor = GraphArg::Scalar(Number::Float(self.factor));
            value = made.node("mul.Scalar", &[("self", GraphArg::Value(value)), ("other", factor)]);
            reduction = "sum";
        }
        let reduce_op = ("reduce_op", GraphArg::Plain(ArgSpec::Str(reduction.to_owned())));
        made.of_pairs(value, ty, |made, value| made.collective(row, value, Some(reduce_op)))
    }
}

/// The nodes of a graph in the making. Each has one result.
struct Nodes {
    nodes: Vec<Node>,
    inputs: usize,
    /// The number of ranks.
    size: i64,
}

impl Nodes {
    /// Adds a node, and returns the number of its result.
    fn node(&mut self, operator: &str, args: &[(&str, GraphArg)]) -> usize {
        let args = args.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        self.nodes.push(Node { operator: operator.to_owned(), args, results: 1 });
        self.inputs + self.nodes.len() - 1
    }

    fn collective(&mut self, row: &str, input: usize, more: Option<(&str, GraphArg)>) -> usize {
        let mut args = vec![
            ("input", GraphArg::Value(input)),
            ("group_size", GraphArg::Plain(ArgSpec::Int(self.size))),
            ("groups", GraphArg::Plain(ArgSpec::Ints(Vec::new()))),
        ];
        args.extend(more);
        self.node(&format!("torchtpu::{row}"), &args)
    }

    /// The result of nodes that take complex numbers as pairs.
    fn of_pairs(&mut self, value: usize, ty: &Type, add: impl FnOnce(&mut Nodes, usize) -> usize) -> usize {
        if !ty.dtype.is_complex() {
            return add(self, value);
        }
        let pairs = self.node("view_as_real", &[("self", GraphArg::Value(value))]);
        let made = add(self, pairs);
        self.node("view_as_complex", &[("self", GraphArg::Value(made))])
    }

    fn view(&mut self, value: usize, size: &[i64]) -> usize {
        let size = GraphArg::Plain(ArgSpec::Ints(size.to_vec()));
        self.node("view", &[("self", GraphArg::Value(value)), ("size", size)])
    }

    fn row(&mut self, value: usize, index: i64) -> usize {
        let int = |number| GraphArg::Plain(ArgSpec::Int(number));
        self.node("select.int", &[("self", GraphArg::Value(value)), ("dim", int(0)), ("index", int(index))])
    }

    /// The inputs as the rows of a matrix.
    fn stacked(&mut self, inputs: &[Type]) -> usize {
        let rows = (0..inputs.len()).map(|i| Some(self.view(i, &[1, inputs[i].numel()]))).collect();
        self.node("cat", &[("tensors", GraphArg::Values(rows)), ("dim", GraphArg::Plain(ArgSpec::Int(0)))])
    }
}
