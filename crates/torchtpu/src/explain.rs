//! `torch.tpu.explain`: converts the engine's explanation to Python values.

use std::sync::atomic::Ordering::Relaxed;

use engine::explain::{Compile, Explanation, JobRun, ProgramInfo, Run, Wait};
use engine::lines::Line;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

/// Starts an explanation, with the texts of programs if `with_texts`.
#[pyfunction]
#[pyo3(signature = (with_texts = false))]
pub fn begin_explaining(py: Python<'_>, with_texts: bool) -> PyResult<()> {
    super::with_engine(py, move |mut engine| engine.begin_explaining(with_texts))
}

/// Ends the explanation: waits for the device and returns what happened. Times are seconds since its start.
#[pyfunction]
pub fn end_explaining(py: Python<'_>) -> PyResult<Option<Py<PyDict>>> {
    py.detach(|| engine::synchronize(None)).map_err(super::to_python)?;
    let explanation = super::with_engine(py, |mut engine| Ok(engine.end_explaining()))?;
    explanation.map(|explanation| Ok(describe(py, &explanation)?.unbind())).transpose()
}

/// What a device that computes nothing gives at lines such as "train.py:31": to each read, and as each size that data
/// decides.
#[pyfunction]
pub fn assume(numbers: Vec<(String, i64)>) {
    engine::invented::assume(numbers);
}

fn describe<'py>(py: Python<'py>, explanation: &Explanation) -> PyResult<Bound<'py, PyDict>> {
    let described = PyDict::new(py);
    described.set_item("elapsed", explanation.elapsed.as_secs_f64())?;
    described.set_item("calls", explanation.calls)?;
    described.set_item("recording", explanation.recording.as_secs_f64())?;
    described.set_item("programs", list(py, &explanation.programs, program)?)?;
    described.set_item("runs", list(py, &explanation.runs, run)?)?;
    described.set_item("compiles", list(py, &explanation.compiles, compile)?)?;
    described.set_item("collectives", list(py, &explanation.jobs, job)?)?;
    described.set_item("waits", list(py, &explanation.waits, wait)?)?;
    Ok(described)
}

fn list<'py, T>(
    py: Python<'py>,
    items: &[T],
    describe: fn(&Bound<'py, PyDict>, &T) -> PyResult<()>,
) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for item in items {
        let described = PyDict::new(py);
        describe(&described, item)?;
        list.append(described)?;
    }
    Ok(list)
}

/// The names of lines, and of the modules that they belong to.
fn places<'a>(lines: impl IntoIterator<Item = &'a Line>) -> (Vec<String>, Vec<String>) {
    lines.into_iter().map(|line| (line.name(), line.module())).unzip()
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

fn program(described: &Bound<'_, PyDict>, program: &ProgramInfo) -> PyResult<()> {
    let operators: Vec<(&str, String)> =
        program.operators.iter().map(|(operator, line)| (&**operator, line.name())).collect();
    described.set_item("operators", operators)?;
    described.set_item("inputs", program.inputs)?;
    described.set_item("results", program.results)?;
    if let Some(text) = &program.text {
        let calls: Vec<&str> = text.calls.iter().map(|(operator, _)| &**operator).collect();
        described.set_item("calls", calls)?;
        let (lines, modules) = places(text.calls.iter().map(|(_, line)| line));
        described.set_item("lines", lines)?;
        described.set_item("modules", modules)?;
        described.set_item("text", &text.module)?;
    }
    Ok(())
}

fn run(described: &Bound<'_, PyDict>, run: &Run) -> PyResult<()> {
    let moment = |nanoseconds| (nanoseconds != 0).then(|| seconds(nanoseconds));
    described.set_item("program", run.program)?;
    described.set_item("device", run.placement.number())?;
    described.set_item("reason", run.reason.to_string())?;
    described.set_item("line", run.line.name())?;
    if let Some(memory) = &run.memory {
        described.set_item("input_addresses", &memory.inputs)?;
        described.set_item("result_addresses", &memory.results)?;
        described.set_item("others", &memory.others)?;
        let (lines, modules) = places(&memory.calls);
        described.set_item("lines", lines)?;
        described.set_item("modules", modules)?;
    }
    described.set_item("flushed", seconds(run.flushed))?;
    described.set_item("queued", seconds(run.queued))?;
    described.set_item("launched", moment(run.launched))?;
    described.set_item("quick", run.is_quick)?;
    described.set_item("done", moment(run.done.load(Relaxed)))
}

fn compile(described: &Bound<'_, PyDict>, compile: &Compile) -> PyResult<()> {
    described.set_item("program", compile.program)?;
    described.set_item("at", seconds(compile.at))?;
    described.set_item("compiling", compile.compiling.as_secs_f64())?;
    described.set_item("loading", compile.loading.as_secs_f64())?;
    described.set_item("waiting", compile.waiting.as_secs_f64())?;
    described.set_item("why", &compile.why)?;
    described.set_item("line", compile.line.name())
}

fn job(described: &Bound<'_, PyDict>, job: &JobRun) -> PyResult<()> {
    let moment = |nanoseconds| (nanoseconds != 0).then(|| seconds(nanoseconds));
    described.set_item("name", &job.name)?;
    described.set_item("device", job.placement.number())?;
    described.set_item("bytes", job.bytes)?;
    described.set_item("line", job.line.name())?;
    described.set_item("posted", seconds(job.posted))?;
    described.set_item("begun", moment(job.times.begun()))?;
    described.set_item("done", moment(job.times.done()))
}

fn wait(described: &Bound<'_, PyDict>, wait: &Wait) -> PyResult<()> {
    described.set_item("at", seconds(wait.at))?;
    described.set_item("until", seconds(wait.until))?;
    described.set_item("reason", wait.what.to_string())?;
    described.set_item("line", wait.line.name())
}
