//! The folder of compiled programs: one file for each, private to the user, with a limit in bytes.
//!
//! Any number of processes may use a folder at once. A file appears complete, under its final name, and is never
//! written to again. The process that compiles a program holds a lock on the program's name. The operating system
//! releases the lock when the process ends.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

use super::entry::{About, Entry, HEAD, Key};

/// The subfolder of the user's folder. Only the user may write to it.
const FOLDER: &str = "programs";

/// The lock file. Names that begin with a dot are not entries.
const LOCKS: &str = ".locks";
const TEMPORARY: &str = ".new-";

/// A temporary file of this age was left by a process that died.
const ABANDONED: Duration = Duration::from_secs(3600);

/// The share of the limit that is kept when entries are removed.
const KEPT: f64 = 0.8;

/// A file in the folder.
pub(super) struct Listed {
    pub path: PathBuf,
    pub bytes: u64,
    pub used: SystemTime,
}

/// The size of a folder: exact when it was last counted; from then on our own writes are added.
struct Fill {
    bytes: u64,
    written: u64,
}

pub(super) struct Store {
    folder: PathBuf,
    limit: u64,
    fill: Mutex<Option<Fill>>,
}

impl Store {
    /// Opens a folder, and creates it if it does not exist.
    ///
    /// # Errors
    /// If it cannot be created, belongs to another user, or others may write to it.
    pub fn open(folder: &Path, limit: u64) -> io::Result<Store> {
        let folder = folder.join(FOLDER);
        if let Err(error) = DirBuilder::new().recursive(true).mode(0o700).create(&folder) {
            if !folder.is_dir() {
                return Err(error);
            }
        }
        check_owner(&fs::symlink_metadata(&folder)?, true)?;
        Ok(Store { folder, limit, fill: Mutex::new(None) })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Whether there is a file with this key.
    pub fn has(&self, key: &Key) -> bool {
        self.path(key).exists()
    }

    fn path(&self, key: &Key) -> PathBuf {
        self.folder.join(key.to_hex().as_str())
    }

    /// The bytes of an entry, unchecked; `None` if there is none. Marks the entry as used.
    ///
    /// # Errors
    /// If the file cannot be read or is not private to the user.
    pub fn read(&self, key: &Key) -> io::Result<Option<Vec<u8>>> {
        let mut file = match open_private(&self.path(key)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let mut bytes = Vec::with_capacity(file.metadata()?.len() as usize + 1);
        file.read_to_end(&mut bytes)?;
        // The least recently used entries are removed first. A read-only folder keeps all.
        let _ = file.set_modified(SystemTime::now());
        Ok(Some(bytes))
    }

    /// Writes an entry and removes others to make room. Returns the number of entries removed.
    ///
    /// # Errors
    /// If it cannot be written. There is no entry then.
    pub fn write(&self, key: &Key, bytes: &[u8]) -> io::Result<u64> {
        let size = bytes.len() as u64;
        if size > self.limit {
            return Ok(0);
        }
        let evicted = self.make_room(size)?;
        replace(&self.path(key), bytes)?;
        Ok(evicted)
    }

    pub fn remove(&self, key: &Key) {
        let _ = fs::remove_file(self.path(key));
    }

    /// Removes the least recently used entries until `size` more bytes fit.
    fn make_room(&self, size: u64) -> io::Result<u64> {
        let mut fill = self.fill.lock();
        // Other processes write too, so count again from time to time.
        let fill = match &mut *fill {
            Some(fill) if fill.written + size < self.limit / 16 && fill.bytes + size <= self.limit => fill,
            place => place.insert(Fill { bytes: self.list()?.iter().map(|each| each.bytes).sum(), written: 0 }),
        };
        let mut evicted = 0;
        if fill.bytes + size > self.limit {
            let mut entries = self.list()?;
            entries.sort_by_key(|entry| entry.used);
            let room = (self.limit as f64 * KEPT) as u64;
            for entry in entries {
                if fill.bytes + size <= room {
                    break;
                }
                if fs::remove_file(&entry.path).is_ok() {
                    evicted += 1;
                }
                fill.bytes = fill.bytes.saturating_sub(entry.bytes);
            }
        }
        fill.bytes += size;
        fill.written += size;
        Ok(evicted)
    }

    /// All entries, in no order. Removes the temporary files of processes that died.
    pub fn list(&self) -> io::Result<Vec<Listed>> {
        let mut entries = Vec::new();
        for found in fs::read_dir(&self.folder)? {
            let found = found?;
            let (name, Ok(metadata)) = (found.file_name(), found.metadata()) else { continue };
            let name = name.to_string_lossy();
            let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            if name.starts_with(TEMPORARY) {
                if used.elapsed().is_ok_and(|age| age > ABANDONED) {
                    let _ = fs::remove_file(found.path());
                }
            } else if !name.starts_with('.') && metadata.is_file() {
                entries.push(Listed { path: found.path(), bytes: metadata.len(), used });
            }
        }
        Ok(entries)
    }

    /// The lock for a program's name. It is not acquired yet.
    ///
    /// # Errors
    /// If the folder cannot be written to.
    pub fn lock(&self, key: &Key) -> io::Result<Lock> {
        let place = self.folder.join(LOCKS);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(place)?;
        let offset = key.as_bytes()[..8].iter().fold(0, |all, byte| all << 8 | i64::from(*byte)) & i64::MAX;
        Ok(Lock { file, offset: offset.min(i64::MAX - 1) })
    }
}

/// A lock on one byte of a file. Each program has its own byte, so one file is enough for all locks and no lock files
/// remain. Dropping the value or ending the process releases the lock, also where the process has been forked since.
pub(super) struct Lock {
    file: File,
    offset: i64,
}

impl Lock {
    /// Tries to acquire the lock. Returns whether this value holds it now.
    ///
    /// # Errors
    /// If the file system has no locks.
    pub fn acquire(&self) -> io::Result<bool> {
        let Err(error) = self.set(libc::F_WRLCK) else { return Ok(true) };
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EACCES) => Ok(false),
            _ => Err(error),
        }
    }

