//! The observer: counters, the explanation, and the profile. It makes no decisions.

pub mod explain;
pub mod profile;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::lines;
use crate::placement::Placement;
use crate::program::{Program, Usage};
use crate::record::chunk::Chunk;
use crate::record::reason::Reason;
use crate::registry::instance::Instance;
use crate::registry::types::Types;
use crate::stats::{CacheStats, OpStats};
use crate::storage::Storage;
use explain::{Compile, Explanation, JobTimes, Run, Wait, Waiting};
use profile::Profile;

#[derive(Default)]
pub(crate) struct Observer {
    pub cache_stats: CacheStats,
    pub op_stats: OpStats,
    explanation: Option<Box<Explanation>>,
    profile: Option<Box<Profile>>,
}

/// The numbers of a run in the explanation and in the profile.
#[derive(Clone, Copy, Default)]
pub(crate) struct Noted {
    explained: Option<usize>,
    profiled: Option<usize>,
}

impl Noted {
    pub fn is_wanted(self) -> bool {
        self.explained.is_some() || self.profiled.is_some()
    }
}

impl Observer {
    #[inline]
    pub fn is_explaining(&self) -> bool {
        self.explanation.is_some()
    }

    /// # Errors
    /// If an explanation is in progress.
    pub fn check_idle(&self) -> Result<()> {
        match self.explanation {
            Some(_) => Err(Error::runtime("an explanation is being made already: explain() does not nest")),
            None => Ok(()),
        }
    }

    /// Starts an explanation, with the texts of programs if `with_texts`.
    pub fn begin_explaining(&mut self, with_texts: bool) {
        self.explanation = Some(Box::new(Explanation::new(with_texts)));
    }

    /// Records that a noted run is replaced by others.
    pub fn withdraw(&mut self, noted: Noted) {
        if let (Some(number), Some(explanation)) = (noted.explained, &mut self.explanation)
            && let Some(run) = explanation.runs.get_mut(number)
        {
            run.is_withdrawn = true;
        }
    }

    /// Ends the explanation and returns it.
    pub fn end_explaining(&mut self) -> Option<Box<Explanation>> {
        let mut explanation = self.explanation.take()?;
        explanation.runs.retain(|run| !run.is_withdrawn);
        explanation.finish_compiles();
        explanation.elapsed = explanation.started.elapsed();
        Some(explanation)
    }

    /// Starts a profile of what devices run. An earlier profile is dropped.
    pub fn begin_profile(&mut self) {
        self.profile = Some(Box::new(Profile::new()));
    }

    /// Ends the profile.
    pub fn end_profile(&mut self) -> Option<Box<Profile>> {
        self.profile.take()
    }

    /// Counts a call.
    #[inline]
    pub fn count_call(&mut self, instance: &Instance) {
        self.op_stats.operators += 1;
        if instance.decomposed {
            *self.op_stats.decomposed.entry(instance.operator.to_string()).or_default() += 1;
        }
    }

