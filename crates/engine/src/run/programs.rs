//! The programs in memory: found by their keys, or built. The least recently used are evicted.

use std::hash::BuildHasher;
use std::path::PathBuf;
use std::sync::Arc;

use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};

use super::module_text::{describe, module_text};
use super::runtime::Runtime;
use crate::cache::effort::{Effort, first_effort, first_effort_of_several};
use crate::cache::memory::{self, LastUse, Limit};
use crate::cache::{Source, Urgency};
use crate::error::{Error, Result};
use crate::platform::is_short_of_maps;
use crate::program::{Program, Quick, Usage};
use crate::record::chunk::Chunk;
use crate::registry::Registry;
use crate::registry::instance::Instance;
use crate::stats::CacheStats;

/// The size of a program in host memory, measured on the CPU plugin for programs of one operator and for a training
/// step.
const PROGRAM_BYTES: usize = 48 << 10;
const BYTES_PER_BYTE_OF_TEXT: usize = 16;

/// When a program is wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    Now,
    /// For a later run.
    Ahead,
}

/// A program with the usage that it was made for.
type Used = (Usage, Arc<Program>);

/// After so many new programs, the process's memory maps are counted.
const PROGRAMS_PER_COUNT_OF_MAPS: usize = 32;

/// After so many evicted programs, those before are forgotten.
const MOST_EVICTED: usize = 1 << 16;

const NOTHING: Limit = Limit { count: 0, bytes: 0 };

pub(crate) struct Programs {
    /// Programs of several operators by the keys of their chunks, each with its usage. A program of one operator is found
    /// through its instance.
    by_key: FxHashMap<Box<[u64]>, Vec<Used>>,
    /// The hashes of the places of evicted programs, for explanations.
    evicted: FxHashSet<u64>,
    limit: Limit,
    /// A lower bound of the size of the programs in memory.
    held: Limit,
    built: usize,
    /// The folder in which their texts are written.
    dump_folder: Option<PathBuf>,
    dumped: usize,
}

impl Programs {
    pub fn new(limit: Limit) -> Programs {
        let (by_key, evicted) = (FxHashMap::default(), FxHashSet::default());
        Programs { by_key, evicted, limit, held: NOTHING, built: 0, dump_folder: None, dumped: 0 }
    }

    /// Sets the folder for the texts of programs. Drops the programs built before, so that the folder gets the text
    /// of every program that runs from now on.
    pub fn dump_to(&mut self, folder: Option<PathBuf>, registry: &Registry, stats: &mut CacheStats) {
        if folder.is_some() {
            self.evict(NOTHING, registry, stats);
        }
        self.dump_folder = folder;
    }

    /// The program of a chunk, and whether it was not in memory. Its executable may be being made.
    pub fn find_or_build(
        &mut self,
        chunk: &Chunk,
        usage: &Usage,
        runtime: &Runtime,
        registry: &Registry,
        stats: &mut CacheStats,
        wanted: Wanted,
    ) -> Result<(Arc<Program>, bool)> {
        stats.requests += 1;
        let now = registry.clock();
        // A program of one operator is found through its instance, others by the chunk's key.
        let alone = match (&chunk.nodes[..], usage.key_bits()) {
            ([node], Some(bits)) => Some((&node.instance.alone, bits)),
            _ => None,
        };
        let known = match alone {
            Some((list, bits)) => {
                list.lock().iter().find(|(known, _)| *known == bits).map(|(_, program)| Arc::clone(program))
            }
            None => self.known(chunk, usage).cloned(),
        };
        // A failed program is tried again: memory may have been short.
        if let Some(program) = known.filter(|program| !program.executable.is_failed()) {
            program.last_use.set(now);
            stats.hits += 1;
            return Ok((program, false));
        }
        let mut program = self.build(chunk, usage, runtime, registry, wanted)?;
        program.was_evicted = self.evicted.remove(&match alone {
            Some((_, bits)) => place_alone(&chunk.nodes[0].instance, bits),
            None => place_by_key(&chunk.key, usage),
        });
        let program = Arc::new(program);
        self.built += 1;
        if self.held.count >= self.limit.count || self.held.bytes >= self.limit.bytes {
            self.evict(self.limit, registry, stats);
        } else if self.built % PROGRAMS_PER_COUNT_OF_MAPS == 0 && is_short_of_maps() {
            self.evict(Limit { count: self.held.count, bytes: self.limit.bytes }, registry, stats);
        }
        self.held.count += 1;
        self.held.bytes += program.bytes();
        match alone {
            Some((list, bits)) => {
                let mut list = list.lock();
                list.retain(|(known, _)| *known != bits);
                list.push((bits, Arc::clone(&program)));
            }
            None => {
                let programs = self.by_key.entry(chunk.key[..].into()).or_default();
                programs.retain(|(known, _)| known != usage);
                programs.push((usage.clone(), Arc::clone(&program)));
            }
        }
        Ok((program, true))
    }

    /// The program of a chunk of several operators, if it is in memory.
    pub fn known(&self, chunk: &Chunk, usage: &Usage) -> Option<&Arc<Program>> {
        let programs = self.by_key.get(&chunk.key[..])?;
        programs.iter().find(|(known, _)| known == usage).map(|(_, program)| program)
    }

