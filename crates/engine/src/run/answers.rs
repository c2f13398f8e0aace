//! The results of the checks in programs, such as an index out of range. The host reads them at its next read or
//! wait, before it can see results computed from invalid data.

use std::sync::Arc;

use aten::Check;

use crate::error::Result;
use crate::lines::Line;
use crate::record::chunk::{Chunk, DataCheck};
use crate::storage::Value;

/// From this number on, ready results are checked before more are added.
const MANY: usize = 32;

/// The result of a check that was not read yet.
pub(crate) struct Answer {
    pub number: Arc<Value>,
    check: Arc<Check>,
    operator: Arc<str>,
    line: Line,
}

impl Answer {
    /// Waits for the result and returns the error of a failed check.
    fn look(&self) -> Result<()> {
        // If the program failed, a read of its results raises that error.
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

/// Keeps the check results of a chunk that was launched.
pub(crate) fn keep(kept: &mut Vec<Answer>, chunk: &mut Chunk) {
    if chunk.checks.is_empty() {
        return;
    }
    let checks = std::mem::take(&mut chunk.checks);
    let answers = checks.into_iter().map(|DataCheck { number, check, node }| {
        let operator = Arc::clone(&chunk.nodes[node].instance.operator);
        Answer { number, check, operator, line: chunk.line_of(node) }
    });
    // Otherwise they would accumulate in a process that never reads.
    if kept.len() >= MANY && kept.len() + answers.len() > kept.capacity() {
        kept.retain(|answer| !answer.is_there() || answer.look().is_err());
    }
    kept.extend(answers);
}

/// Waits for check results.
///
/// # Errors
/// The first check that failed.
pub(crate) fn look(answers: &[Answer]) -> Result<()> {
    answers.iter().try_for_each(Answer::look)
}
