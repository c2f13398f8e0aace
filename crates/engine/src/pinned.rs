//! Pinned memory of the host: blocks that the plugin can alias instead of copying.

use std::alloc::{Layout, alloc, dealloc};
use std::collections::BTreeMap;
use std::ptr;

use parking_lot::Mutex;

use crate::error::{Error, ErrorKind, Result};

/// The alignment with which the plugin aliases memory.
const ALIGNMENT: usize = 64;

/// The layouts of live blocks, by their addresses.
static BLOCKS: Mutex<BTreeMap<usize, Layout>> = Mutex::new(BTreeMap::new());

/// A new block, or null if it has no bytes.
///
/// # Errors
/// If the host has not as much memory.
pub fn allocate(nbytes: usize) -> Result<*mut u8> {
    if nbytes == 0 {
        return Ok(ptr::null_mut());
    }
    let none =
        || Error::new(ErrorKind::OutOfMemory, format!("torchtpu: cannot allocate {nbytes} bytes of host memory"));
    let layout = Layout::from_size_align(nbytes, ALIGNMENT).map_err(|_| none())?;
    // SAFETY: the layout has bytes.
    let data = unsafe { alloc(layout) };
    if data.is_null() {
        return Err(none());
    }
    BLOCKS.lock().insert(data as usize, layout);
    Ok(data)
}

/// Frees a block. Other addresses are ignored.
///
/// # Safety
/// Nothing uses the block's memory any more.
pub unsafe fn release(data: *mut u8) {
    let layout = BLOCKS.lock().remove(&(data as usize));
    if let Some(layout) = layout {
        // SAFETY: `allocate` has made the block with this layout, the map had it, so it was not freed before, and the
        // caller promises that nothing uses it.
        unsafe { dealloc(data, layout) };
    }
}

/// Whether an address is inside a block.
pub fn contains(data: *const u8) -> bool {
    let address = data as usize;
    let blocks = BLOCKS.lock();
    blocks.range(..=address).next_back().is_some_and(|(start, layout)| address < start + layout.size())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_contains_its_own_addresses() {
        let block = allocate(100).expect("100 bytes");
        assert_eq!(block as usize % ALIGNMENT, 0);
        assert!(contains(block) && contains(block.wrapping_add(99)));
        assert!(!contains(block.wrapping_add(100)) && !contains(block.wrapping_sub(1)));
        // SAFETY: only its address is used.
        unsafe { release(block) };
        assert!(!contains(block));
    }

    #[test]
    fn no_bytes_and_too_many() {
        assert!(allocate(0).expect("nothing").is_null());
        assert!(!contains(ptr::null()));
        // SAFETY: there is no such block.
        unsafe { release(ptr::null_mut()) };
        let error = allocate(isize::MAX as usize - ALIGNMENT).expect_err("no host has this memory");
        assert_eq!(error.kind, ErrorKind::OutOfMemory);
    }
}
