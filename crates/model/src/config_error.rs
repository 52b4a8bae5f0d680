//! Why a setting is refused.

use std::time::Duration;

use crate::limits::DURATION_MAX;

/// The reason why a setting was refused: the field, its value and the allowed values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value}, allowed is {allowed}")]
pub struct ConfigError {
    /// The field's name as users write it.
    pub field: &'static str,
    /// The refused value.
    pub value: String,
    /// The allowed values.
    pub allowed: String,
}

pub(crate) fn check_duration(
    field: &'static str,
    value: Option<Duration>,
    least: Duration,
) -> Result<(), ConfigError> {
    match value {
        Some(duration) if !(least..=DURATION_MAX).contains(&duration) => Err(ConfigError {
            field,
            value: format!("{duration:?}"),
            allowed: format!("{least:?} to 100 years"),
        }),
        _ => Ok(()),
    }
}
