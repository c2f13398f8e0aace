//! Loading plugins.

use std::path::Path;
use std::ptr::NonNull;
use std::sync::Mutex;

use crate::api::{Api, Struct};
use crate::client::Client;
use crate::error::{Code, Error, Result};
use crate::sys;
use crate::topology::Topology;
use crate::value::Value;

/// The oldest minor version that is accepted. Older plugins have not been tested.
const OLDEST_MINOR: i32 = 54;

/// A loaded plugin. It stays loaded until the process ends.
#[derive(Clone, Copy)]
pub struct Plugin {
    pub(crate) api: Api,
}

/// The plugins that were initialized. Each must be initialized only once.
static INITIALIZED: Mutex<Vec<Api>> = Mutex::new(Vec::new());

impl Plugin {
    /// Loads and initializes the plugin in a shared library. Loading it again gives the same plugin.
    ///
    /// # Errors
    /// If the library cannot be loaded, is no PJRT plugin, speaks another major version of the
    /// API or one that is too old, or fails to initialize.
    pub fn load(path: &Path) -> Result<Self> {
        let at = path.display();
        // SAFETY: the caller asks to run the plugin's initializers.
        let library = unsafe { libloading::Library::new(path) }
            .map_err(|error| Error::new("dlopen", Code::NotFound, format!("cannot load the plugin {at}: {error}")))?;
        // Plugins start threads that outlive any handle, so none is ever unloaded.
        let library = Box::leak(Box::new(library));
        type GetApi = unsafe extern "C" fn() -> *const sys::PJRT_Api;
        // SAFETY: every PJRT plugin exports a function of this name and type.
        let get_api = unsafe { library.get::<GetApi>(b"GetPjrtApi\0") }
            .map_err(|error| Error::invalid("GetPjrtApi", format!("{at} is not a PJRT plugin: {error}")))?;
        // SAFETY: the function takes nothing and may be called at any time; the library is never unloaded.
        unsafe { Self::of_table(get_api(), &at.to_string()) }
    }

    /// Initializes a plugin that is part of this process.
    ///
    /// # Errors
    /// As [`Plugin::load`].
    ///
    /// # Safety
    /// `get_api` returns a function table, as a plugin's `GetPjrtApi` does, which lives as long as the process.
    pub unsafe fn linked(get_api: extern "C" fn() -> *const sys::PJRT_Api, name: &str) -> Result<Self> {
        // SAFETY: the caller's promise.
        unsafe { Self::of_table(get_api(), name) }
    }

    /// # Safety
    /// `table` is what a plugin's `GetPjrtApi` has returned, and the plugin is never unloaded.
    unsafe fn of_table(table: *const sys::PJRT_Api, name: &str) -> Result<Self> {
        let table = NonNull::new(table.cast_mut())
            .ok_or_else(|| Error::new("GetPjrtApi", Code::Internal, format!("{name} returned no function table")))?;
        // SAFETY: the caller's promise.
        let api = unsafe { Api::new(table) };
        check_version(api.version(), name)?;

        let mut initialized = INITIALIZED.lock().unwrap_or_else(|lock| lock.into_inner());
        if !initialized.contains(&api) {
            // SAFETY: there are no arguments.
            unsafe { api.call(&mut sys::PJRT_Plugin_Initialize_Args::new()) }?;
            initialized.push(api);
        }
        Ok(Self { api })
    }

    /// (major, minor) of the API that the plugin was built with.
    pub fn api_version(&self) -> (i32, i32) {
        self.api.version()
    }

    /// The plugin's attributes, such as `stablehlo_current_version` and `xla_version`. Empty if it has none.
    pub fn attributes(&self) -> Vec<(String, Value)> {
        let mut arguments = sys::PJRT_Plugin_Attributes_Args::new();
        // SAFETY: there are only outputs.
        match unsafe { self.api.call(&mut arguments) } {
            // SAFETY: these attributes live as long as the process does.
            Ok(()) => unsafe { Value::read_list(arguments.attributes, arguments.num_attributes) },
            Err(_) => Vec::new(),
        }
    }

    /// Starts a client: the plugin's devices, with their memory and threads.
    ///
    /// Plugins support different options, and some ignore unknown ones. The CPU plugin supports `cpu_device_count`
    /// (an integer).
    ///
    /// # Errors
    /// If the plugin finds no device, or refuses the options.
    pub fn create_client(&self, options: &[(&str, Value)]) -> Result<Client> {
        let options = Value::to_raw_list(options);
        let mut arguments = sys::PJRT_Client_Create_Args {
            create_options: options.as_ptr(),
            num_options: options.len(),
            ..Struct::new()
        };
        // SAFETY: the options and the data that they borrow outlive the call.
        unsafe { self.api.call(&mut arguments) }?;
        // SAFETY: the client is new and has no other owner.
        unsafe { Client::from_raw(self.api, arguments.client) }
    }

    /// Describes devices for compiling ahead of time. They need not be present.
    ///
    /// See [`Topology`] for the names that TPU plugins take.
    ///
    /// # Errors
    /// If the plugin does not know the name or refuses the options.
    pub fn topology(&self, name: &str, options: &[(&str, Value)]) -> Result<Topology> {
        Topology::new(self.api, name, options)
    }
}

fn check_version((major, minor): (i32, i32), at: &str) -> Result<()> {
    let ours = (sys::PJRT_API_MAJOR as i32, sys::PJRT_API_MINOR as i32);
    let refuse = |reason| {
        Err(Error::new(
            "GetPjrtApi",
            Code::FailedPrecondition,
            format!("{at} speaks PJRT API {major}.{minor}, {reason} (built for {}.{})", ours.0, ours.1),
        ))
    };
    if major != ours.0 {
        return refuse(format!("but only major version {} is supported", ours.0));
    }
    if minor < OLDEST_MINOR {
        return refuse(format!("which is older than {major}.{OLDEST_MINOR}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        let (major, minor) = (sys::PJRT_API_MAJOR as i32, sys::PJRT_API_MINOR as i32);
        assert!(check_version((major, minor), "p").is_ok());
        assert!(check_version((major, minor + 100), "p").is_ok());
        let other = check_version((major + 1, 0), "p").unwrap_err();
        assert!(other.message.contains("major version"), "{other}");
        let old = check_version((major, OLDEST_MINOR - 1), "p").unwrap_err();
        assert!(old.message.contains("older"), "{old}");
    }
}
