//! The host's memory: its size from the kernel, and the memory that malloc keeps for reuse.

use std::fs;
use std::path::Path;

/// The host's memory in bytes: free and total. The values are the kernel's, or those of a control group if it has a
/// lower limit. (0, 0) if unknown.
pub fn host_memory() -> (u64, u64) {
    memory_under(Path::new("/"))
}

/// [`host_memory`] for the file system below `root`.
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
        // Each parent group may have a limit. In a container, the path may be the host's; then only the mount itself
        // can be read.
        let group = mount.join(path.trim_start_matches('/'));
        for group in group.ancestors().take_while(|group| group.starts_with(&mount)) {
            let number = |file| fs::read_to_string(group.join(file)).ok()?.trim().parse::<u64>().ok();
            // No limit is written as "max", or as a number above all memory.
            let Some(limit) = number(limit).filter(|limit| *limit < total) else { continue };
            total = limit;
            // The page cache is freed before the limit is reached.
            let cache = fs::read_to_string(group.join("memory.stat")).ok().and_then(|text| field(&text, reclaimable));
            let used = number(usage).unwrap_or(0).saturating_sub(cache.unwrap_or(0));
            free = free.min(limit.saturating_sub(used));
        }
    }
    (free, total)
}

/// Whether the kernel allows this process few more memory maps. Each kernel of a program on the CPU plugin takes some.
/// Where no more are left, compiling fails, and the next C++ exception ends the process.
pub(crate) fn is_short_of_maps() -> bool {
    let Ok(text) = fs::read_to_string("/proc/sys/vm/max_map_count") else { return false };
    let allowed = text.trim().parse().unwrap_or(usize::MAX);
    let maps = fs::read("/proc/self/maps").unwrap_or_default();
    maps.iter().filter(|&&byte| byte == b'\n').count() > allowed / 4 * 3
}

/// Keeps freed memory for the buffers of the next step, if the device's memory is the host's. By default malloc
/// returns it to the kernel at once, and every page then costs a fault. At most a sixteenth of the memory is kept.
/// These settings are glibc's; they have no effect on other allocators.
pub(super) fn keep_freed_memory() {
    #[cfg(target_env = "gnu")]
    {
        const LARGEST_MMAP_THRESHOLD: i32 = 32 << 20;
        // A thread's arena frees its empty heaps unless the padding is as large as a heap.
        const HEAP: i32 = 64 << 20;
        let kept = i32::try_from(host_memory().1 / 16).unwrap_or(i32::MAX).min(1 << 30);
        // SAFETY: both only set numbers, under the allocator's lock.
        unsafe {
            libc::mallopt(libc::M_TRIM_THRESHOLD, kept);
            libc::mallopt(libc::M_TOP_PAD, HEAP);
            libc::mallopt(libc::M_MMAP_THRESHOLD, LARGEST_MMAP_THRESHOLD);
        }
    }
}

/// Returns the memory kept by [`keep_freed_memory`] to the kernel.
pub(crate) fn return_freed_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it only touches free memory, under the allocator's lock.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// The number after a name, in kernel files with one name and number per line.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some(name)).then(|| words.next()?.parse().ok()).flatten()
    })
}
