//! How far a long run is: a bar where somebody looks on, a line now and then where a program does. Knows
//! nothing of what runs.

use std::{
    io::{IsTerminal, Write},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};

/// How long a program that listens waits for a line.
const SAID_EVERY: Duration = Duration::from_secs(10);

/// How far a run is.
pub struct Progress {
    of: &'static str,
    bar: ProgressBar,
    is_seen: bool,
    said_at: Mutex<Instant>,
}

impl Progress {
    /// The progress of a run of these things.
    pub fn new(of: &'static str) -> Self {
        let bar = ProgressBar::new(0);
        let template = format!("{{bar:40}} {{pos}}/{{len}} {of}, {{msg}} failed, {{eta}} left");
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        let is_seen = std::io::stderr().is_terminal();
        Self { of, bar, is_seen, said_at: Mutex::new(Instant::now()) }
    }

    /// Shows that so many of all are done.
    pub fn told(&self, done: u64, all: u64, failed: u64) {
        self.bar.set_length(all);
        self.bar.set_message(failed.to_string());
        self.bar.set_position(done);
        if self.is_seen {
            return;
        }
        let mut said_at = self.said_at.lock().unwrap_or_else(PoisonError::into_inner);
        if said_at.elapsed() >= SAID_EVERY {
            *said_at = Instant::now();
            // Where nobody reads any more, nobody misses it.
            let _ =
                writeln!(std::io::stderr(), "{done} of {all} {of}, {failed} failed", of = self.of);
        }
    }

    /// Writes a line of what was found to standard output, whatever is shown of the progress.
    pub fn say(&self, line: &str) {
        // Where nobody reads any more, nobody misses it.
        self.bar.suspend(|| drop(writeln!(std::io::stdout(), "{line}")));
    }

    /// Clears the bar away.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}
