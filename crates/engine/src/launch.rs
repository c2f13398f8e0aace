//! Handing programs over to the plugin: in the order in which they were flushed, each as soon as its executable is
//! made. Until then the host goes on, and what is flushed behind it waits in the device's queue.

use std::collections::VecDeque;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

use pjrt::Buffer;

use crate::chunk::{Chunk, Extra};
use crate::engine::{Engine, Mode, lock};
use crate::error::{Error, ErrorKind, Result};
use crate::explain::Reason;
use crate::platform;
use crate::program::{Program, Usage};
use crate::runtime::Runtime;
use crate::storage::{Value, ValueState};

/// How many flushed chunks may wait for compilers before the host does.
const MAX_QUEUE: usize = 1024;

/// When no executable was made for so long, the memory that compilers have freed goes back to the kernel.
const COMPILERS_REST: Duration = Duration::from_millis(200);

/// A chunk on its way to the device.
pub(crate) struct Launch {
    pub chunk: Chunk,
    pub usage: Usage,
    pub program: Arc<Program>,
    pub reason: Reason,
    /// Its number among the runs that are explained.
    pub explained: Option<usize>,
}

/// The chunks of a device that wait for their executables.
pub(crate) type Queue = VecDeque<Launch>;

/// Says that an executable is made: whatever waited for it goes to its device. Any thread may say so, for the engine's
/// lock is taken on another one.
pub(crate) fn executable_is_made() {
    static LAUNCHER: LazyLock<Sender<()>> = LazyLock::new(|| {
        let (sender, receiver) = mpsc::channel();
        let work = move || {
            let launch = || {
                if let Ok(mut engine) = lock() {
                    engine.launch_made();
                }
            };
            while receiver.recv().is_ok() {
                launch();
                while receiver.recv_timeout(COMPILERS_REST).is_ok() {
                    launch();
                }
                platform::return_freed_memory();
            }
        };
        // Without a thread, launches wait for the next flush or read.
        let _ = thread::Builder::new().name("torchtpu-launch".into()).spawn(work);
        sender
    });
    let _ = LAUNCHER.send(());
}

impl Engine {
    /// Launches at once if nothing is in the way; else the values become promises. The chunk comes back empty for
    /// reuse where it could be launched.
    pub(crate) fn launch_or_queue(&mut self, device: usize, launch: Launch) -> (Result<()>, Option<Chunk>) {
        if self.queues[device].is_empty() && launch.program.executable.is_made() {
            let (result, chunk) = self.launch(device, launch);
            return (result, Some(chunk));
        }
        for output in &launch.usage.live {
            if let Some(value) = launch.chunk.outputs[*output as usize].upgrade() {
                value.settle(ValueState::Queued);
            }
        }
        launch.chunk.inputs.iter().for_each(|input| input.hold());
        let has_flags = launch.chunk.flags().is_some_and(|flags| !flags.is_empty());
        self.queues[device].push_back(launch);
        // Debug waits for each operator. Flags that the user has given are wrong or right at the call.
        if self.mode == Mode::Debug || has_flags {
            while self.queues[device].len() > 1 {
                self.launch_earlier(device);
            }
            return (self.launch_next(device), None);
        }
        // It may have been made in the meantime, and the launcher may have looked before.
        self.launch_made();
        while self.queues[device].len() > MAX_QUEUE {
            self.launch_earlier(device);
        }
        (Ok(()), None)
    }

    /// Launches whatever waits for nothing any more.
    pub(crate) fn launch_made(&mut self) {
        for device in 0..self.queues.len() {
            while self.queues[device].front().is_some_and(|launch| launch.program.executable.is_made()) {
                self.launch_earlier(device);
            }
        }
        self.update_wanted_lines();
    }

    /// Launches all that a device's queue holds, waiting for compilers. What fails says so when it is read.
    pub(crate) fn catch_up(&mut self, device: usize) {
        while self.queues.get(device).is_some_and(|queue| !queue.is_empty()) {
            self.launch_earlier(device);
        }
    }

    /// Runs everything recorded for a device, and hands it over: values are there, or on their way.
    pub(crate) fn launch_all(&mut self, device: usize, reason: Reason) -> Result<()> {
        let result = self.flush(device, reason);
        self.catch_up(device);
        result
    }

    /// [`Engine::launch_all`] of every device.
    pub(crate) fn launch_everything(&mut self, reason: Reason) -> Result<()> {
        let result = self.flush_all(reason);
        (0..self.queues.len()).for_each(|device| self.catch_up(device));
        result
    }

    fn launch_next(&mut self, device: usize) -> Result<()> {
        let Some(launch) = self.queues[device].pop_front() else { return Ok(()) };
        // Waits; whether it is there is seen when it is used.
        let _ = launch.program.executable.get();
        launch.chunk.inputs.iter().for_each(|input| input.release());
        self.launch(device, launch).0
    }

    /// Launches what was queued by a call that is over: should it fail, what it has written to holds the failed values.
    fn launch_earlier(&mut self, device: usize) {
        let _ = self.launch_next(device);
        self.failed_inputs.clear();
    }

