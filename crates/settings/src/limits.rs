//! The limits of settings, which bound the work for a file that nobody meant as one.

/// The longest settings file, in bytes.
pub const FILE_BYTES_MAX: usize = 1 << 20;

/// The most problems that are told; of more the number is told.
pub const PROBLEMS_MAX: usize = 100;

/// The longest name that is compared with the names of the table, in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 64;

/// The most characters of a wrong value that a problem repeats.
pub(crate) const VALUE_SHOWN_MAX: usize = 80;

/// How often lines that are a key without a value are taken out of a settings file to read on behind them.
pub(crate) const NO_VALUE_ROUNDS_MAX: usize = 4;
