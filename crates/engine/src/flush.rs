//! Running what has been recorded: finding or compiling the program, choosing donations, executing.

use std::sync::Arc;
use std::time::Instant;

use pjrt::Buffer;

use crate::cache::Source;
use crate::cache::memory::{self, LastUse, Limit};
use crate::chunk::{Chunk, Extra};
use crate::engine::{Engine, Mode};
use crate::error::{Error, ErrorKind, Result};
use crate::explain::Reason;
use crate::instance::Instance;
use crate::program::{self, Program, Usage};
use crate::runtime::Runtime;
use crate::storage::{Value, ValueState};

/// What a program takes in the process's memory: measured on the CPU plugin, for programs of one operator and for
/// a training step.
const PROGRAM_BYTES: usize = 48 << 10;
const BYTES_PER_BYTE_OF_TEXT: usize = 16;

impl Engine {
    /// Runs everything recorded for a device. After a failure the values that it would have computed
    /// say so when they are read; everything else stays as it was.
    pub fn flush(&mut self, device: usize, reason: Reason) -> Result<()> {
        let Some(slot) = self.chunks.get_mut(device) else { return Ok(()) };
        if slot.is_empty() {
            return Ok(());
        }
        let number = self.next_chunk;
        self.next_chunk += 1;
        let mut chunk = std::mem::replace(slot, Chunk::new(number));
        if self.has_rhythm() {
            self.rhythms[device].learn(&chunk);
        }
        let result = self.run(device, &chunk, reason);
        if result.is_err() {
            self.failed_inputs = std::mem::take(&mut chunk.inputs);
        }
        chunk.reset(number);
        self.chunks[device] = chunk;
        self.update_wanted_lines();
        result
    }

    pub fn flush_all(&mut self, reason: Reason) -> Result<()> {
        let mut result = Ok(());
        for device in 0..self.chunks.len() {
            result = result.and(self.flush(device, reason));
        }
        result
    }

    fn run(&mut self, device: usize, chunk: &Chunk, reason: Reason) -> Result<()> {
        let mut values: Vec<Arc<Value>> = Vec::with_capacity(chunk.outputs.len());
        let mut usage = Usage::default();
        for (index, output) in chunk.outputs.iter().enumerate() {
            if let Some(value) = output.upgrade() {
                usage.live.push(index as u32);
                values.push(value);
            }
        }
        if values.is_empty() {
            return Ok(());
        }
        // Nobody but the chunk knows the value any more, and nobody but the value its buffer.
        usage.donated.extend(chunk.inputs.iter().map(|input| Arc::strong_count(input) == 1 && input.owns_buffer()));
        match self.execute(device, chunk, &usage, &values, reason) {
            // What Debug mode finds in the results does not undo them.
            Ok(program) if self.mode == Mode::Debug => {
                self.inspect(&program, &values).map_err(|error| error.at(chunk.line_of(0)))
            }
            Ok(_) => Ok(()),
            Err(error) => {
                if error.kind == ErrorKind::OutOfMemory {
                    crate::memory::count_out_of_memory(device);
                }
                if chunk.nodes.len() > 1 {
                    // Only the guilty operator's results, and what needs them, are to be lost.
                    self.run_one_by_one(device, chunk, reason);
                    return Ok(());
                }
                let error = error.at(chunk.line_of(0));
                fail(&values, &error);
                Err(error)
            }
        }
    }

    /// Runs a chunk that failed as a whole again, operator by operator. Results that fail say so when they are
    /// read.
    fn run_one_by_one(&mut self, device: usize, chunk: &Chunk, reason: Reason) {
        let types: Vec<_> = chunk.output_types().into_iter().cloned().collect();
        let values: Vec<Arc<Value>> = chunk
            .outputs
            .iter()
            .zip(types)
            .map(|(output, ty)| {
                let dead = || Value::new(self.types.intern(&ty), ValueState::Pending { output: 0 });
                output.upgrade().unwrap_or_else(dead)
            })
            .collect();
        for (index, node) in chunk.nodes.iter().enumerate() {
            let first = node.first_output as usize;
            let results = &values[first..first + node.num_outputs()];
            let alone = chunk.alone(index, &values);
            let usage = Usage { live: (0..results.len() as u32).collect(), donated: vec![false; alone.inputs.len()] };
            if let Err(error) = self.execute(device, &alone, &usage, results, reason) {
                fail(results, &error.at(chunk.line_of(index)));
            }
        }
    }

