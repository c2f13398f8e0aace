//! The only place where a program's text becomes an executable. It is found in the process, loaded from the user's
//! folder, or compiled.
//!
//! Executables are kept on disk ([`disk`]). The key covers everything that they depend on: the text, the compile
//! options, and the [`target`]. If several processes need the same program at the same time, one compiles it and the
//! others wait. A problem with the folder is not an error: it gives a warning, and the program is compiled.

mod bundle;
mod calls;
mod disk;
pub(crate) mod effort;
mod entry;
mod executable;
mod folder;
mod fusion;
pub(crate) mod memory;
mod passes;
mod settings;
mod target;
mod writer;

use std::borrow::Cow;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pjrt::{CompileOptions, LoadedExecutable, Topology};
use rustc_hash::FxHashMap;

pub use bundle::Imported;
use calls::is_self_contained;
pub use entry::About;
pub(crate) use executable::{Executable, Urgency};
pub use folder::{Folder, Stored};
pub use settings::Settings;
pub(crate) use settings::{chunk_bytes, programs_in_memory};

use crate::error::{Error, Result};
use crate::overlap;
use crate::platform::{Kind, Platform};
use crate::stats::{CacheStats, Making};
use disk::{Lock, Store};
use effort::Effort;
use entry::{Entry, Key};
use executable::Pool;
use writer::{Job, Writer};

/// How long to wait for another process that compiles a program, before compiling it here as well. The other process
/// may be stopped.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// How long to wait for the next program, after one wait was that long.
const NEXT_WAIT: Duration = Duration::from_secs(1);

/// The intervals of checking whether it is done: short at first, because most programs are small.
const POLLS: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(20)];

/// The file in the folder with digests of plugins.
const PLUGINS: &str = ".plugins";

/// Shows warnings. Set once, by the code that can show them.
static WARN: OnceLock<fn(String)> = OnceLock::new();

/// Sets the function that shows warnings. It is called on any thread, with or without locks held.
pub fn set_warn(warn: fn(String)) {
    let _ = WARN.set(warn);
}

fn warn(message: String) {
    match WARN.get() {
        Some(warn) => warn(message),
        None => eprintln!("torchtpu: {message}"),
    }
}

/// The compile options for a kind of device.
pub(crate) fn compile_options(kind: Kind) -> CompileOptions {
    let mut options = CompileOptions::default();
    let mut disable = |name: &str| options.overrides.push((name.into(), pjrt::Value::Bool(false)));
    match kind {
        // With fast min and max, XLA drops a NaN in the right operand.
        Kind::Cpu => disable("xla_cpu_enable_fast_min_max"),
        // With excess precision, XLA leaves out roundings to 16 and 8 bits, and numbers depend on what it fuses.
        Kind::Tpu | Kind::Cuda => disable("xla_allow_excess_precision"),
        Kind::Other => {}
    }
    options
}

/// A program to compile.
#[derive(Clone)]
pub(crate) struct Source {
    pub text: String,
    /// The operators in the program, for messages.
    pub operators: String,
    /// XLA's flags for this program.
    pub flags: Vec<(String, pjrt::Value)>,
    /// The devices of its replicas, by their global ids. Empty for a program that runs on any device.
    pub replicas: Vec<i64>,
    pub effort: Effort,
}

/// The executables of a client.
pub struct Cache {
    options: CompileOptions,
    /// Further options for programs with collectives.
    overlap: Vec<(String, pjrt::Value)>,
    disk: Option<Disk>,
    /// Executables that are in use or being made, by program. Several callers may share one.
    known: Mutex<FxHashMap<Key, Weak<Executable>>>,
    pool: Pool,
    stats: Arc<Mutex<CacheStats>>,
}

/// The part of a cache on disk.
struct Disk {
    store: Arc<Store>,
    target: String,
    /// The hash of everything in a key but the program.
    prefix: blake3::Hasher,
    writer: Writer,
    /// Each warning is given once.
    warned_of_damage: AtomicBool,
    warned_of_waiting: AtomicBool,
}

impl Cache {
    /// The cache of an open plugin, with a folder if the settings ask for one and it can be used.
    pub(crate) fn open(platform: &Platform, settings: &Settings) -> Cache {
        let options = compile_options(platform.kind);
        let stats = Arc::<Mutex<CacheStats>>::default();
        // Executables of the dry plugin are of no use to anybody.
        let store = if platform.is_dry { None } else { settings.open() };
        let disk = store.and_then(|store| {
            let target = describe(platform, Some(&store));
            let target = target.map_err(|error| warn(format!("compiled programs are not kept: {error}"))).ok()?;
            Some(Disk::new(store, target, &options, &stats))
        });
        let overlap =
            platform.devices.first().map(|device| overlap::options(&device.kind).collect()).unwrap_or_default();
        Cache { options, overlap, disk, known: Mutex::default(), pool: Pool::new(), stats }
    }

