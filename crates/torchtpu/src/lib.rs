//! The extension module `torchtpu._C`: the C ABI for the C++ shim, and the functions for the Python package.
//!
//! [`to_python`] converts all errors of the core to Python exceptions.

mod abi;
mod cache;
mod compiler;
mod explain;
mod graph;
mod jobs;
mod location;
mod memory;
mod profiler;
mod registration;
mod scopes;
mod warning;

use std::collections::BTreeMap;
use std::path::PathBuf;

use ::abi::{tt_current_device, tt_default_generator, tt_set_current_device};
use engine::growth::Setting;
use engine::{Engine, ErrorKind, Numbers, Placement, platform};
use parking_lot::MutexGuard;
use pyo3::exceptions::{PyIndexError, PyNotImplementedError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

fn to_python(error: engine::Error) -> PyErr {
    let message = error.message;
    if message == engine::interrupt::INTERRUPTED {
        if let Some(Some(error)) = Python::try_attach(PyErr::take) {
            return error;
        }
    }
    match error.kind {
        ErrorKind::Runtime => PyRuntimeError::new_err(message),
        ErrorKind::NotImplemented => PyNotImplementedError::new_err(message),
        ErrorKind::OutOfMemory => of_torch("OutOfMemoryError", message),
        ErrorKind::Index => PyIndexError::new_err(message),
        ErrorKind::Type => PyTypeError::new_err(message),
        ErrorKind::Value => PyValueError::new_err(message),
        ErrorKind::Linalg => of_torch("linalg.LinAlgError", message),
    }
}

/// One of torch's subclasses of RuntimeError.
fn of_torch(class: &str, message: String) -> PyErr {
    let error = Python::try_attach(|py| {
        let torch = py.import("torch")?.into_any();
        let class = class.split('.').try_fold(torch, |object, name| object.getattr(name))?;
        class.call1((message.as_str(),)).map(PyErr::from_value)
    });
    match error {
        Some(Ok(error)) => error,
        // Python is shutting down.
        _ => PyRuntimeError::new_err(message),
    }
}

/// Runs `f` on the engine without the GIL, because other users of the engine may be waiting for the GIL.
fn with_engine<T: Send>(
    py: Python<'_>,
    f: impl FnOnce(MutexGuard<'_, Engine>) -> engine::Result<T> + Send,
) -> PyResult<T> {
    py.detach(|| engine::lock().and_then(f)).map_err(to_python)
}

#[pyfunction]
fn in_bad_fork() -> bool {
    engine::in_bad_fork()
}

// ---- devices -------------------------------------------------------------------------------------

#[pyfunction]
fn is_available() -> bool {
    platform::is_available()
}

#[pyfunction]
fn is_initialized(py: Python<'_>) -> PyResult<bool> {
    with_engine(py, |engine| Ok(engine.is_open()))
}

#[pyfunction]
fn device_count(py: Python<'_>) -> PyResult<usize> {
    py.detach(abi::shown_devices).map_err(to_python)
}

/// Whether it is not known yet which of several chips this process uses. It can be one of several processes that have not
/// met, or use all chips.
#[pyfunction]
fn may_be_one_of_several(py: Python<'_>) -> PyResult<bool> {
    with_engine(py, |engine| {
        Ok(!engine.is_open() && Numbers::current().shown.is_none() && platform::devices_of_host().is_some())
    })
}

/// Opens the plugin, unless this process has one chip of several: the ranks must meet before.
#[pyfunction]
fn open_devices(py: Python<'_>) -> PyResult<()> {
    match Numbers::current().shown {
        Some(_) => Ok(()),
        None => with_engine(py, |mut engine| engine.platform().map(drop)),
    }
}

/// The numbers of the devices that this process can use.
#[pyfunction]
fn own_devices(py: Python<'_>) -> PyResult<Vec<usize>> {
    match Numbers::current() {
        Numbers { first, shown: Some(_) } => Ok(vec![first]),
        Numbers { shown: None, .. } => Ok((0..device_count(py)?).collect()),
    }
}

#[pyfunction]
fn device_name(py: Python<'_>, device: usize) -> PyResult<String> {
    with_engine(py, move |mut engine| Ok(find_device(engine.platform()?, device)?.name.clone()))
}

fn find_device(platform: &platform::Platform, device: usize) -> engine::Result<&platform::DeviceInfo> {
    let shown = Numbers::current().shown;
    let count = shown.unwrap_or(platform.devices.len());
    // The chips of a host are alike.
    let known = if shown.is_some_and(|shown| device < shown) { 0 } else { device };
    platform.devices.get(known).ok_or_else(|| invalid_index(device, count))
}

fn invalid_index(device: usize, count: usize) -> engine::Error {
    engine::Error::runtime(format!("invalid device index {device}: there are {count}"))
}

#[pyfunction]
fn device_properties(py: Python<'_>, device: usize) -> PyResult<Py<PyDict>> {
    let (info, total) = with_engine(py, move |mut engine| {
        let info = find_device(engine.platform()?, device)?.clone();
        let (_, total) = engine.platform()?.memory(Placement::numbered(device)?.device())?;
        Ok((info, total))
    })?;
    let properties = PyDict::new(py);
    add_attributes(&properties, info.attributes)?;
    properties.set_item("name", info.name)?;
    properties.set_item("kind", info.kind)?;
    properties.set_item("total_memory", total)?;
    Ok(properties.unbind())
}

#[pyfunction]
fn current_device() -> i32 {
    // SAFETY: the shim's function has no preconditions.
    unsafe { tt_current_device() }
}

#[pyfunction]
fn set_device(py: Python<'_>, device: usize) -> PyResult<()> {
    let count = device_count(py)?;
    if device >= count {
        return Err(to_python(invalid_index(device, count)));
    }
    Placement::numbered(device).map_err(to_python)?;
    // SAFETY: as above; the index has been checked.
    unsafe { tt_set_current_device(device as i32) };
    Ok(())
}

#[pyfunction]
fn synchronize(py: Python<'_>, device: i32) -> PyResult<()> {
    let placement = usize::try_from(device).ok().map(Placement::numbered).transpose().map_err(to_python)?;
    py.detach(|| engine::synchronize(placement)).map_err(to_python)
}

/// Raises the error of a failed check that was not raised yet, at the end of a process.
#[pyfunction]
fn check_last_answers(py: Python<'_>) -> PyResult<()> {
    py.detach(engine::check_last_answers).map_err(to_python)
}

#[pyfunction]
fn default_generator(py: Python<'_>, device: i32) -> PyResult<Py<PyAny>> {
    // SAFETY: called with the GIL held; the result is a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(py, tt_default_generator(device).cast()).map(Bound::unbind) }
}

/// The kind of the plugin that is open or will be opened: "tpu", "cpu", "cuda" or "other". Does not open it.
#[pyfunction]
fn plugin_kind() -> PyResult<&'static str> {
    platform::find().map(|choice| choice.kind.name()).map_err(to_python)
}

/// The contents of `python -m torchtpu info`. Opens the plugin.
#[pyfunction]
fn platform_info(py: Python<'_>) -> PyResult<Py<PyDict>> {
    let (path, api, attributes, name, version, devices) = with_engine(py, |mut engine| {
        let platform = engine.platform()?;
        let client = &platform.client;
        let devices: Vec<(String, String)> =
            platform.devices.iter().map(|d| (d.name.clone(), d.kind.clone())).collect();
        Ok((
            platform.path.display().to_string(),
            platform.plugin.api_version(),
            platform.plugin.attributes(),
            client.platform_name()?,
            client.platform_version()?,
            devices,
        ))
    })?;
    let info = PyDict::new(py);
    info.set_item("plugin", path)?;
    info.set_item("platform", name)?;
    info.set_item("platform_version", version)?;
    info.set_item("pjrt_api", format!("{}.{}", api.0, api.1))?;
    add_attributes(&info, attributes)?;
    let list = PyList::empty(py);
    for (name, kind) in devices {
        let device = PyDict::new(py);
        device.set_item("name", name)?;
        device.set_item("kind", kind)?;
        list.append(device)?;
    }
    info.set_item("devices", list)?;
    Ok(info.unbind())
}

/// Adds what a plugin says of itself or of a device.
fn add_attributes(to: &Bound<'_, PyDict>, attributes: Vec<(String, pjrt::Value)>) -> PyResult<()> {
    for (key, value) in attributes {
        match value {
            pjrt::Value::Int(x) => to.set_item(key, x)?,
            pjrt::Value::Bool(x) => to.set_item(key, x)?,
            pjrt::Value::Float(x) => to.set_item(key, x)?,
            pjrt::Value::Str(x) => to.set_item(key, x)?,
            pjrt::Value::Ints(x) => to.set_item(key, x)?,
        }
    }
    Ok(())
}

// ---- modes ---------------------------------------------------------------------------------------

/// Sets how sizes that change are treated, as `TORCHTPU_SIZES` does, and forgets the sizes that were seen. For tests.
#[pyfunction]
fn set_sizes(py: Python<'_>, setting: &str) -> PyResult<()> {
    let setting = Setting::of(setting).ok_or_else(|| PyValueError::new_err(format!("not a setting: {setting}")))?;
    with_engine(py, |mut engine| {
        engine.set_sizes(setting);
        Ok(())
    })
}

// ---- counters ------------------------------------------------------------------------------------

#[pyfunction]
fn cache_stats(py: Python<'_>) -> PyResult<Py<PyDict>> {
    let stats = with_engine(py, |engine| Ok(engine.cache_stats()))?;
    let dict = PyDict::new(py);
    for (name, count) in [
        ("requests", stats.requests),
        ("hits", stats.hits),
        ("disk_hits", stats.disk_hits),
        ("compiles", stats.compiles),
        ("improved", stats.improved),
        ("waits", stats.waits),
        ("evictions", stats.evictions),
        ("disk_evictions", stats.disk_evictions),
    ] {
        dict.set_item(name, count)?;
    }
    for (name, time) in
        [("compile_seconds", stats.compile_time), ("load_seconds", stats.load_time), ("wait_seconds", stats.wait_time)]
    {
        dict.set_item(name, time.as_secs_f64())?;
    }
    Ok(dict.unbind())
}

#[pyfunction]
fn reset_cache_stats(py: Python<'_>) -> PyResult<()> {
    with_engine(py, |mut engine| {
        engine.reset_cache_stats();
        Ok(())
    })
}

#[pyfunction]
fn op_stats(py: Python<'_>) -> PyResult<Py<PyDict>> {
    let stats = with_engine(py, |engine| Ok(engine.op_stats()))?;
    let dict = PyDict::new(py);
    dict.set_item("operators", stats.operators)?;
    dict.set_item("decomposed", stats.decomposed)?;
    dict.set_item("fallen_back", stats.fallen_back)?;
    dict.set_item("padded", stats.padded)?;
    dict.set_item("unpadded", stats.unpadded)?;
    Ok(dict.unbind())
}

#[pyfunction]
fn reset_op_stats(py: Python<'_>) -> PyResult<()> {
    with_engine(py, |mut engine| {
        engine.reset_op_stats();
        Ok(())
    })
}

// ---- the table -----------------------------------------------------------------------------------

/// The names of all rows of the operator table that graphs may have.
#[pyfunction]
fn table() -> Vec<&'static str> {
    aten::table::names().collect()
}

