//! Shows the progress of a long run: a bar on a terminal, occasional lines elsewhere.

use std::{
    io::{IsTerminal, Write},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};

/// Time between two lines.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// The progress of a run.
pub struct Progress {
    of: &'static str,
    bar: ProgressBar,
    is_seen: bool,
    last_line_at: Mutex<Instant>,
}

impl Progress {
    /// The progress of a run. `of` names its parts.
    pub fn new(of: &'static str) -> Self {
        let bar = ProgressBar::new(0);
        let template = format!("{{bar:40}} {{pos}}/{{len}} {of}, {{msg}} failed, {{eta}} left");
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        let is_seen = std::io::stderr().is_terminal();
        Self { of, bar, is_seen, last_line_at: Mutex::new(Instant::now()) }
    }

    /// Shows that `done` of `all` parts are done.
    pub fn update(&self, done: u64, all: u64, failed: u64) {
        self.bar.set_length(all);
        self.bar.set_message(failed.to_string());
        self.bar.set_position(done);
        if self.is_seen {
            return;
        }
        let mut last_line_at = self.last_line_at.lock().unwrap_or_else(PoisonError::into_inner);
        if last_line_at.elapsed() >= LINE_EVERY {
            *last_line_at = Instant::now();
            // Where nobody reads any more, nobody misses it.
            let _ =
                writeln!(std::io::stderr(), "{done} of {all} {of}, {failed} failed", of = self.of);
        }
    }

    /// Writes a finding to standard output, beside the bar.
    pub fn say(&self, line: &str) {
        // Where nobody reads any more, nobody misses it.
        self.bar.suspend(|| drop(writeln!(std::io::stdout(), "{line}")));
    }

    /// Removes the bar.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}