    /// The executable of a program, and whether it was known. If not, it is made on another thread, which then calls
    /// `made`.
    pub(crate) fn executable(
        self: &Arc<Self>,
        platform: &Arc<Platform>,
        source: Source,
        made: impl FnOnce() + Send + 'static,
    ) -> (Arc<Executable>, bool) {
        let key = self.key(&source);
        let mut known = self.known.lock();
        let executable = known.get(&key).and_then(Weak::upgrade);
        // A failed program is tried again: memory may have been short.
        if let Some(executable) = executable.filter(|executable| !executable.is_failed()) {
            self.stats.lock().hits += 1;
            return (executable, true);
        }
        if known.len() == known.capacity() {
            known.retain(|_, executable| executable.strong_count() > 0);
        }
        let (cache, platform) = (Arc::clone(self), Arc::clone(platform));
        let make = move |making: &mut Making| {
            let result = cache.load_or_compile(&platform, key, &source, making);
            cache.stats.lock().add(making);
            result.map_err(|error| error.within(&source.operators))
        };
        let executable = self.pool.spawn(make, made);
        known.insert(key, Arc::downgrade(&executable));
        (executable, false)
    }

    /// Whether an executable of a program is ready or on disk.
    pub(crate) fn has(&self, source: &Source) -> bool {
        let key = self.key(source);
        let known = self.known.lock().get(&key).and_then(Weak::upgrade);
        known.is_some_and(|known| known.is_made() && !known.is_failed())
            || self.disk.as_ref().is_some_and(|disk| disk.store.has(&key))
    }

    /// The executable of a program, made when no other is being made. The thread that makes it then calls `made`.
    pub(crate) fn executable_later(
        self: &Arc<Self>,
        platform: &Arc<Platform>,
        source: Source,
        urgency: Urgency,
        made: impl FnOnce() + Send + 'static,
    ) -> Arc<Executable> {
        let key = self.key(&source);
        let mut known = self.known.lock();
        if let Some(executable) = known.get(&key).and_then(Weak::upgrade) {
            self.stats.lock().hits += u64::from(urgency == Urgency::Ahead);
            return executable;
        }
        let (cache, platform) = (Arc::clone(self), Arc::clone(platform));
        let make = move |making: &mut Making| {
            let result = cache.load_or_compile(&platform, key, &source, making);
            let mut stats = cache.stats.lock();
            match making.is_improvement {
                // The user did not request this program.
                true => stats.improved += u64::from(result.is_ok()),
                false => stats.add(making),
            }
            result.map_err(|error| error.within(&source.operators))
        };
        let executable = self.pool.spawn_later(urgency, make, made);
        known.insert(key, Arc::downgrade(&executable));
        executable
    }

    fn key(&self, source: &Source) -> Key {
        let mut hasher = self.disk.as_ref().map_or_else(blake3::Hasher::new, |disk| disk.prefix.clone());
        hasher.update(source.text.as_bytes());
        if !source.flags.is_empty() || !source.replicas.is_empty() || source.effort == Effort::Quick {
            hasher.update(&self.options(source).encode());
        }
        hasher.finalize()
    }

    fn options(&self, source: &Source) -> CompileOptions {
        let mut options = self.options.clone();
        options.overrides.extend(effort::flags(source.effort));
        options.overrides.extend_from_slice(&source.flags);
        if source.replicas.is_empty() {
            return options;
        }
        options.overrides.extend_from_slice(&self.overlap);
        options.on_devices(&source.replicas)
    }

    fn compile(&self, platform: &Platform, source: &Source, making: &mut Making) -> Result<Arc<LoadedExecutable>> {
        let start = Instant::now();
        let mut options = self.options(source);
        if making.is_in_background {
            // The code is the same, and so is the key.
            options.overrides.extend(effort::flags_of_background(platform.kind));
        }
        let mut text = Cow::Borrowed(&*source.text);
        if platform.kind == Kind::Cpu {
            // All follow from the text, which is in the key.
            let safe = passes::without_barriers_in_regions(&source.text);
            let limited = fusion::with_barriers(&safe);
            options.overrides.extend(passes::flags(&source.text, limited.is_some()));
            text = limited.map_or(safe, Cow::Owned);
        }
        let executable = platform.client.compile(text.as_bytes(), &options)?;
        making.compiling += start.elapsed();
        if !making.is_improvement {
            self.stats.lock().compiles += 1;
        }
        Ok(Arc::new(executable))
    }