/// Whether graphs may have an operator: derived rows count too.
#[pyfunction]
fn has_row(name: &str) -> bool {
    aten::table::find_in_graph(name).is_some()
}

/// PyTorch's names of dtypes, with their numbers, and whether tensors of this backend can have them.
#[pyfunction]
fn scalar_types() -> BTreeMap<&'static str, (i8, bool)> {
    (0_i8..).zip(engine::call::SCALAR_TYPES).map(|(number, (name, dtype))| (name, (number, dtype.is_some()))).collect()
}

/// Writes the text of each program that runs from now on into a folder, once for each. `None` stops this.
#[pyfunction]
fn dump_programs(py: Python<'_>, folder: Option<PathBuf>) -> PyResult<()> {
    with_engine(py, move |mut engine| {
        engine.set_dump_folder(folder);
        Ok(())
    })
}

// ---- storages of tensors -------------------------------------------------------------------------

/// The storage of a tensor of this backend, which the tensor keeps alive.
fn storage_of<'a>(tensor: &'a Bound<'_, PyAny>) -> PyResult<&'a engine::Storage> {
    // SAFETY: the callee borrows a live object, with the GIL held.
    let storage = unsafe { ::abi::tt_storage_of(tensor.as_ptr().cast()) };
    if storage.is_null() {
        return Err(PyErr::fetch(tensor.py()));
    }
    // SAFETY: the handle is a storage that the tensor keeps alive.
    Ok(unsafe { &*storage.cast_const().cast::<engine::Storage>() })
}