    /// A program of a chunk that is made and can run where a usage is wanted, with its own usage.
    pub fn serving(&self, chunk: &Chunk, wanted: &Usage) -> Option<Used> {
        let is_usable = |program: &Program| program.executable.is_made() && !program.executable.is_failed();
        let fits = |(known, program): &Used| known.serves(wanted) && is_usable(program);
        if let ([node], Some(_)) = (&chunk.nodes[..], wanted.key_bits()) {
            let programs = node.instance.alone.lock();
            let known = programs.iter().map(|(bits, program)| (Usage::of_bits(*bits, wanted.donated.len()), program));
            return known.map(|(usage, program)| (usage, Arc::clone(program))).find(fits);
        }
        self.by_key.get(&chunk.key[..])?.iter().find(|each| fits(each)).cloned()
    }

    /// Evicts the least recently used programs until less than a limit remains.
    fn evict(&mut self, limit: Limit, registry: &Registry, stats: &mut CacheStats) {
        let mut instances: Vec<&Arc<Instance>> = registry.instances().collect();
        instances.sort_by_key(|instance| instance.id);
        instances.dedup_by_key(|instance| instance.id);
        let use_and_size = |program: &Arc<Program>| (program.last_use.get(), program.bytes());
        let mut uses: Vec<(u64, usize)> =
            self.by_key.values().flatten().map(|(_, program)| use_and_size(program)).collect();
        for instance in &instances {
            uses.extend(instance.alone.lock().iter().map(|(_, program)| use_and_size(program)));
        }
        let before = uses.len();
        let deadline = memory::deadline(uses, limit);
        if self.evicted.len() > MOST_EVICTED {
            self.evicted.clear();
        }
        // Count again: evicted instances have dropped their programs too.
        let mut left = NOTHING;
        let evicted = &mut self.evicted;
        let mut stays = |program: &Program, place: &dyn Fn() -> u64| {
            let stays = program.last_use.get() > deadline;
            if stays {
                left.count += 1;
                left.bytes += program.bytes();
            } else {
                evicted.insert(place());
            }
            stays
        };
        self.by_key.retain(|key, programs| {
            programs.retain(|(usage, program)| stays(program, &|| place_by_key(key, usage)));
            !programs.is_empty()
        });
        for instance in instances {
            instance.alone.lock().retain(|(bits, program)| stays(program, &|| place_alone(instance, *bits)));
        }
        self.held = left;
        stats.evictions += (before - left.count) as u64;
    }

    fn build(
        &mut self,
        chunk: &Chunk,
        usage: &Usage,
        runtime: &Runtime,
        registry: &Registry,
        wanted: Wanted,
    ) -> Result<Program> {
        let text = module_text(chunk, &registry.types, usage);
        let operators = describe(chunk);
        if let Some(folder) = &self.dump_folder {
            let path = folder.join(format!("program_{:05}.mlir", self.dumped));
            self.dumped += 1;
            std::fs::write(&path, format!("// {operators}\n{text}"))
                .map_err(|error| Error::runtime(format!("cannot write {}: {error}", path.display())))?;
        }
        let flags = chunk.flags().cloned().unwrap_or_default();
        let inputs: usize = chunk.inputs.iter().map(|input| registry.types.get(input.ty).size_bytes()).sum();
        let data = inputs + chunk.bytes;
        let bytes = PROGRAM_BYTES + BYTES_PER_BYTE_OF_TEXT * text.len();
        let is_alone = matches!(&chunk.nodes[..], [node] if node.instance.compiled.is_none());
        let kind = runtime.platform.kind;
        let effort = match is_alone {
            _ if wanted == Wanted::Ahead => Effort::Full,
            // All ranks run the same code.
            _ if !chunk.replicas().is_empty() => Effort::Full,
            true => first_effort(kind, &text, data),
            false => first_effort_of_several(kind, &text, data),
        };
        let replicas = chunk.replicas().to_vec();
        let digest = if replicas.is_empty() { 0 } else { digest_of(&text) };
        let mut source = Source { text, operators: operators.clone(), flags, replicas, effort: Effort::Full };
        let mut quick = None;
        // Quick code of several operators is of no use if the better executable need not be compiled.
        if effort == Effort::Quick && (is_alone || !runtime.cache.has(&source)) {
            source.effort = Effort::Quick;
            quick = Some(match is_alone {
                true => Quick::of_one(source.clone(), data),
                false => Quick::of_several(source.clone()),
            });
        }
        let (executable, shares_executable) = match wanted {
            Wanted::Now => runtime.executable(source),
            Wanted::Ahead => (runtime.executable_later(source, Urgency::Ahead), false),
        };
        Ok(Program {
            executable,
            quick,
            shares_executable,
            operators,
            digest,
            last_use: LastUse::new(registry.clock()),
            bytes,
            was_evicted: false,
        })
    }
}

/// The hash of the place of a program of one operator.
fn place_alone(instance: &Instance, bits: u64) -> u64 {
    FxBuildHasher.hash_one((instance.id, bits))
}

/// The hash of the place of a program of several operators.
fn place_by_key(key: &[u64], usage: &Usage) -> u64 {
    FxBuildHasher.hash_one((key, usage))
}

/// The first bytes of the hash of a text.
fn digest_of(text: &str) -> u64 {
    blake3::hash(text.as_bytes()).as_bytes().iter().take(8).fold(0, |digest, byte| digest << 8 | u64::from(*byte))
}
