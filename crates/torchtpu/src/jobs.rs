//! The functions of `csrc/abi.h` for jobs of the host, and the process group that posts them.

use std::ffi::{CStr, CString, c_char};
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::call::TensorArg;
use engine::vote_tree::{Messages, exchange};
use engine::{Agreement, Collective, Error, Form, JobOutput, Opinion, Result, Tensors, Ticket};
use pyo3::prelude::*;

use crate::abi::{guarded, list, note_line, placement, status, tensor_list, text};

/// The shim's functions of a job, and their context.
struct Context(::abi::Job);

// SAFETY: the ABI allows both functions from any thread.
unsafe impl Send for Context {}

impl Drop for Context {
    fn drop(&mut self) {
        if let Some(release) = self.0.release {
            // SAFETY: the context is ours and not used again.
            unsafe { release(self.0.context) };
        }
    }
}

/// The shim's functions with which ranks compare programs and vote on them, and their context.
struct Comparison(::abi::Agreement);

// SAFETY: the ABI allows both functions from any thread.
unsafe impl Send for Comparison {}
// SAFETY: the ABI allows both functions from any thread.
unsafe impl Sync for Comparison {}

impl Drop for Comparison {
    fn drop(&mut self) {
        if let Some(release) = self.0.release {
            // SAFETY: the context is ours and not used again.
            unsafe { release(self.0.context) };
        }
    }
}

impl Comparison {
    fn compare(&self, program: &str) -> Result<()> {
        let Some(agree) = self.0.agree else { return Ok(()) };
        let program = CString::new(program).map_err(|_| Error::runtime("a name of a program with a zero byte"))?;
        // SAFETY: the context is alive.
        reported(|message, length| unsafe { agree(self.0.context, program.as_ptr(), message, length) })
    }

    fn describe(&self, number: u64, is_late: bool) -> String {
        let Some(describe) = self.0.describe else { return String::new() };
        let mut text: [c_char; 4096] = [0; 4096];
        // SAFETY: the context is alive, and the callee writes a text that ends with a zero.
        unsafe {
            describe(self.0.context, number, u8::from(is_late), text.as_mut_ptr(), text.len());
            CStr::from_ptr(text.as_ptr()).to_string_lossy().into_owned()
        }
    }
}

impl Messages for Comparison {
    fn send(&self, to: usize, Opinion { first, last, program, proposals }: Opinion) -> Result<()> {
        let Some(send) = self.0.send else { return Ok(()) };
        let opinion = ::abi::Opinion { first, last, program, proposals };
        // SAFETY: the context is alive, and the callee only uses the opinion during the call.
        reported(|message, length| unsafe { send(self.0.context, to, &raw const opinion, message, length) })
    }

    fn receive(&self, from: usize, collective: u64) -> Result<Opinion> {
        let mut opinion = ::abi::Opinion { first: collective, last: 0, program: 0, proposals: 0 };
        if let Some(receive) = self.0.receive {
            // SAFETY: as above.
            reported(|message, length| unsafe { receive(self.0.context, from, &raw mut opinion, message, length) })?;
        }
        let ::abi::Opinion { first, last, program, proposals } = opinion;
        Ok(Opinion { first, last, program, proposals })
    }
}

/// Calls a function of the shim that returns 0, or writes its message into the memory that it gets.
fn reported(call: impl FnOnce(*mut c_char, usize) -> i32) -> Result<()> {
    let mut message: [c_char; 4096] = [0; 4096];
    if call(message.as_mut_ptr(), message.len()) == 0 {
        return Ok(());
    }
    // SAFETY: the callee terminates the message with a zero.
    Err(Error::runtime(unsafe { CStr::from_ptr(message.as_ptr()) }.to_string_lossy()))
}

