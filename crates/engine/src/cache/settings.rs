//! Settings of the cache from environment variables.

use std::env;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::disk::Store;
use super::memory::Limit;
use super::warn;
use crate::folders::base_folder;

/// The size limit of the folder. Programs for a TPU have from a hundred kilobytes to some megabytes each.
const DEFAULT_BYTES: u64 = 4 << 30;

/// The number of programs kept in memory, unless `TORCHTPU_CACHE_PROGRAMS` is set.
const DEFAULT_PROGRAMS: usize = 4096;

/// With fewer programs, a training step would not fit.
const FEWEST_PROGRAMS: usize = 16;

/// The most memory that these programs may take, as counted by [`crate::program::Program::bytes`].
const PROGRAM_BYTES: usize = 2 << 30;

/// The folder of compiled programs and its limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// An error if programs are not kept, with the reason.
    pub folder: Result<PathBuf, String>,
    pub bytes: u64,
}

impl Settings {
    /// Reads `TORCHTPU_CACHE`, `TORCHTPU_CACHE_DIR` and `TORCHTPU_CACHE_BYTES`.
    pub fn from_environment() -> Settings {
        Settings::from_variables(&|name| env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
    }

    fn from_variables(variable: &dyn Fn(&str) -> Option<String>) -> Settings {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let switch = variable("TORCHTPU_CACHE").unwrap_or_default();
        if !["", "0", "off", "false", "no", "1", "on", "true", "yes"].contains(&switch.to_lowercase().as_str()) {
            warn(format!("TORCHTPU_CACHE must be 0 or 1, not {switch:?}; it is ignored"));
        }
        let folder = match variable("TORCHTPU_CACHE_DIR") {
            _ if ["0", "off", "false", "no"].contains(&switch.to_lowercase().as_str()) => {
                Err(format!("TORCHTPU_CACHE={switch} switches it off"))
            }
            Some(folder) => Ok(env::current_dir().unwrap_or_default().join(folder)),
            None => base_folder(&variable).ok_or_else(|| "neither TORCHTPU_CACHE_DIR nor HOME is set".into()),
        };
        let bytes = bytes_of("TORCHTPU_CACHE_BYTES", &variable).unwrap_or(DEFAULT_BYTES);
        Settings { folder, bytes }
    }

    /// Opens the folder.
    ///
    /// # Errors
    /// The reason why there is none.
    pub(super) fn try_open(&self) -> Result<Arc<Store>, String> {
        let folder =
            self.folder.clone().map_err(|reason| format!("compiled programs are not kept on disk: {reason}"))?;
        let failed = |error: io::Error| format!("the cache folder {} cannot be used: {error}", folder.display());
        Store::open(&folder, self.bytes).map(Arc::new).map_err(failed)
    }

    /// Opens the folder. Warns if programs should be kept but the folder cannot be used.
    pub(super) fn open(&self) -> Option<Arc<Store>> {
        self.folder.as_ref().ok()?;
        self.try_open().map_err(|reason| warn(format!("{reason}; programs are compiled again in each process"))).ok()
    }
}

/// The number of programs to keep in memory.
pub(crate) fn programs_in_memory() -> Limit {
    let text = env::var("TORCHTPU_CACHE_PROGRAMS").unwrap_or_default();
    let wanted = text.trim().parse().ok().filter(|count| *count >= FEWEST_PROGRAMS);
    if wanted.is_none() && !text.is_empty() {
        let least = format!("a whole number of at least {FEWEST_PROGRAMS}");
        warn(format!("TORCHTPU_CACHE_PROGRAMS must be {least}, not {text:?}; it is ignored"));
    }
    Limit { count: wanted.unwrap_or(DEFAULT_PROGRAMS), bytes: PROGRAM_BYTES }
}

/// The limit of the results of a chunk from `TORCHTPU_CHUNK_BYTES`, if set.
pub(crate) fn chunk_bytes() -> Option<u64> {
    bytes_of("TORCHTPU_CHUNK_BYTES", &|name| env::var(name).ok().filter(|text| !text.is_empty()))
}

/// The number of bytes in a variable. Warns if it is set to something else.
fn bytes_of(name: &str, variable: &dyn Fn(&str) -> Option<String>) -> Option<u64> {
    let bytes = parse_bytes(&variable(name)?);
    if bytes.is_none() {
        warn(format!("{name} must be a number of bytes, such as 500M or 4G; it is ignored"));
    }
    bytes
}

/// Parses "1000", "64K", "500M", "4G".
fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_uppercase().as_str() {
        "" | "B" => 1,
        "K" | "KB" => 1 << 10,
        "M" | "MB" => 1 << 20,
        "G" | "GB" => 1 << 30,
        "T" | "TB" => 1 << 40,
        _ => return None,
    };
    digits.trim().parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(variables: &[(&str, &str)]) -> Settings {
        Settings::from_variables(&|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn folders() {
        let folder = |variables: &[(&str, &str)]| settings(variables).folder.map(|path| path.display().to_string());
        let home = ("HOME", "/home/me");
        assert_eq!(folder(&[home]).unwrap(), "/home/me/.cache/torchtpu");
        assert_eq!(folder(&[home, ("XDG_CACHE_HOME", "/caches")]).unwrap(), "/caches/torchtpu");
        assert_eq!(folder(&[home, ("XDG_CACHE_HOME", "caches")]).unwrap(), "/home/me/.cache/torchtpu");
        assert_eq!(folder(&[home, ("TORCHTPU_CACHE_DIR", "/mine")]).unwrap(), "/mine");
        assert!(folder(&[home, ("TORCHTPU_CACHE_DIR", "/mine"), ("TORCHTPU_CACHE", "0")]).is_err());
        assert!(folder(&[]).is_err());
    }

    #[test]
    fn sizes() {
        assert_eq!(settings(&[]).bytes, DEFAULT_BYTES);
        assert_eq!(settings(&[("TORCHTPU_CACHE_BYTES", "500M")]).bytes, 500 << 20);
        assert_eq!(settings(&[("TORCHTPU_CACHE_BYTES", "much")]).bytes, DEFAULT_BYTES);
        assert_eq!(parse_bytes("123"), Some(123));
        assert_eq!(parse_bytes("2 gb"), Some(2 << 30));
        assert_eq!((parse_bytes("-1"), parse_bytes("1X"), parse_bytes("99999999999T")), (None, None, None));
    }
}
