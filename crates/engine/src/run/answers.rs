//! What programs answer about the data that they met, such as an index that is out of range. The host looks at the answers
//! when it next reads from the device or waits for it, so that it sees no number that such data have spoilt.

use std::sync::Arc;

use aten::Check;

use crate::error::Result;
use crate::lines::Line;
use crate::record::chunk::{Chunk, DataCheck};
use crate::storage::Value;

/// From so many answers on, those that are there are looked at before others are added.
const MANY: usize = 32;

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
        // If the program itself failed, the error shows where its results are read.
        let Ok(number) = self.number.read_i64() else { return Ok(()) };
        let Some(mut error) = self.check.error_for(number) else { return Ok(()) };
        let place = match self.line.is_known() {
            true => self.line.label(&self.operator),
            false => format!("{}; torch.tpu.eager_mode = 'debug' shows the line", self.operator),
        };
        error.message = format!("{} [{place}]", error.message);
        Err(error)
    }

    fn is_there(&self) -> bool {
        self.number.buffer().is_ok_and(|buffer| buffer.is_ready().unwrap_or(true))
    }
}

/// Keeps what a chunk that was handed over will answer.
pub(crate) fn keep(kept: &mut Vec<Answer>, chunk: &mut Chunk) {
    if chunk.checks.is_empty() {
        return;
    }
    let checks = std::mem::take(&mut chunk.checks);
    let answers = checks.into_iter().map(|DataCheck { number, check, node }| {
        let operator = Arc::clone(&chunk.nodes[node].instance.operator);
        Answer { number, check, operator, line: chunk.line_of(node) }
    });
    // A program that never reads would collect them without end.
    if kept.len() >= MANY && kept.len() + answers.len() > kept.capacity() {
        kept.retain(|answer| !answer.is_there() || answer.look().is_err());
    }
    kept.extend(answers);
}

/// Looks at answers, waiting for them.
///
/// # Errors
/// The first demand that the data did not meet.
pub(crate) fn look(answers: &[Answer]) -> Result<()> {
    answers.iter().try_for_each(Answer::look)
}