    fn execute(
        &mut self,
        device: usize,
        chunk: &Chunk,
        usage: &Usage,
        values: &[Arc<Value>],
        reason: Reason,
    ) -> Result<Arc<Program>> {
        let explained = self.explain_start();
        let program = self.program(chunk, usage)?;
        let runtime = self.runtime()?;
        let mut inputs: Vec<Arc<Buffer>> = Vec::with_capacity(chunk.inputs.len() + chunk.extras.len());
        for input in &chunk.inputs {
            inputs.push(input.buffer()?);
        }
        for extra in &chunk.extras {
            inputs.push(upload_extra(runtime, device, *extra)?);
        }
        let borrowed: Vec<&Buffer> = inputs.iter().map(|buffer| &**buffer).collect();
        let launched = Instant::now();
        let mut outputs = Vec::with_capacity(values.len());
        let run = program
            .executable
            .execute(device, &borrowed, &[], &mut outputs)
            .map_err(|error| Error::from(error).within(&program.operators))?;
        let run = run.map(|run| runtime.track(device, run));
        if let Some(started) = explained {
            let done = self.explain_run(&started, launched, reason, device, chunk, &program, values.len());
            if let (Some(done), Some(run)) = (done, run) {
                self.explain_done(done, &run);
            }
        }
        for (value, output) in values.iter().zip(outputs) {
            value.settle(ValueState::Ready(Arc::new(output)));
        }
        Ok(program)
    }

    fn program(&mut self, chunk: &Chunk, usage: &Usage) -> Result<Arc<Program>> {
        self.cache_stats.requests += 1;
        let now = self.clock;
        // A program of one operator is found through its instance, others by their full key.
        let alone = match (&chunk.nodes[..], usage.key_bits()) {
            ([node], Some(bits)) => Some((&node.instance.alone, bits)),
            _ => None,
        };
        if let Some((list, bits)) = alone {
            if let Some((_, program)) = list.lock().iter().find(|(known, _)| *known == bits) {
                program.last_use.set(now);
                self.cache_stats.hits += 1;
                return Ok(Arc::clone(program));
            }
        }
        let mut key = chunk.key.clone();
        key.push(u64::MAX);
        key.extend(usage.live.iter().map(|&output| u64::from(output)));
        key.push(u64::MAX);
        key.extend(usage.donated.iter().map(|&donated| u64::from(donated)));
        if alone.is_none() {
            if let Some(program) = self.programs.get(&key[..]) {
                program.last_use.set(now);
                self.cache_stats.hits += 1;
                return Ok(Arc::clone(program));
            }
        }
        let program = Arc::new(self.build(chunk, usage)?);
        if self.held_programs.count >= self.max_programs.count || self.held_programs.bytes >= self.max_programs.bytes {
            self.evict_programs(self.max_programs);
        }
        self.held_programs.count += 1;
        self.held_programs.bytes += program.bytes;
        match alone {
            Some((list, bits)) => list.lock().push((bits, Arc::clone(&program))),
            None => {
                self.programs.insert(key.into_boxed_slice(), Arc::clone(&program));
            }
        }
        Ok(program)
    }