    fn load_or_compile(
        &self,
        platform: &Platform,
        key: Key,
        source: &Source,
        making: &mut Making,
    ) -> Result<Arc<LoadedExecutable>> {
        let Some(disk) = self.disk.as_ref().filter(|_| is_self_contained(&source.text)) else {
            return self.compile(platform, source, making);
        };
        if let Some(executable) = self.load(disk, platform, &key, making) {
            return Ok(executable);
        }
        let lock = self.wait_for(disk, &key, making);
        // Another process may have written the entry before it released the lock.
        if let Some(executable) = self.load(disk, platform, &key, making) {
            return Ok(executable);
        }
        let executable = self.compile(platform, source, making)?;
        let about = About {
            operators: source.operators.clone(),
            target: disk.target.clone(),
            compile_seconds: making.compiling.as_secs_f64(),
        };
        disk.writer.send(Job { key, about, executable: Arc::clone(&executable), _lock: lock });
        // XLA's CPU compiler cannot serialize a sort that has run. It expands some custom calls, such as Eigh, into
        // sorts.
        if ["stablehlo.sort", "custom_call"].iter().any(|each| source.text.contains(each)) {
            disk.writer.finish();
        }
        Ok(executable)
    }

    /// The executable in the folder, if there is one. An entry that cannot be used is removed.
    fn load(&self, disk: &Disk, platform: &Platform, key: &Key, making: &mut Making) -> Option<Arc<LoadedExecutable>> {
        let bytes = disk.read(key)?;
        let start = Instant::now();
        let loaded = match Entry::decode(&bytes) {
            Ok(entry) if entry.key != *key => Err("it is another program's".into()),
            Ok(entry) => platform.client.deserialize(entry.executable).map_err(|error| error.to_string()),
            Err(reason) => Err(reason.into()),
        };
        match loaded {
            Ok(executable) => {
                making.loading += start.elapsed();
                if !making.is_improvement {
                    self.stats.lock().disk_hits += 1;
                }
                Some(Arc::new(executable))
            }
            Err(reason) => {
                disk.damaged(key, &reason);
                None
            }
        }
    }

    /// Waits for the lock on a program. `None` if there are no locks or the wait is too long.
    fn wait_for(&self, disk: &Disk, key: &Key, making: &mut Making) -> Option<Lock> {
        // Without locks, two processes may compile the same program, which is harmless.
        let lock = disk.store.lock(key).ok()?;
        if lock.acquire().ok()? {
            return Some(lock);
        }
        let start = Instant::now();
        let patience = if disk.warned_of_waiting.load(Relaxed) { NEXT_WAIT } else { LONGEST_WAIT };
        let mut poll = POLLS[0];
        let acquired = loop {
            std::thread::sleep(poll);
            poll = (poll * 2).min(POLLS[1]);
            match lock.acquire() {
                Ok(true) => break true,
                Ok(false) if start.elapsed() < patience => {}
                _ => break false,
            }
        };
        making.waiting += start.elapsed();
        self.stats.lock().waits += 1;
        if !acquired && !disk.warned_of_waiting.swap(true, Relaxed) {
            warn("another process has been compiling the same program for minutes; it is compiled here as well".into());
        }
        acquired.then_some(lock)
    }

    /// The counters, after waiting for executables being made.
    pub(crate) fn stats(&self) -> CacheStats {
        self.pool.wait();
        *self.stats.lock()
    }

    pub(crate) fn reset_stats(&self) {
        self.pool.wait();
        *self.stats.lock() = CacheStats::default();
    }

    /// For the end of a process: no more compiles begin. Waits until everything compiled is on disk.
    pub fn close(&self) {
        self.pool.close();
        if let Some(disk) = &self.disk {
            disk.writer.finish();
        }
    }

    /// Writes the programs that this process has used into a bundle. Returns their number.
    ///
    /// # Errors
    /// If the cache has no folder, or the bundle cannot be written.
    pub fn export_used(&self, path: &Path) -> Result<usize> {
        let disk = self.disk.as_ref().ok_or_else(|| Error::runtime("the cache has no folder to export from"))?;
        self.pool.wait();
        disk.writer.finish();
        let keys: Vec<Key> = self.known.lock().keys().copied().collect();
        let entries = keys.iter().filter_map(|key| disk.store.read(key).ok()?);
        let entries = entries.filter(|bytes| Entry::decode(bytes).is_ok());
        bundle::write(path, entries).map_err(|error| Error::runtime(format!("{}: {error}", path.display())))
    }