impl Context {
    fn run(self, inputs: &[*const u8], outputs: &[*mut u8]) -> Result<()> {
        let Some(run) = self.0.run else { return Ok(()) };
        let (inputs, outputs) = (inputs.as_ptr().cast(), outputs.as_ptr().cast());
        // SAFETY: the context is alive, and there is memory for each input and output.
        reported(|message, length| unsafe { run(self.0.context, inputs, outputs, message, length) })
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tt_open_lane() -> u64 {
    guarded(|| Ok(engine::lock()?.open_lane())).unwrap_or(0)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tt_close_lane(lane: u64) {
    engine::close_lane(lane);
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tt_finish_lanes(lanes: *const u64, count: usize, milliseconds: i64) -> ::abi::Status {
    status(|| {
        let deadline = Instant::now() + Duration::from_millis(u64::try_from(milliseconds).unwrap_or(0));
        // SAFETY: the ABI promises as many lanes as it says.
        let jobs = engine::lock()?.unfinished_jobs(unsafe { list(lanes, count) });
        let left = |job: &Arc<Ticket>| job.wait(Some(deadline.saturating_duration_since(Instant::now()))).is_none();
        let late: Vec<&str> = jobs.iter().filter(|job| left(job)).map(|job| job.name()).collect();
        match late.is_empty() {
            true => Ok(()),
            false => Err(Error::runtime(format!("did not end within {milliseconds} ms: {}", late.join(", ")))),
        }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tt_post_job(device: i32, job: *const ::abi::Job, ticket: *mut u64) -> ::abi::Status {
    status(|| {
        // SAFETY: the ABI promises a job.
        let job = unsafe { *job };
        let context = Context(job);
        note_line();
        // SAFETY: the ABI promises a C string, and as many tensors as it says.
        let (name, inputs, outputs, initial) = unsafe {
            let tensors = |list: *const ::abi::Tensor, length| tensor_list(list, length);
            let initial = list(job.initial, job.n_outputs);
            (text(job.name), tensors(job.inputs, job.n_inputs), tensors(job.outputs, job.n_outputs), initial)
        };
        let output = |(tensor, initial): (&TensorArg, &i32)| JobOutput {
            tensor: *tensor,
            initial: usize::try_from(*initial).ok(),
        };
        let outputs: Vec<JobOutput> = outputs.iter().zip(initial).map(output).collect();
        let work = Box::new(move |inputs: &[*const u8], outputs: &[*mut u8]| context.run(inputs, outputs));
        let placement = placement(device)?;
        let posted = engine::lock()?.post_job(job.lane, name.into_owned(), placement, inputs, &outputs, work)?;
        // SAFETY: the ABI provides a valid pointer for the result.
        unsafe { *ticket = Arc::into_raw(posted) as u64 };
        Ok(())
    })
}

/// # Safety
/// `handle` came from `tt_post_job` and has not been released.
unsafe fn ticket<'a>(handle: u64) -> &'a Ticket {
    // SAFETY: guaranteed by the caller.
    unsafe { &*(handle as *const Ticket) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tt_ticket_state(handle: u64) -> ::abi::TicketState {
    // SAFETY: the ABI promises a live ticket.
    match unsafe { ticket(handle) }.result() {
        None => ::abi::TicketState::Running,
        Some(Ok(())) => ::abi::TicketState::Done,
        Some(Err(_)) => ::abi::TicketState::Failed,
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tt_ticket_wait(handle: u64, milliseconds: i64) -> ::abi::Status {
    status(|| {
        engine::submit_joined()?;
        let timeout = u64::try_from(milliseconds).ok().map(Duration::from_millis);
        // SAFETY: the ABI promises a live ticket.
        let ticket = unsafe { ticket(handle) };
        let too_late = || Err(Error::runtime(format!("did not end within {milliseconds} ms")).within(ticket.name()));
        ticket.wait(timeout).unwrap_or_else(too_late)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tt_ticket_release(handle: u64) {
    let _ = guarded(|| {
        // SAFETY: the caller releases the ticket, once.
        drop(unsafe { Arc::from_raw(handle as *const Ticket) });
        Ok(())
    });
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tt_is_synchronous() -> u8 {
    u8::from(guarded(|| Ok(engine::lock()?.is_synchronous())).unwrap_or(false))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tt_open_group(
    processes: *const i64,
    count: usize,
    agreement: *const ::abi::Agreement,
    has: *mut u8,
) -> ::abi::Status {
    status(|| {
        // SAFETY: the ABI promises an agreement with a C string, and as many numbers as it says.
        let (given, name, processes) = unsafe { (*agreement, text((*agreement).name), list(processes, count)) };
        let comparison = Arc::new(Comparison(given));
        let (voting, describing) = (Arc::clone(&comparison), Arc::clone(&comparison));
        let compare = Arc::new(move |program: &str| comparison.compare(program));
        let exchange = Arc::new(move |opinion: Opinion| exchange(given.rank, given.size, opinion, &*voting));
        let describe = Arc::new(move |number: u64, is_late: bool| describing.describe(number, is_late));
        let timeout = Duration::from_millis(given.milliseconds);
        let agreement = Agreement { name: name.into_owned(), lane: given.lane, compare, exchange, timeout, describe };
        let found = engine::lock()?.open_group(processes, agreement)?;
        // SAFETY: the ABI provides a valid pointer for the result.
        unsafe { *has = u8::from(found) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tt_close_group(
    processes: *const i64,
    count: usize,
    lane: u64,
    milliseconds: i64,
) -> ::abi::Status {
    status(|| {
        // SAFETY: the ABI promises as many numbers as it says.
        let processes = unsafe { list(processes, count) };
        let timeout = Duration::from_millis(u64::try_from(milliseconds).unwrap_or(0));
        let have_voted = engine::finish_votes(processes, lane, timeout)?;
        engine::lock()?.close_group(processes, lane)?;
        match have_voted {
            true => Ok(()),
            false => Err(Error::runtime("the ranks have not all called the same collectives")),
        }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tt_run_collective(device: i32, collective: *const ::abi::Collective) -> ::abi::Status {
    status(|| {
        note_line();
        // SAFETY: the ABI promises a collective, with C strings and as many tensors and numbers as it says.
        let (given, name, reduction, processes, inputs, outputs) = unsafe {
            let given = *collective;
            let processes = list(given.processes, given.n_processes);
            let (inputs, outputs) =
                (tensor_list(given.inputs, given.n_inputs), tensor_list(given.outputs, given.n_outputs));
            (given, text(given.name), text(given.reduction), processes, inputs, outputs)
        };
        let form = match given.form {
            ::abi::Form::AllReduce => Form::AllReduce,
            ::abi::Form::Broadcast => Form::Broadcast,
            ::abi::Form::AllGather => Form::AllGather,
            ::abi::Form::AllGatherList => Form::AllGatherList,
            ::abi::Form::ReduceScatter => Form::ReduceScatter,
            ::abi::Form::ReduceScatterList => Form::ReduceScatterList,
            ::abi::Form::AllToAll => Form::AllToAll,
            ::abi::Form::Scatter => Form::Scatter,
            ::abi::Form::Host => return Err(Error::runtime("this collective is a job of the host")),
        };
        let collective = Collective {
            name: &name,
            form,
            reduction: &reduction,
            factor: given.factor,
            root: given.root,
            processes,
            lane: given.lane,
            number: given.number,
        };
        engine::lock()?.run_collective(&collective, Tensors { placement: placement(device)?, inputs, outputs })
    })
}

/// A c10d backend for tensors of the device, over a backend for the same ranks that takes tensors of the CPU, and the store
/// of these ranks. `processes` has the process of each rank in the plugin's client, or is empty.
#[pyfunction]
pub fn process_group(
    py: Python<'_>,
    gloo: Py<PyAny>,
    store: Py<PyAny>,
    timeout_milliseconds: i64,
    processes: Vec<i64>,
) -> PyResult<Py<PyAny>> {
    // SAFETY: the callee copies what it keeps, and returns a new reference or sets an exception.
    unsafe {
        let (gloo, store) = (gloo.as_ptr().cast(), store.as_ptr().cast());
        let group = ::abi::tt_process_group(gloo, store, timeout_milliseconds, processes.as_ptr(), processes.len());
        Bound::from_owned_ptr_or_err(py, group.cast()).map(Bound::unbind)
    }
}
