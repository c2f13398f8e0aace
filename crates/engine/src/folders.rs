//! Folders of the user.

use std::path::PathBuf;

/// The user's cache folder for torchtpu, from the usual environment variables.
pub(crate) fn base_folder(variable: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let caches = variable("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let caches = caches.or_else(|| Some(PathBuf::from(variable("HOME")?).join(".cache")))?;
    Some(caches.join("torchtpu"))
}
