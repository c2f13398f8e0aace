//! Runs a program of several replicas on the devices of this process. On the CPU plugin it so shows what a program with
//! collectives computes on as many chips.

use std::thread;

use pjrt::{Buffer, CompileOptions};
use stablehlo::Type;

use crate::cache;
use crate::engine::lock;
use crate::error::{Error, Result};
use crate::run::runtime::element_type;

/// A dense row-major array.
pub type Array = (Type, Vec<u8>);

/// Compiles a StableHLO text and runs it on as many devices as there are lists of inputs, one replica on each. Returns
/// the bytes of each replica's results, whose types the caller knows.
///
/// # Errors
/// If this process has fewer devices, or the plugin refuses the program or its inputs.
pub fn run(program: &str, inputs: &[Vec<Array>], results: &[Type]) -> Result<Vec<Vec<Vec<u8>>>> {
    let (client, devices, kind) = {
        let mut engine = lock()?;
        let platform = engine.platform()?;
        (platform.client.clone(), platform.devices.len(), platform.kind)
    };
    if inputs.len() > devices {
        return Err(Error::runtime(format!("{} replicas need as many devices, and there are {devices}", inputs.len())));
    }
    let overrides = cache::compile_options(kind).overrides;
    let options = CompileOptions { overrides, ..CompileOptions::replicated(inputs.len() as i64) };
    let executable = client.compile(program.as_bytes(), &options)?;
    let run_one = |device: usize, given: &[Array]| -> Result<Vec<Vec<u8>>> {
        let upload = |(ty, bytes): &Array| client.buffer_from_host(bytes, element_type(ty.dtype), &ty.dims, device);
        let given = given.iter().map(upload).collect::<pjrt::Result<Vec<Buffer>>>()?;
        let mut outputs = Vec::new();
        if let Some(done) = executable.execute(device, &given.iter().collect::<Vec<_>>(), &[], &mut outputs)? {
            done.wait()?;
        }
        let read = |(output, ty): (&Buffer, &Type)| {
            let mut bytes = vec![0; ty.size_bytes()];
            output.to_host(&mut bytes).map(|()| bytes)
        };
        Ok(outputs.iter().zip(results).map(read).collect::<pjrt::Result<_>>()?)
    };
    // A replica waits in a collective for the others.
    let run_one = &run_one;
    thread::scope(|scope| {
        let replicas: Vec<_> =
            inputs.iter().enumerate().map(|(device, given)| scope.spawn(move || run_one(device, given))).collect();
        let panicked = |_| Err(Error::runtime("internal error: a replica panicked"));
        replicas.into_iter().map(|replica| replica.join().unwrap_or_else(panicked)).collect()
    })
}