/// Gives the memory of a tensor away: a read raises an error that names the receiver, until something is written.
#[pyfunction]
fn donate(py: Python<'_>, tensor: &Bound<'_, PyAny>, receiver: &str) -> PyResult<()> {
    let storage = storage_of(tensor)?;
    with_engine(py, move |_engine| {
        storage.donate(receiver);
        Ok(())
    })
}

/// See [`engine::Engine::mark_dynamic`]. `tensor` starts at its storage's first element.
#[pyfunction]
#[pyo3(signature = (tensor, sizes, strides, dim, most))]
fn mark_dynamic(
    py: Python<'_>,
    tensor: &Bound<'_, PyAny>,
    sizes: Vec<i64>,
    strides: Vec<i64>,
    dim: usize,
    most: Option<i64>,
) -> PyResult<Option<bool>> {
    let storage = storage_of(tensor)?;
    with_engine(py, move |mut engine| engine.mark_dynamic(storage, &sizes, &strides, dim, most))
}

#[pymodule]
#[pyo3(name = "_C")]
fn extension(module: &Bound<'_, PyModule>) -> PyResult<()> {
    macro_rules! add {
        ($($name:path),* $(,)?) => { $(module.add_function(wrap_pyfunction!($name, module)?)?;)* };
    }
    add!(
        registration::initialize,
        registration::torch_version,
        registration::set_gradient,
        in_bad_fork,
        is_available,
        is_initialized,
        device_count,
        may_be_one_of_several,
        open_devices,
        own_devices,
        device_name,
        device_properties,
        current_device,
        set_device,
        synchronize,
        check_last_answers,
        default_generator,
        platform_info,
        plugin_kind,
        scopes::scope_of_thread,
        scopes::get_eager_mode,
        scopes::set_eager_mode,
        set_sizes,
        mark_dynamic,
        scopes::begin_mode,
        scopes::end_mode,
        scopes::begin_join,
        scopes::end_join,
        memory::memory_stats,
        memory::reset_peak_memory_stats,
        memory::reset_accumulated_memory_stats,
        memory::empty_cache,
        memory::live_storages,
        memory::memory_history,
        cache_stats,
        reset_cache_stats,
        op_stats,
        reset_op_stats,
        table,
        has_row,
        scalar_types,
        dump_programs,
        compiler::compile_ahead,
        compiler::examine_ahead,
        compiler::chip_memory,
        donate,
        cache::finish_cache,
        cache::cache_folder,
        cache::cache_list,
        cache::cache_clear,
        cache::cache_export,
        cache::cache_export_used,
        cache::cache_import,
        cache::bundle_ahead,
        explain::assume,
        explain::begin_explaining,
        explain::end_explaining,
        location::name_modules,
        graph::define_graph,
        graph::run_replicas,
        graph::stablehlo,
        jobs::process_group,
    );
    module.add_class::<graph::CompiledGraph>()?;
    module.add_class::<graph::Prepared>()?;
    Ok(())
}