    /// Adds the entries of a bundle that are for this plugin and these devices to the folder.
    ///
    /// # Errors
    /// If the cache has no folder, the bundle cannot be read, or the folder cannot be written to.
    pub fn import(&self, path: &Path) -> Result<Imported> {
        let disk = self.disk.as_ref().ok_or_else(|| Error::runtime("the cache has no folder to import into"))?;
        bundle::import(path, &disk.store, &disk.target)
            .map_err(|error| Error::runtime(format!("{}: {error}", path.display())))
    }
}

impl Disk {
    fn new(store: Arc<Store>, target: String, options: &CompileOptions, stats: &Arc<Mutex<CacheStats>>) -> Disk {
        let prefix = key_prefix(&target, options);
        let writer = Writer::new(Arc::clone(&store), Arc::clone(stats));
        Disk { store, target, prefix, writer, warned_of_damage: false.into(), warned_of_waiting: false.into() }
    }

    fn read(&self, key: &Key) -> Option<Vec<u8>> {
        self.store.read(key).unwrap_or_else(|error| {
            self.damaged(key, &error.to_string());
            None
        })
    }

    /// Removes an entry that cannot be used.
    fn damaged(&self, key: &Key, reason: &str) {
        self.store.remove(key);
        if !self.warned_of_damage.swap(true, Relaxed) {
            let place = self.store.folder().join(key.to_hex().as_str());
            warn(format!("the compiled program {} is not used: {reason}; it is compiled again", place.display()));
        }
    }
}

/// A hasher with everything that an executable depends on, except the program.
fn key_prefix(target: &str, options: &CompileOptions) -> blake3::Hasher {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&entry::FORMAT.to_le_bytes());
    for part in [target.as_bytes(), &options.encode()] {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
    }
    hasher
}

fn describe(platform: &Platform, store: Option<&Store>) -> io::Result<String> {
    let topology = platform.client.topology().map_err(io::Error::other)?;
    let version = platform.client.platform_version().unwrap_or_default();
    let memory = store.map(|store| store.folder().join(PLUGINS));
    target::describe(platform.kind, &platform.path, &version, &topology, memory.as_deref())
}

// ---- ahead of time -----------------------------------------------------------------------------------------------

/// The target of programs that are compiled for a topology.
pub(crate) fn describe_topology(kind: Kind, plugin: &Path, topology: &Topology) -> Result<String> {
    let store = Settings::from_environment().try_open().ok();
    let memory = store.map(|store| store.folder().join(PLUGINS));
    target::describe(kind, plugin, "", topology, memory.as_deref())
        .map_err(|error| Error::runtime(format!("{}: {error}", plugin.display())))
}

/// Compiles a program for a topology, and returns the entry for a bundle. The text may begin with a comment, as in
/// the files of `dump_programs`.
pub(crate) fn entry_ahead(text: &str, topology: &Topology, kind: Kind, target: &str) -> Result<Vec<u8>> {
    let (operators, text) = match text.strip_prefix("// ").and_then(|text| text.split_once('\n')) {
        Some((operators, text)) => (operators, text),
        None => ("", text),
    };
    if !is_self_contained(text) {
        return Err(Error::runtime("it calls a function of the process that made it"));
    }
    let options = compile_options(kind);
    let start = Instant::now();
    let executable = topology.compile(text.as_bytes(), &options)?;
    let compile_seconds = start.elapsed().as_secs_f64();
    let about = About { operators: operators.into(), target: target.into(), compile_seconds };
    let key = key_prefix(target, &options).update(text.as_bytes()).finalize();
    Ok(Entry { key, about, executable: &executable.serialize()? }.encode())
}

pub(crate) fn write_bundle(path: &Path, entries: Vec<Vec<u8>>) -> Result<usize> {
    bundle::write(path, entries.into_iter()).map_err(|error| Error::runtime(format!("{}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_cover_target_options_and_program() {
        let key = |target: &str, kind, text: &str| {
            key_prefix(target, &compile_options(kind)).update(text.as_bytes()).finalize()
        };
        let first = key("a", Kind::Tpu, "x");
        assert_eq!(first, key("a", Kind::Tpu, "x"));
        for other in [key("b", Kind::Tpu, "x"), key("a", Kind::Cpu, "x"), key("a", Kind::Tpu, "y")] {
            assert_ne!(first, other);
        }
    }
}
