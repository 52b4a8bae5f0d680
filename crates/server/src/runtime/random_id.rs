//! Random numbers of the system, for ids that nothing else may have.

use super::error::ServeError;

/// A random id of 64 bits.
///
/// # Errors
/// [`ServeError::System`].
pub(crate) fn random_id() -> Result<u64, ServeError> {
    getrandom::u64().map_err(|error| {
        ServeError::system("draw a random number")(std::io::Error::other(error.to_string()))
    })
}
