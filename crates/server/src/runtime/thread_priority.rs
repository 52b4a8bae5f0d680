//! Lowers the priority of threads whose work can wait.

use rustix::process::setpriority_process;

/// How far they give way: with a tenth of another thread's share they still come through where
/// processors are short.
const NICE: i32 = 10;

/// The calling thread gives way from now on: whoever wakes has the processor at once, and not after some
/// milliseconds.
pub(crate) fn give_way() {
    // Of this thread alone, as Linux takes it.
    if let Err(error) = setpriority_process(None, NICE) {
        tracing::warn!(%error, "a thread does not give way to others");
    }
}
