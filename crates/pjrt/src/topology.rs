//! Topologies: devices to compile for, which need not be present.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::api::{Api, Struct, slice, string};
use crate::client::{ClientInner, mlir_program, null};
use crate::device::Description;
use crate::error::Result;
use crate::executable::Executable;
use crate::options::CompileOptions;
use crate::sys;
use crate::value::Value;

/// A description of devices, from [`crate::Plugin::topology`] or from a [`crate::Client`].
///
/// libtpu takes names of the form `<generation>:<chips>`: `v5e:1x1`, `v5e:2x2`, `v5e:4x4`, `v6e:1x1`,
/// `v6e:2x2`, `v4:2x2x1`, `v5p:2x2x1`, `tpu7x:2x2x1` compile, without options. `v4` and `tpu7x` have
/// two devices to a chip. A generation alone (`v6e`) and the cloud's names (`v5litepod-4`) are refused.
/// No TPU is needed, but away from Google's cloud the environment must have `TPU_SKIP_MDS_QUERY=1`
/// before the plugin is loaded, or libtpu waits minutes for a metadata server.
pub struct Topology {
    api: Api,
    raw: NonNull<sys::PJRT_TopologyDescription>,
    /// The client that owns the topology, if it belongs to one.
    client: Option<Arc<ClientInner>>,
}

/// A device of a topology.
#[derive(Clone, Debug, PartialEq)]
pub struct TopologyDevice {
    /// The number of the device in device assignments.
    pub id: i32,
    /// The model, such as `TPU v5 lite`.
    pub kind: String,
    /// Other attributes from the plugin: coordinates, cores.
    pub attributes: Vec<(String, Value)>,
}

// SAFETY: PJRT functions may be called on a topology from any thread.
unsafe impl Send for Topology {}
// SAFETY: see above.
unsafe impl Sync for Topology {}

impl Drop for Topology {
    fn drop(&mut self) {
        if self.client.is_some() {
            return;
        }
        let mut arguments = sys::PJRT_TopologyDescription_Destroy_Args { topology: self.raw.as_ptr(), ..Struct::new() };
        // SAFETY: the topology is ours and not used again. An error cannot be reported here.
        let _ = unsafe { self.api.call(&mut arguments) };
    }
}

impl Topology {
    pub(crate) fn new(api: Api, name: &str, options: &[(&str, Value)]) -> Result<Self> {
        let options = Value::to_raw_list(options);
        let mut arguments = sys::PJRT_TopologyDescription_Create_Args {
            topology_name: name.as_ptr().cast(),
            topology_name_size: name.len(),
            create_options: options.as_ptr(),
            num_options: options.len(),
            ..Struct::new()
        };
        // SAFETY: the name and the options outlive the call.
        unsafe { api.call(&mut arguments) }?;
        let raw = NonNull::new(arguments.topology);
        Ok(Self { api, raw: raw.ok_or_else(|| null("PJRT_TopologyDescription_Create"))?, client: None })
    }

    /// # Safety
    /// `raw` is null, or the topology of this client.
    pub(crate) unsafe fn of_client(client: &Arc<ClientInner>, raw: *mut sys::PJRT_TopologyDescription) -> Result<Self> {
        let raw = NonNull::new(raw).ok_or_else(|| null("PJRT_Client_TopologyDescription"))?;
        Ok(Self { api: client.api, raw, client: Some(Arc::clone(client)) })
    }

    pub(crate) fn raw(&self) -> *mut sys::PJRT_TopologyDescription {
        self.raw.as_ptr()
    }

    /// The platform, such as `tpu`.
    ///
    /// # Errors
    /// If the plugin does not provide it.
    pub fn platform_name(&self) -> Result<String> {
        let mut arguments =
            sys::PJRT_TopologyDescription_PlatformName_Args { topology: self.raw.as_ptr(), ..Struct::new() };
        // SAFETY: the topology is live.
        unsafe { self.api.call(&mut arguments) }?;
        // SAFETY: the name lives as long as the topology.
        Ok(unsafe { string(arguments.platform_name, arguments.platform_name_size) })
    }

    /// The devices.
    ///
    /// # Errors
    /// If the plugin does not provide it.
    pub fn devices(&self) -> Result<Vec<TopologyDevice>> {
        let mut arguments =
            sys::PJRT_TopologyDescription_GetDeviceDescriptions_Args { topology: self.raw.as_ptr(), ..Struct::new() };
        // SAFETY: the topology is live.
        unsafe { self.api.call(&mut arguments) }?;
        // SAFETY: the list lives as long as the topology.
        let descriptions = unsafe { slice(arguments.descriptions, arguments.num_descriptions) };
        descriptions
            .iter()
            .map(|raw| {
                // SAFETY: the description is the topology's, and is dropped here.
                let description = unsafe { Description::from_raw(self.api, *raw) };
                Ok(TopologyDevice {
                    id: description.id()?,
                    kind: description.kind()?,
                    attributes: description.attributes()?,
                })
            })
            .collect()
    }

    /// Compiles a StableHLO program, as text or as bytecode, without a device.
    ///
    /// # Errors
    /// If the program does not parse, cannot be compiled, or does not fit the devices.
    pub fn compile(&self, program: &[u8], options: &CompileOptions) -> Result<Executable> {
        let program = mlir_program(program);
        let options = options.encode();
        let mut arguments = sys::PJRT_Compile_Args {
            topology: self.raw.as_ptr(),
            program: &program,
            compile_options: options.as_ptr().cast(),
            compile_options_size: options.len(),
            ..Struct::new()
        };
        // SAFETY: the topology is live, and the program and the options outlive the call.
        unsafe { self.api.call(&mut arguments) }?;
        // SAFETY: the executable is new and ours.
        unsafe { Executable::from_raw(self.api, arguments.executable) }
    }
}
