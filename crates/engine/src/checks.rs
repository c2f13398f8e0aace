//! What programs tell of the data that they met, such as an index that is out of range: looked at when the host reads
//! from the device next or waits for it, so that no number is seen that such data have spoilt.

use std::sync::Arc;

use aten::Check;

use crate::chunk::Chunk;
use crate::engine::{Engine, lock};
use crate::error::{Error, Result};
use crate::lines::Line;
use crate::storage::Value;

/// So many answers make it worth while to look which are there.
const MANY: usize = 32;

/// What an operator of a chunk asks of the data, and the program's answer.
pub(crate) struct Pledge {
    pub number: Arc<Value>,
    pub check: Arc<Check>,
    /// The operator's place in the chunk.
    pub node: usize,
}

/// An answer that nobody has looked at.
pub(crate) struct Answer {
    number: Arc<Value>,
    check: Arc<Check>,
    operator: Arc<str>,
    line: Line,
}

impl Answer {
    /// Waits for it.
    fn look(&self) -> Result<()> {
        // Where the program itself failed, whoever reads its results is told.
        let Ok(number) = crate::host::read_i64(&self.number) else { return Ok(()) };
        let Some(error) = self.check.error_for(number) else { return Ok(()) };
        let mut error = Error::from(error);
        let place = match self.line.is_known() {
            true => self.line.behind(&self.operator),
            false => format!("{}; torch.tpu.eager_mode = 'debug' shows the line", self.operator),
        };
        error.message = format!("{} [{place}]", error.message);
        Err(error)
    }

    fn is_there(&self) -> bool {
        self.number.buffer().is_ok_and(|buffer| buffer.is_ready().unwrap_or(true))
    }
}

impl Engine {
    /// Keeps what a chunk that was handed over will answer.
    pub(crate) fn keep_answers(&mut self, device: usize, chunk: &mut Chunk) {
        if chunk.checks.is_empty() {
            return;
        }
        let pledges = std::mem::take(&mut chunk.checks);
        let answers = pledges.into_iter().map(|Pledge { number, check, node }| {
            let operator = Arc::clone(&chunk.nodes[node].instance.operator);
            Answer { number, check, operator, line: chunk.line_of(node) }
        });
        let kept = &mut self.answers[device];
        // A program that never reads leaves many.
        if kept.len() >= MANY && kept.len() + answers.len() > kept.capacity() {
            kept.retain(|answer| !answer.is_there() || answer.look().is_err());
        }
        kept.extend(answers);
    }

    /// Debug: looks at once.
    pub(crate) fn look_at_answers(&mut self, device: usize) -> Result<()> {
        look(&std::mem::take(&mut self.answers[device]))
    }
}

/// Looks at what the programs of a device have answered since the last time, waiting for them.
///
/// # Errors
/// The first demand that the data did not meet.
pub(crate) fn look_at_answers(device: usize) -> Result<()> {
    let answers = match lock()?.answers.get_mut(device) {
        Some(answers) if !answers.is_empty() => std::mem::take(answers),
        _ => return Ok(()),
    };
    look(&answers)
}

/// Looks at what all programs have answered: at the end of a process. Waits for what was flushed, and runs nothing else.
///
/// # Errors
/// The first demand that the data did not meet.
pub fn look_at_last_answers() -> Result<()> {
    let devices = lock()?.answers.len();
    (0..devices).try_for_each(|device| {
        lock()?.catch_up(device);
        look_at_answers(device)
    })
}

fn look(answers: &[Answer]) -> Result<()> {
    answers.iter().try_for_each(Answer::look)
}
