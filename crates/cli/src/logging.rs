//! The log of the broker on standard error. What is logged can be changed while it runs.

use std::fmt;

use tracing_subscriber::EnvFilter;

use crate::settings::LogFormat;

/// Changes what is logged.
pub struct LogFilter(Box<dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync>);

impl fmt::Debug for LogFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogFilter").finish_non_exhaustive()
    }
}

impl LogFilter {
    /// From now on this is logged.
    ///
    /// # Errors
    /// It is no filter, as a text for people.
    pub fn set(&self, filter: &str) -> Result<(), String> {
        (self.0)(parsed(filter)?)
    }
}

fn parsed(filter: &str) -> Result<EnvFilter, String> {
    EnvFilter::builder().parse(filter).map_err(|error| error.to_string())
}

/// Logs to standard error from now on.
///
/// # Errors
/// `filter` is none, as a text for people.
pub fn log_to_standard_error(format: LogFormat, filter: &str) -> Result<LogFilter, String> {
    let filter = parsed(filter)?;
    let builder = tracing_subscriber::fmt().with_writer(std::io::stderr);
    Ok(match format {
        LogFormat::Json => {
            let builder = builder.json().with_env_filter(filter).with_filter_reloading();
            let handle = builder.reload_handle();
            builder.init();
            LogFilter(Box::new(move |filter| handle.reload(filter).map_err(text)))
        }
        LogFormat::Text => {
            let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
            let terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
            let builder = builder.with_ansi(terminal && !no_color);
            let builder = builder.with_env_filter(filter).with_filter_reloading();
            let handle = builder.reload_handle();
            builder.init();
            LogFilter(Box::new(move |filter| handle.reload(filter).map_err(text)))
        }
    })
}

fn text(error: tracing_subscriber::reload::Error) -> String {
    error.to_string()
}