    fn launch(&mut self, device: usize, launch: Launch) -> (Result<()>, Chunk) {
        let Launch { mut chunk, usage, program, reason, explained } = launch;
        let values: Vec<Option<Arc<Value>>> =
            usage.live.iter().map(|&output| chunk.outputs[output as usize].upgrade()).collect();
        let executed = self.execute(device, &chunk, &program, &values, explained);
        self.keep_answers(device, &mut chunk);
        let result = match executed {
            // What Debug mode finds in the results does not undo them.
            Ok(()) if self.mode == Mode::Debug => {
                let inspected = self.inspect(&program, &values).map_err(|error| error.at(chunk.line_of(0)));
                inspected.and(self.look_at_answers(device))
            }
            Ok(()) => Ok(()),
            Err(error) => {
                if error.kind == ErrorKind::OutOfMemory {
                    crate::memory::count_out_of_memory(device);
                }
                if chunk.nodes.len() > 1 {
                    // Only the guilty operator's results, and what needs them, are to be lost.
                    self.run_one_by_one(device, &chunk, reason);
                    Ok(())
                } else {
                    let error = error.at(chunk.line_of(0));
                    fail(values.iter().flatten(), &error);
                    self.failed_inputs = std::mem::take(&mut chunk.inputs);
                    Err(error)
                }
            }
        };
        (result, chunk)
    }

    /// Runs a chunk that failed as a whole again, operator by operator. Results that fail say so when they are
    /// read.
    fn run_one_by_one(&mut self, device: usize, chunk: &Chunk, reason: Reason) {
        let types: Vec<_> = chunk.output_types().into_iter().cloned().collect();
        let values: Vec<Arc<Value>> = chunk
            .outputs
            .iter()
            .zip(types)
            .map(|(output, ty)| {
                let dead = || Value::new(self.types.intern(&ty), ValueState::Queued);
                output.upgrade().unwrap_or_else(dead)
            })
            .collect();
        for (index, node) in chunk.nodes.iter().enumerate() {
            let first = node.first_output as usize;
            let results = &values[first..first + node.num_outputs()];
            let alone = chunk.alone(index, &values);
            let usage = Usage { live: (0..results.len() as u32).collect(), donated: vec![false; alone.inputs.len()] };
            let wanted: Vec<_> = results.iter().cloned().map(Some).collect();
            let run = self.program(&alone, &usage).and_then(|(program, built)| {
                let explained = self.explain_run(&alone, &program, built, device, reason, results.len());
                self.execute(device, &alone, &program, &wanted, explained)
            });
            if let Err(error) = run {
                fail(results.iter(), &error.at(chunk.line_of(index)));
            }
        }
    }

    fn execute(
        &mut self,
        device: usize,
        chunk: &Chunk,
        program: &Program,
        values: &[Option<Arc<Value>>],
        explained: Option<usize>,
    ) -> Result<()> {
        let executable = program.executable.get()?;
        let runtime = self.runtime()?;
        let mut inputs: Vec<Arc<Buffer>> = Vec::with_capacity(chunk.inputs.len() + chunk.extras.len());
        for input in &chunk.inputs {
            inputs.push(input.buffer()?);
        }
        for extra in &chunk.extras {
            inputs.push(upload_extra(runtime, device, *extra)?);
        }
        let borrowed: Vec<&Buffer> = inputs.iter().map(|buffer| &**buffer).collect();
        let launched = explained.map(|_| Instant::now());
        let mut outputs = Vec::with_capacity(values.len());
        let run = executable
            .execute(device, &borrowed, &[], &mut outputs)
            .map_err(|error| Error::from(error).within(&program.operators))?;
        let run = run.map(|run| runtime.track(device, run));
        if let (Some(number), Some(launched)) = (explained, launched) {
            self.explain_launch(number, launched, run.as_ref());
        }
        for (value, output) in values.iter().zip(outputs) {
            if let Some(value) = value {
                value.settle(ValueState::Ready(Arc::new(output)));
            }
        }
        Ok(())
    }

    /// Debug mode: waits for the results, and looks for NaN and infinities when asked to.
    fn inspect(&self, program: &Program, values: &[Option<Arc<Value>>]) -> Result<()> {
        for value in values.iter().flatten() {
            let buffer = value.buffer()?;
            buffer.ready().map_err(|error| Error::from(error).within(&program.operators))?;
            let ty = self.types.get(value.ty);
            if !self.check_finite || !(ty.dtype.is_float() || ty.dtype.is_complex()) {
                continue;
            }
            let mut bytes = vec![0; ty.size_bytes()];
            buffer.to_host(&mut bytes)?;
            if let Some(what) = crate::host::first_non_finite(&bytes, ty.dtype) {
                return Err(Error::runtime(format!(
                    "{}: its result of shape {:?} contains {what} (check_finite is on)",
                    program.operators, ty.dims
                )));
            }
        }
        Ok(())
    }
}

/// The values are lost: whoever reads one gets the error.
pub(crate) fn fail<'a>(values: impl Iterator<Item = &'a Arc<Value>>, error: &Error) {
    let failure = Arc::new(error.clone());
    values.for_each(|value| value.settle(ValueState::Failed(Arc::clone(&failure))));
}

fn upload_extra(runtime: &mut Runtime, device: usize, extra: Extra) -> Result<Arc<Buffer>> {
    match extra {
        Extra::Number(number, dtype) => runtime.scalar(device, number, dtype),
        Extra::RandomState([seed, offset]) => {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&seed.to_ne_bytes());
            bytes[8..].copy_from_slice(&offset.to_ne_bytes());
            runtime.upload(device, &bytes, stablehlo::DType::U64, &[2])
        }
    }
}