    /// Drops the programs that were not used for the longest time, down to less than a limit.
    pub(crate) fn evict_programs(&mut self, limit: Limit) {
        let mut instances: Vec<&Arc<Instance>> = self.instances.values().collect();
        instances.sort_by_key(|instance| instance.id);
        instances.dedup_by_key(|instance| instance.id);
        let use_and_size = |program: &Arc<Program>| (program.last_use.get(), program.bytes);
        let mut uses: Vec<(u64, usize)> = self.programs.values().map(use_and_size).collect();
        for instance in &instances {
            uses.extend(instance.alone.lock().iter().map(|(_, program)| use_and_size(program)));
        }
        let held = uses.len();
        let deadline = memory::deadline(uses, limit);
        // Counted anew: instances that have left took theirs along.
        let mut left = Limit { count: 0, bytes: 0 };
        let mut stays = |program: &Program| {
            let stays = program.last_use.get() > deadline;
            left.count += usize::from(stays);
            left.bytes += if stays { program.bytes } else { 0 };
            stays
        };
        self.programs.retain(|_, program| stays(program));
        for instance in instances {
            instance.alone.lock().retain(|(_, program)| stays(program));
        }
        self.held_programs = left;
        self.cache_stats.evictions += (held - left.count) as u64;
    }

    fn build(&mut self, chunk: &Chunk, usage: &Usage) -> Result<Program> {
        let text = program::module_text(chunk, &self.types, usage);
        let operators = program::describe(chunk);
        if let Some(folder) = &self.dump_folder {
            let path = folder.join(format!("program_{:05}.mlir", self.dumped_programs));
            self.dumped_programs += 1;
            std::fs::write(&path, format!("// {operators}\n{text}"))
                .map_err(|error| Error::runtime(format!("cannot write {}: {error}", path.display())))?;
        }
        let compiled = chunk.nodes.iter().find_map(|node| node.instance.compiled.as_ref());
        let flags = compiled.map_or(&[][..], |compiled| &compiled.options);
        let source = Source { text: &text, operators: &operators, flags };
        let executable = self.runtime()?.executable(&source).map_err(|error| error.within(&operators))?;
        let code = executable.memory_stats().map_or(0, |stats| stats.generated_code.max(0) as usize);
        let bytes = PROGRAM_BYTES + BYTES_PER_BYTE_OF_TEXT * text.len() + code;
        Ok(Program { executable, operators, last_use: LastUse::new(self.clock), bytes })
    }

    /// Debug mode: waits for the results, and looks for NaN and infinities when asked to.
    fn inspect(&self, program: &Program, values: &[Arc<Value>]) -> Result<()> {
        for value in values {
            let buffer = value.buffer()?;
            buffer.ready().map_err(|error| Error::from(error).within(&program.operators))?;
            let ty = self.types.get(value.ty);
            if !self.check_finite || !(ty.dtype.is_float() || ty.dtype.is_complex()) {
                continue;
            }
            let mut bytes = vec![0; ty.size_bytes()];
            buffer.to_host(&mut bytes)?;
            if let Some(what) = crate::host::first_non_finite(&bytes, ty.dtype) {
                return Err(Error::runtime(format!(
                    "{}: its result of shape {:?} contains {what} (check_finite is on)",
                    program.operators, ty.dims
                )));
            }
        }
        Ok(())
    }
}

fn fail(values: &[Arc<Value>], error: &Error) {
    let failure = Arc::new(error.clone());
    values.iter().for_each(|value| value.settle(ValueState::Failed(Arc::clone(&failure))));
}

impl Usage {
    /// The usage as bits, where it fits.
    fn key_bits(&self) -> Option<u64> {
        let outputs = self.live.last().map_or(0, |&last| last + 1);
        if outputs > 32 || self.donated.len() > 32 {
            return None;
        }
        let live = self.live.iter().fold(0, |bits, &output| bits | 1 << output);
        let donated = self.donated.iter().enumerate().fold(0, |bits, (i, &d)| bits | u64::from(d) << i);
        Some(live | donated << 32)
    }
}

fn upload_extra(runtime: &mut Runtime, device: usize, extra: Extra) -> Result<Arc<Buffer>> {
    match extra {
        Extra::Number(number, dtype) => runtime.scalar(device, number, dtype),
        Extra::RandomState([seed, offset]) => {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&seed.to_ne_bytes());
            bytes[8..].copy_from_slice(&offset.to_ne_bytes());
            runtime.upload(device, &bytes, stablehlo::DType::U64, &[2])
        }
    }
}