    /// Notes the storages of a call's arguments.
    #[inline]
    pub fn note_arguments<'a>(&mut self, storages: impl Iterator<Item = &'a Storage>) {
        if let Some(explanation) = &mut self.explanation {
            explanation.note_arguments(storages);
        }
    }

    /// Records a call that was lowered. `known` are the calls that were lowered before.
    pub fn note_new_call<'a>(
        &mut self,
        new: &Instance,
        why_exact: Option<&str>,
        known: impl Iterator<Item = &'a Arc<Instance>>,
    ) {
        if let Some(explanation) = &mut self.explanation {
            explanation.note_new_call(new, why_exact, known);
        }
    }

    /// The start of a call, and the time of flushes until then.
    #[inline]
    pub fn begin_call(&self) -> Option<(Instant, Duration)> {
        self.explanation.as_ref().map(|explanation| (Instant::now(), explanation.running))
    }

    #[inline]
    pub fn end_call(&mut self, begun: Option<(Instant, Duration)>) {
        let (Some((begun, running)), Some(explanation)) = (begun, &mut self.explanation) else { return };
        explanation.calls += 1;
        explanation.recording += begun.elapsed().saturating_sub(explanation.running - running);
    }

    /// The start of a flush.
    pub fn begin_flush(&self) -> Option<Instant> {
        self.explanation.as_ref().map(|_| Instant::now())
    }

    pub fn end_flush(&mut self, begun: Option<Instant>) {
        let (Some(begun), Some(explanation)) = (begun, &mut self.explanation) else { return };
        explanation.running += begun.elapsed();
        let now = explanation.now();
        if let Some(run) = explanation.runs.last_mut() {
            run.queued = now;
        }
    }

    /// Records that a chunk will be launched as a run of a program, which may be new.
    pub fn note_run(
        &mut self,
        chunk: &Chunk,
        program: &Arc<Program>,
        is_new: bool,
        placement: Placement,
        reason: Reason,
        usage: &Usage,
        types: &Types,
    ) -> Noted {
        let explained = self.explanation.as_mut().map(|explanation| {
            let number = explanation.number(program, chunk, usage, types);
            let (line, now) = (lines::caller(), explanation.now());
            let memory = explanation.memory(number, chunk, usage, placement, types);
            if is_new {
                let why = explanation.why(program, chunk, reason);
                let zero = Duration::ZERO;
                let compile =
                    Compile { program: number, at: now, compiling: zero, loading: zero, waiting: zero, why, line };
                explanation.compiles.push(compile);
            }
            let done = Arc::new(AtomicU64::new(0));
            explanation.runs.push(Run {
                program: number,
                placement,
                reason,
                line,
                memory,
                flushed: now,
                queued: now,
                launched: 0,
                is_quick: false,
                is_withdrawn: false,
                done,
            });
            explanation.runs.len() - 1
        });
        let profiled = self.profile.as_mut().map(|profile| profile.note_run(chunk, program, placement));
        Noted { explained, profiled }
    }

    /// Records when a run was launched, and whether with code that was compiled quickly.
    pub fn note_launch(&mut self, noted: Noted, launched: Instant, is_quick: bool, event: Option<&Arc<pjrt::Event>>) {
        if let (Some(number), Some(profile)) = (noted.profiled, &mut self.profile) {
            profile.note_launch(number, launched, event);
        }
        let (Some(number), Some(explanation)) = (noted.explained, &mut self.explanation) else { return };
        let started = explanation.started;
        let Some(run) = explanation.runs.get_mut(number) else { return };
        run.is_quick = is_quick;
        run.launched = launched.saturating_duration_since(started).as_nanos() as u64;
        if let Some(event) = event {
            let done = Arc::clone(&run.done);
            Arc::clone(event).on_ready(move |_| done.store(started.elapsed().as_nanos() as u64, Relaxed));
        }
    }

    /// Notes that a job is posted. The job notes its times; `None` while nothing is explained.
    pub fn note_job(&mut self, name: &str, placement: Placement, bytes: usize) -> Option<JobTimes> {
        Some(self.explanation.as_mut()?.note_job(name, placement, lines::caller(), bytes))
    }

    /// The start of a wait of the host; `None` if there is no explanation.
    pub fn begin_wait(&self, what: Reason) -> Option<Waiting> {
        self.explanation.as_ref().map(|_| Waiting { since: Instant::now(), what, line: lines::caller() })
    }

    pub fn end_wait(&mut self, waiting: Waiting, until: Instant) {
        let Some(explanation) = self.explanation.as_mut() else { return };
        let since_start = |moment: Instant| moment.saturating_duration_since(explanation.started).as_nanos() as u64;
        let (at, until) = (since_start(waiting.since), since_start(until));
        explanation.waits.push(Wait { at, until, what: waiting.what, line: waiting.line });
    }
}
