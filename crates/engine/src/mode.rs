//! The modes: when recorded operators run.

/// When recorded operators run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Each at once; the call waits for it.
    Debug,
    /// Each at once; the call does not wait.
    Strict,
    /// Together, when a result is needed or the chunk is full.
    Fused,
}

impl Mode {
    /// By the names that users write.
    pub fn from_name(name: &str) -> Option<Mode> {
        match name.to_ascii_lowercase().as_str() {
            "debug" => Some(Mode::Debug),
            "strict" => Some(Mode::Strict),
            "fused" => Some(Mode::Fused),
            _ => None,
        }
    }
}

/// The mode, and what Debug checks besides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EagerMode {
    pub mode: Mode,
    /// Whether Debug looks for NaN and infinities in results.
    pub check_finite: bool,
}
