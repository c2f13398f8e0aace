//! The host's memory: what there is, as the kernel tells it, and what is kept for reuse.

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

/// Where the device's memory is the host's: keeps memory that buffers have given up for those of the next step. By
/// default malloc returns it to the kernel at once, and each page that comes back costs a fault. A sixteenth of the
/// memory is kept at most. The settings are glibc's; with another allocator, this does nothing.
pub(super) fn keep_freed_memory() {
    #[cfg(target_env = "gnu")]
    {
        const LARGEST_MMAP_THRESHOLD: i32 = 32 << 20;
        // The arena of a thread gives up those of its heaps that are empty, unless it pads by as much as a heap has.
        const HEAP: i32 = 64 << 20;
        let kept = i32::try_from(host_memory().1 / 16).unwrap_or(i32::MAX).min(1 << 30);
        // SAFETY: both only set numbers, under the allocator's own lock.
        unsafe {
            libc::mallopt(libc::M_TRIM_THRESHOLD, kept);
            libc::mallopt(libc::M_TOP_PAD, HEAP);
            libc::mallopt(libc::M_MMAP_THRESHOLD, LARGEST_MMAP_THRESHOLD);
        }
    }
}

/// Gives back what [`keep_freed_memory`] has kept.
pub(crate) fn return_freed_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it touches nothing but what is free, under the allocator's own lock.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// The number behind a name, in the kernel's files of a name and a number to a line.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some(name)).then(|| words.next()?.parse().ok()).flatten()
    })
}
