//! How much effort the compiler puts into a program.
//!
//! XLA's CPU compiler spends most of its time on optimizations that do not pay for a small program. A small program
//! is compiled quickly at first. After it has processed enough bytes, it is compiled again with full effort in the
//! background. So is a program of several operators, with `TORCHTPU_COMPILE=quick`: the host would wait for its full
//! compile, so it runs quick code until the better executable is ready.

use std::env;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pjrt::Value;

use super::warn;
use crate::platform::Kind;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effort {
    Quick,
    Full,
}

/// XLA's flags for a quick compile. For nine programs of one operator it took a fifth of the time of a full compile.
const QUICK: [(&str, Value); 4] = [
    ("xla_backend_optimization_level", Value::Int(0)),
    ("xla_llvm_disable_expensive_passes", Value::Bool(true)),
    ("xla_cpu_use_fusion_emitters", Value::Bool(false)),
    ("xla_cpu_parallel_codegen_split_count", Value::Int(1)),
];

/// A program whose inputs and results take more bytes is compiled with full effort at once.
const LARGEST_QUICK: usize = 256 << 10;

/// The same for a program of several operators, whose full compile takes seconds. A single run of quick code should
/// not take longer than that.
const LARGEST_QUICK_OF_SEVERAL: usize = 512 << 20;

/// The bytes that a program processes before it is compiled again. The time that quick code loses on them is about
/// the time of a full compile.
const BYTES_BEFORE_FULL: u64 = 16 << 20;

/// The bytes that it has processed when the better executable replaces the first.
const BYTES_BEFORE_BETTER: u64 = 2 * BYTES_BEFORE_FULL;

/// The least number of bytes that a run counts as, because a run without data takes time too.
const LEAST_BYTES: u64 = 8 << 10;

/// A loop runs many operations for few bytes.
const LOOPS: [&str; 2] = ["stablehlo.while", "custom_call"];

/// XLA's flags for an effort.
pub(super) fn flags(effort: Effort) -> impl Iterator<Item = (String, Value)> {
    let flags = if effort == Effort::Quick { &QUICK[..] } else { &[] };
    flags.iter().map(|(name, value)| ((*name).to_owned(), value.clone()))
}

/// XLA's flags for a compile in the background: one thread, so that it does not take the processors from the program.
pub(super) fn flags_of_background(kind: Kind) -> Option<(String, Value)> {
    (kind == Kind::Cpu).then(|| ("xla_cpu_parallel_codegen_split_count".to_owned(), Value::Int(1)))
}

/// The effort of the first compile of a program of several operators. `bytes` is the size of its inputs and results.
pub(crate) fn first_effort_of_several(kind: Kind, text: &str, bytes: usize) -> Effort {
    let is_small = bytes <= LARGEST_QUICK_OF_SEVERAL && !LOOPS.iter().any(|name| text.contains(name));
    if kind == Kind::Cpu && is_small && may_be_quick() && setting() == "quick" { Effort::Quick } else { Effort::Full }
}

/// The effort of the first compile of a program of one operator. `bytes` is the size of its inputs and results.
pub(crate) fn first_effort(kind: Kind, text: &str, bytes: usize) -> Effort {
    let is_small = bytes <= LARGEST_QUICK && !LOOPS.iter().any(|name| text.contains(name));
    if kind == Kind::Cpu && is_small && may_be_quick() { Effort::Quick } else { Effort::Full }
}

/// What the environment asks for.
fn setting() -> &'static str {
    static SETTING: OnceLock<String> = OnceLock::new();
    SETTING.get_or_init(|| {
        let wanted = env::var("TORCHTPU_COMPILE").unwrap_or_default();
        if ["", "auto", "quick", "wait"].contains(&wanted.as_str()) {
            return wanted;
        }
        warn(format!("TORCHTPU_COMPILE must be auto, quick or wait, not {wanted:?}; it is ignored"));
        String::new()
    })
}

/// Whether other programs may run while one is compiled. Which runs they take depends on time.
pub(crate) fn may_run_others() -> bool {
    setting() != "wait"
}

/// Whether the environment allows quick compiles. `TORCHTPU_COMPILE=wait` and XLA's own flags disable them.
fn may_be_quick() -> bool {
    static MAY: OnceLock<bool> = OnceLock::new();
    *MAY.get_or_init(|| {
        let wanted = setting();
        let flags = env::var("XLA_FLAGS").unwrap_or_default();
        wanted != "wait" && !QUICK.iter().any(|(name, _)| flags.contains(name))
    })
}

/// The bytes processed by a program that was compiled quickly.
pub(crate) struct Use {
    bytes_a_run: u64,
    processed: AtomicU64,
}

/// What to do before a run of a program that was compiled quickly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    Run,
    /// Full effort pays from now on: start to compile in the background.
    Improve,
    /// Use the better executable, and wait for it if necessary. Only the number of the run decides which executable
    /// runs, because the two may differ in the last bit of a result.
    RunBetter,
}

impl Use {
    pub fn new(bytes: usize) -> Use {
        Use { bytes_a_run: LEAST_BYTES.max(bytes as u64), processed: AtomicU64::new(0) }
    }

    /// Counts a run.
    pub fn next(&self) -> Step {
        let processed = self.processed.fetch_add(self.bytes_a_run, Relaxed) + self.bytes_a_run;
        match () {
            () if processed > BYTES_BEFORE_BETTER => Step::RunBetter,
            () if processed >= BYTES_BEFORE_FULL && processed - self.bytes_a_run < BYTES_BEFORE_FULL => Step::Improve,
            () => Step::Run,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_programs_of_the_cpu_are_compiled_quickly_at_first() {
        assert_eq!(first_effort(Kind::Cpu, "stablehlo.add", 1 << 10), Effort::Quick);
        assert_eq!(first_effort(Kind::Cpu, "stablehlo.add", 1 << 20), Effort::Full);
        assert_eq!(first_effort(Kind::Cpu, "\"stablehlo.while\"(%a)", 1 << 10), Effort::Full);
        assert_eq!(first_effort(Kind::Tpu, "stablehlo.add", 1 << 10), Effort::Full);
    }

    #[test]
    fn full_effort_begins_once_and_takes_over_later() {
        for (bytes, runs) in [(0, 2048), (1 << 10, 2048), (256 << 10, 64)] {
            let used = Use::new(bytes);
            let steps: Vec<Step> = (1..=3 * runs).map(|_| used.next()).collect();
            let first = |step| steps.iter().position(|each| *each == step).map(|place| place + 1);
            assert_eq!(first(Step::Improve), Some(runs), "{bytes} bytes");
            assert_eq!(first(Step::RunBetter), Some(2 * runs + 1), "{bytes} bytes");
            assert_eq!(steps.iter().filter(|step| **step == Step::Improve).count(), 1);
            assert!(steps[2 * runs..].iter().all(|step| *step == Step::RunBetter));
        }
    }
}
