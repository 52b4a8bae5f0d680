//! What the brokers of this process log as warnings, for tests that look for a line of their own. It knows no test.

use std::{
    fmt::Debug,
    sync::{Mutex, OnceLock, PoisonError},
};

use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
    subscriber::set_global_default,
};

static LINES: OnceLock<Mutex<Vec<String>>> = OnceLock::new();

/// Takes warnings, each as `NAME=VALUE` and a space for each of its fields.
struct Warnings;

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.push_str(&format!("{field}={value:?} "));
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN && metadata.is_event()
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        if let Some(lines) = LINES.get() {
            lines.lock().unwrap_or_else(PoisonError::into_inner).push(line.0);
        }
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Keeps what is logged from now on.
pub fn keep() {
    LINES.get_or_init(|| {
        set_global_default(Warnings).expect("the only subscriber of this process");
        Mutex::default()
    });
}

/// The lines that contain this text, of those that were kept.
pub fn with(text: &str) -> Vec<String> {
    let lines = LINES.get().expect("lines are kept").lock().unwrap_or_else(PoisonError::into_inner);
    lines.iter().filter(|line| line.contains(text)).cloned().collect()
}
