//! Ending a chunk: which results are wanted, which inputs are given up, and the program for that, found or made.

use std::sync::{Arc, Weak};

use crate::cache::Source;
use crate::cache::memory::{self, LastUse, Limit};
use crate::chunk::Chunk;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::explain::Reason;
use crate::instance::Instance;
use crate::launch::{self, Launch};
use crate::program::{self, Program, Usage};

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
        let chunk = std::mem::replace(slot, Chunk::new(number));
        if self.has_rhythm() {
            self.rhythms[device].learn(&chunk);
        }
        let begun = self.explain_flush();
        let (result, emptied) = self.run(device, chunk, reason);
        self.explain_flushed(begun);
        if let Some(mut chunk) = emptied {
            chunk.reset(number);
            self.chunks[device] = chunk;
        }
        self.update_wanted_lines();
        result
    }

    pub fn flush_all(&mut self, reason: Reason) -> Result<()> {
        self.flush_where(reason, |_| true)
    }

    pub(crate) fn flush_where(&mut self, reason: Reason, is_meant: impl Fn(&Chunk) -> bool) -> Result<()> {
        let mut result = Ok(());
        for device in 0..self.chunks.len() {
            if is_meant(&self.chunks[device]) {
                result = result.and(self.flush(device, reason));
            }
        }
        result
    }

    /// Returns the chunk if nobody needs it any more.
    fn run(&mut self, device: usize, chunk: Chunk, reason: Reason) -> (Result<()>, Option<Chunk>) {
        let usage = chunk.usage(&self.types);
        if usage.live.is_empty() {
            return (Ok(()), Some(chunk));
        }
        match self.program(&chunk, &usage) {
            Ok((program, built)) => {
                let explained = self.explain_run(&chunk, &program, built, device, reason, usage.live.len());
                self.launch_or_queue(device, Launch { chunk, usage, program, reason, explained })
            }
            Err(error) => {
                let values: Vec<_> = chunk.outputs.iter().filter_map(Weak::upgrade).collect();
                launch::fail(values.iter(), &error);
                (Err(error), Some(chunk))
            }
        }
    }

    /// The program of a chunk, which may be in the making, and whether it was not in memory.
    pub(crate) fn program(&mut self, chunk: &Chunk, usage: &Usage) -> Result<(Arc<Program>, bool)> {
        self.cache_stats.requests += 1;
        let now = self.clock;
        // A program of one operator is found through its instance, others by their full key.
        let alone = match (&chunk.nodes[..], usage.key_bits()) {
            ([node], Some(bits)) => Some((&node.instance.alone, bits)),
            _ => None,
        };
        let mut key = Vec::new();
        let known = match alone {
            Some((list, bits)) => {
                list.lock().iter().find(|(known, _)| *known == bits).map(|(_, program)| Arc::clone(program))
            }
            None => {
                key = usage.key_of(chunk);
                self.programs.get(&key[..]).cloned()
            }
        };
        // What failed may succeed now: memory may have been short.
        if let Some(program) = known.filter(|program| !program.executable.is_failed()) {
            program.last_use.set(now);
            self.cache_stats.hits += 1;
            return Ok((program, false));
        }
        let program = Arc::new(self.build(chunk, usage)?);
        if self.held_programs.count >= self.max_programs.count || self.held_programs.bytes >= self.max_programs.bytes {
            self.evict_programs(self.max_programs);
        }
        self.held_programs.count += 1;
        self.held_programs.bytes += program.bytes();
        match alone {
            Some((list, bits)) => {
                let mut list = list.lock();
                list.retain(|(known, _)| *known != bits);
                list.push((bits, Arc::clone(&program)));
            }
            None => {
                self.programs.insert(key.into_boxed_slice(), Arc::clone(&program));
            }
        }
        Ok((program, true))
    }

    /// Drops the programs that were not used for the longest time, down to less than a limit.
    pub(crate) fn evict_programs(&mut self, limit: Limit) {
        let mut instances: Vec<&Arc<Instance>> = self.instances.values().collect();
        instances.sort_by_key(|instance| instance.id);
        instances.dedup_by_key(|instance| instance.id);
        let use_and_size = |program: &Arc<Program>| (program.last_use.get(), program.bytes());
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
            left.bytes += if stays { program.bytes() } else { 0 };
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
        let flags = chunk.flags().cloned().unwrap_or_default();
        let bytes = PROGRAM_BYTES + BYTES_PER_BYTE_OF_TEXT * text.len();
        let source = Source { text, operators: operators.clone(), flags };
        let (executable, shares_executable) = self.runtime()?.executable(source);
        Ok(Program { executable, shares_executable, operators, last_use: LastUse::new(self.clock), bytes })
    }
}

impl Usage {
    /// With a chunk's, the key of a program.
    fn key_of(&self, chunk: &Chunk) -> Vec<u64> {
        let mut key = chunk.key.clone();
        key.push(u64::MAX);
        key.extend(self.live.iter().map(|&output| u64::from(output)));
        key.push(u64::MAX);
        key.extend(self.donated.iter().map(|&donated| u64::from(donated)));
        key
    }

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
