//! Makes error bodies from codes, so that each code has the same hint and consequences everywhere.

use sennit_model::{ConfigError, NameError};

use crate::{control, decode_error::DecodeError, error_code::ErrorCode};

impl control::Error {
    /// An error with the hint and the consequences of `code`; `message` says what was wrong. The
    /// caller sets the fields of context.
    #[must_use]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code: code.number(),
            message: message.into(),
            hint: code.hint().into(),
            retryable: code.is_retryable(),
            closes_connection: code.closes_connection(),
            ..Self::default()
        }
    }

    /// The code; `None` if a newer server sent one that this version does not know.
    #[must_use]
    pub fn error_code(&self) -> Option<ErrorCode> {
        ErrorCode::of_number(self.code)
    }
}

impl From<&DecodeError> for control::Error {
    fn from(error: &DecodeError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

impl From<&ConfigError> for control::Error {
    fn from(error: &ConfigError) -> Self {
        Self::new(ErrorCode::InvalidConfig, error.to_string())
    }
}

impl From<&NameError> for control::Error {
    fn from(error: &NameError) -> Self {
        Self::new(ErrorCode::InvalidName, error.to_string())
    }
}
