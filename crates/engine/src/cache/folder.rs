//! The folder of compiled programs, for `python -m torchtpu cache`.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use super::disk::{self, Store};
use super::entry::{About, Entry};
use super::{Settings, bundle};
use crate::error::{Error, Result};

/// An entry of the folder.
#[derive(Clone, Debug)]
pub struct Stored {
    pub name: String,
    pub bytes: u64,
    pub used: SystemTime,
    /// `None` if the file is not an entry of this version.
    pub about: Option<About>,
}

/// The user's folder of compiled programs. It can be listed without a plugin.
pub struct Folder(Arc<Store>);

impl Folder {
    /// # Errors
    /// If there is none: it is switched off, or cannot be used.
    pub fn open(settings: &Settings) -> Result<Folder> {
        settings.try_open().map(Folder).map_err(Error::runtime)
    }

    pub fn path(&self) -> &Path {
        self.0.folder()
    }

    /// The limit in bytes.
    pub fn limit(&self) -> u64 {
        self.0.limit()
    }

    /// Its entries, most recently used first.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn list(&self) -> Result<Vec<Stored>> {
        let mut entries: Vec<Stored> = (self.0.list().map_err(|error| self.failed(&error))?.into_iter())
            .map(|listed| Stored {
                name: listed.path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
                bytes: listed.bytes,
                used: listed.used,
                about: disk::describe(&listed.path).ok().map(|(_, about)| about),
            })
            .collect();
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.used));
        Ok(entries)
    }

    /// Removes all entries. Returns their number.
    ///
    /// # Errors
    /// If one cannot be removed.
    pub fn clear(&self) -> Result<usize> {
        let entries = self.0.list().map_err(|error| self.failed(&error))?;
        for entry in &entries {
            match std::fs::remove_file(&entry.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(self.failed(&error)),
                _ => {}
            }
        }
        Ok(entries.len())
    }

    /// Writes all intact entries into a bundle. Returns their number.
    ///
    /// # Errors
    /// If the bundle cannot be written.
    pub fn export(&self, path: &Path) -> Result<usize> {
        let keys = self.0.list().map_err(|error| self.failed(&error))?.into_iter();
        let keys = keys.filter_map(|listed| disk::describe(&listed.path).ok()).map(|(key, _)| key);
        let entries = keys.filter_map(|key| self.0.read(&key).ok()?).filter(|bytes| Entry::decode(bytes).is_ok());
        bundle::write(path, entries).map_err(|error| Error::runtime(format!("{}: {error}", path.display())))
    }

    fn failed(&self, error: &io::Error) -> Error {
        Error::runtime(format!("{}: {error}", self.path().display()))
    }
}
