//! Devices.

use crate::api::{Api, Struct, string};
use crate::error::Result;
use crate::sys;
use crate::value::Value;

/// A device, borrowed from the client that owns it.
pub struct Device {
    api: Api,
    pub(crate) raw: *mut sys::PJRT_Device,
    description: Description,
}

/// The description of a device, which need not be present.
pub(crate) struct Description {
    api: Api,
    raw: *mut sys::PJRT_DeviceDescription,
}

/// The state of a device's allocator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// Bytes in use now.
    pub bytes_in_use: i64,
    /// The largest number of bytes that were ever in use.
    pub peak_bytes_in_use: Option<i64>,
    /// The limit of allocated bytes.
    pub bytes_limit: Option<i64>,
    /// Allocations so far.
    pub num_allocs: Option<i64>,
    /// Bytes of the largest allocation so far.
    pub largest_alloc_size: Option<i64>,
    /// Bytes of the largest free block.
    pub largest_free_block_bytes: Option<i64>,
    /// Bytes that the allocator has reserved, in use or not.
    pub pool_bytes: Option<i64>,
}

impl Device {
    /// # Safety
    /// `raw` is a device of a client of this plugin, and the result does not outlive that client.
    pub(crate) unsafe fn from_raw(api: Api, raw: *mut sys::PJRT_Device) -> Result<Self> {
        let mut arguments = sys::PJRT_Device_GetDescription_Args { device: raw, ..Struct::new() };
        // SAFETY: the device is live.
        unsafe { api.call(&mut arguments) }?;
        Ok(Self {
            api,
            raw,
            // SAFETY: a description lives as long as its device.
            description: unsafe { Description::from_raw(api, arguments.device_description) },
        })
    }

    /// The number of this device in programs and device assignments, unique over all hosts.
    ///
    /// # Errors
    /// If the plugin does not provide it.
    pub fn id(&self) -> Result<i32> {
        self.description.id()
    }

    /// The model, such as `cpu` or `TPU v5 lite`.
    ///
    /// # Errors
    /// If the plugin does not provide it.
    pub fn kind(&self) -> Result<String> {
        self.description.kind()
    }

    /// The process that can use this device (see [`crate::Client::process_index`]).
    ///
    /// # Errors
    /// If the plugin does not provide it.
    pub fn process_index(&self) -> Result<i32> {
        self.description.process_index()
    }

    /// The host's number of this device, or -1 if it has none.
    ///
    /// # Errors
    /// If the plugin does not provide it.
    pub fn local_hardware_id(&self) -> Result<i32> {
        let mut arguments = sys::PJRT_Device_LocalHardwareId_Args { device: self.raw, ..Struct::new() };
        // SAFETY: the device lives as long as the client it is borrowed from.
        unsafe { self.api.call(&mut arguments) }?;
        Ok(arguments.local_hardware_id)
    }

    /// Other attributes from the plugin, such as the position in the mesh.
    ///
    /// # Errors
    /// If the plugin does not provide it.
    pub fn attributes(&self) -> Result<Vec<(String, Value)>> {
        self.description.attributes()
    }

    /// The state of the device's allocator.
    ///
    /// # Errors
    /// `Unimplemented` if the plugin does not count memory, such as the CPU plugin.
    pub fn memory_stats(&self) -> Result<MemoryStats> {
        let mut raw = sys::PJRT_Device_MemoryStats_Args { device: self.raw, ..Struct::new() };
        // SAFETY: the device lives as long as the client it is borrowed from.
        unsafe { self.api.call(&mut raw) }?;
        Ok(MemoryStats {
            bytes_in_use: raw.bytes_in_use,
            peak_bytes_in_use: raw.peak_bytes_in_use_is_set.then_some(raw.peak_bytes_in_use),
            bytes_limit: raw.bytes_limit_is_set.then_some(raw.bytes_limit),
            num_allocs: raw.num_allocs_is_set.then_some(raw.num_allocs),
            largest_alloc_size: raw.largest_alloc_size_is_set.then_some(raw.largest_alloc_size),
            largest_free_block_bytes: raw.largest_free_block_bytes_is_set.then_some(raw.largest_free_block_bytes),
            pool_bytes: raw.pool_bytes_is_set.then_some(raw.pool_bytes),
        })
    }
}

impl Description {
    /// # Safety
    /// `raw` describes a device of this plugin, and the result does not outlive its owner.
    pub(crate) unsafe fn from_raw(api: Api, raw: *mut sys::PJRT_DeviceDescription) -> Self {
        Self { api, raw }
    }

    pub(crate) fn id(&self) -> Result<i32> {
        let mut arguments = sys::PJRT_DeviceDescription_Id_Args { device_description: self.raw, ..Struct::new() };
        // SAFETY: the description is live.
        unsafe { self.api.call(&mut arguments) }?;
        Ok(arguments.id)
    }

    fn process_index(&self) -> Result<i32> {
        let mut arguments =
            sys::PJRT_DeviceDescription_ProcessIndex_Args { device_description: self.raw, ..Struct::new() };
        // SAFETY: the description is live.
        unsafe { self.api.call(&mut arguments) }?;
        Ok(arguments.process_index)
    }

    pub(crate) fn kind(&self) -> Result<String> {
        let mut arguments = sys::PJRT_DeviceDescription_Kind_Args { device_description: self.raw, ..Struct::new() };
        // SAFETY: the description is live.
        unsafe { self.api.call(&mut arguments) }?;
        // SAFETY: the string lives as long as the description.
        Ok(unsafe { string(arguments.device_kind, arguments.device_kind_size) })
    }

    pub(crate) fn attributes(&self) -> Result<Vec<(String, Value)>> {
        let mut arguments =
            sys::PJRT_DeviceDescription_Attributes_Args { device_description: self.raw, ..Struct::new() };
        // SAFETY: the description is live.
        unsafe { self.api.call(&mut arguments) }?;
        // SAFETY: the attributes live as long as the description.
        Ok(unsafe { Value::read_list(arguments.attributes, arguments.num_attributes) })
    }
}

// SAFETY: PJRT functions may be called on a device from any thread.
unsafe impl Send for Device {}
// SAFETY: see above.
unsafe impl Sync for Device {}
