//! Why recorded calls run.

use std::fmt;

/// Why recorded calls run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Debug and Strict run each operator at once.
    EachOperator,
    CompiledGraph,
    Joined,
    Read,
    Size,
    Synchronize,
    Event,
    Mode,
    OtherDevice,
    Full,
    Large,
    Beat,
    Upload,
    Collective,
    CollectiveProgram,
    OtherGroup,
    /// The ranks have voted on a program with collectives, and do not all have it.
    Refused,
    /// A program with collectives that is not voted on.
    NotAsked,
    Parted,
    Job,
    Pause,
    LongList,
    /// A program that exists runs in place of one that is being compiled.
    Compiling,
    /// Many chunks of late were new, and the operators of one that has not come often run by themselves.
    Once,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::EachOperator => "the mode runs each operator at once",
            Reason::CompiledGraph => "a compiled graph runs as a program of its own",
            Reason::Joined => "the end of a compiled step",
            Reason::Read => "the host reads a tensor",
            Reason::Size => "the data decide the size of a result",
            Reason::Synchronize => "the host waits for the device",
            Reason::Event => "an event is recorded",
            Reason::Mode => "the mode changes",
            Reason::OtherDevice => "another device needs a result",
            Reason::Full => "as many operators as a program may have",
            Reason::Large => "results and uploads are as large as a program may hold",
            Reason::Beat => "the loop came back to the operator that the program begins with",
            Reason::Upload => "a tensor is copied from the host, as at the start of a step",
            Reason::LongList => "an operator over a long list runs in groups",
            Reason::Collective => "a collective takes a result",
            Reason::OtherGroup => {
                "a collective is cut from the program, which has collectives of another group of devices"
            }
            Reason::Refused => {
                "a program is cut at its collectives, as the ranks have not all recorded the same program there"
            }
            Reason::NotAsked => {
                "a program is cut at its collectives, as none of its results is in use, or too many depend on one another"
            }
            Reason::Parted => "ranks differ in what they call before and after a collective",
            Reason::Job => "the network of the host comes after a collective of the program",
            Reason::Pause => "the host has paused, and other ranks may wait for a collective of the program",
            Reason::Compiling => "a program that exists runs, while the one that takes its place is compiled",
            Reason::Once => {
                "many programs of late were new, and this one has not come often yet: its operators run by themselves"
            }
            Reason::CollectiveProgram => "a collective is cut from the program, as ranks may run different programs",
        })
    }
}
