//! Where the user's folders are.

use std::path::PathBuf;

/// The folder for what torchtpu keeps of this user, by the variables that say where caches are.
pub(crate) fn base_folder(variable: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let caches = variable("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let caches = caches.or_else(|| Some(PathBuf::from(variable("HOME")?).join(".cache")))?;
    Some(caches.join("torchtpu"))
}
