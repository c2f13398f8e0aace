//! The modes: when recorded operators run.

/// When recorded operators run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Each runs at once; the call waits for it.
    Debug,
    /// Each runs at once; the call does not wait.
    Strict,
    /// Several run together, when a result is needed or the chunk is full.
    Fused,
}

impl Mode {
    /// The mode with this name, as users write it.
    pub fn from_name(name: &str) -> Option<Mode> {
        match name.to_ascii_lowercase().as_str() {
            "debug" => Some(Mode::Debug),
            "strict" => Some(Mode::Strict),
            "fused" => Some(Mode::Fused),
            _ => None,
        }
    }
}

/// The mode, and Debug's option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EagerMode {
    pub mode: Mode,
    /// Whether Debug checks results for NaN and infinities.
    pub check_finite: bool,
}