    fn set(&self, kind: libc::c_int) -> io::Result<()> {
        // SAFETY: a lock request of zeroes is valid.
        let mut request: libc::flock = unsafe { std::mem::zeroed() };
        request.l_type = kind as _;
        request.l_whence = libc::SEEK_SET as _;
        request.l_start = self.offset;
        request.l_len = 1;
        // SAFETY: the file is open, and the request lives during the call. This kind of lock belongs to the open
        // file, not to the process, so threads exclude each other too.
        match unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_OFD_SETLK, &request) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Lock {
    /// Closing the file would not be enough: a fork of this process, such as a worker of a data loader, has the same
    /// open file, and the lock would last as long as the fork.
    fn drop(&mut self) {
        let _ = self.set(libc::F_UNLCK);
    }
}

/// The description in a file, unchecked.
pub(super) fn describe(path: &Path) -> io::Result<(Key, About)> {
    let mut head = Vec::with_capacity(HEAD);
    open_private(path)?.take(HEAD as u64).read_to_end(&mut head)?;
    Entry::about(&head).map_err(io::Error::other)
}

/// Writes a file that appears complete. Only its owner may read it.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (mut file, temporary) = create_temporary(path)?;
    // No sync: a file that is incomplete after a crash of the machine fails its checksum.
    let written = file.write_all(bytes).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// A new file beside `path`. A process with the same id may have left files there: in containers, ids are small numbers
/// that come back.
fn create_temporary(path: &Path) -> io::Result<(File, PathBuf)> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    loop {
        let name = format!("{TEMPORARY}{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
        let temporary = path.with_file_name(name);
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made.map(|file| (file, temporary)),
        }
    }
}

/// Opens a file that belongs to the user and that only the user may write to.
pub(super) fn open_private(path: &Path) -> io::Result<File> {
    // Non-blocking, in case somebody has put a pipe there.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    check_owner(&file.metadata()?, false)?;
    Ok(file)
}

fn check_owner(metadata: &Metadata, is_folder: bool) -> io::Result<()> {
    // SAFETY: this has no preconditions.
    let user = unsafe { libc::geteuid() };
    let refuse = |why: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    if metadata.is_dir() != is_folder || metadata.is_file() == is_folder {
        return refuse(format!("it is not a {}", if is_folder { "folder" } else { "file" }));
    }
    if metadata.uid() != user {
        return refuse(format!("it belongs to user {}, not to user {user}", metadata.uid()));
    }
    if metadata.mode() & 0o022 != 0 {
        return refuse(format!("others may write to it (its mode is {:o})", metadata.mode() & 0o777));
    }
    Ok(())
}

/// An empty folder for a test.
#[cfg(test)]
pub(super) fn scratch(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("torchtpu-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

#[cfg(test)]
#[path = "disk_tests.rs"]
mod tests;
