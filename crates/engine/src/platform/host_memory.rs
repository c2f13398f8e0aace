//! The host's memory, as the kernel tells it.

use std::fs;
use std::path::Path;

/// The host's memory in bytes, free and in all: what the kernel says, or less where a control group allows less.
/// (0, 0) where it cannot be told.
pub fn host_memory() -> (u64, u64) {
    memory_under(Path::new("/"))
}

/// [`host_memory`], for a file system.
pub(super) fn memory_under(root: &Path) -> (u64, u64) {
    let Ok(text) = fs::read_to_string(root.join("proc/meminfo")) else { return (0, 0) };
    let kilobytes = |name| field(&text, name).unwrap_or(0) * 1024;
    let (mut free, mut total) = (kilobytes("MemAvailable:"), kilobytes("MemTotal:"));

    // Lines are `id:controllers:path`; version 2 has no controllers.
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (mount, limit, usage, reclaimable) = if controllers.is_empty() {
            ("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file")
        } else if controllers.split(',').any(|controller| controller == "memory") {
            ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        } else {
            continue;
        };
        let mount = root.join(mount);
        // Each group on the way up may have a limit. In a container the path can be the host's, where only the mount
        // itself is there to be read.
        let group = mount.join(path.trim_start_matches('/'));
        for group in group.ancestors().take_while(|group| group.starts_with(&mount)) {
            let number = |file| fs::read_to_string(group.join(file)).ok()?.trim().parse::<u64>().ok();
            // No limit is the word "max", or a number beyond all memory.
            let Some(limit) = number(limit).filter(|limit| *limit < total) else { continue };
            total = limit;
            // The cache of files gives way before the limit hits.
            let cache = fs::read_to_string(group.join("memory.stat")).ok().and_then(|text| field(&text, reclaimable));
            let used = number(usage).unwrap_or(0).saturating_sub(cache.unwrap_or(0));
            free = free.min(limit.saturating_sub(used));
        }
    }
    (free, total)
}

/// The number behind a name, in the kernel's files of a name and a number to a line.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some(name)).then(|| words.next()?.parse().ok()).flatten()
    })
}
