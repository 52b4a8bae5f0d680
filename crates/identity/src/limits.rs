//! All limits of credentials that a user can reach, with their reasons. A refusal names its limit.

/// Shortest password, in characters. Length is what makes a password hard to guess; no rule asks for digits or signs.
pub const PASSWORD_CHARACTERS_MIN: usize = 12;

/// Longest password, in bytes. A longer one would be hashed for longer, on request of anybody who may try to log in.
pub const PASSWORD_BYTES_MAX: usize = 1024;

/// Least memory of a password hash, in KiB: the smallest that OWASP recommends for argon2id.
pub const PASSWORD_MEMORY_KIB_MIN: u32 = 7 * 1024;

/// Most memory of a password hash, in KiB. Each login takes that much while it is checked.
pub const PASSWORD_MEMORY_KIB_MAX: u32 = 256 * 1024;

/// Most passes of a password hash over its memory.
pub const PASSWORD_PASSES_MAX: u32 = 64;

/// Least work of a password hash: KiB times passes. All recommendations of OWASP for argon2id are at least that.
pub const PASSWORD_WORK_KIB_MIN: u32 = 35 * 1024;

/// Most work of a password hash: KiB times passes. It is about a second on one core.
pub const PASSWORD_WORK_KIB_MAX: u32 = 1024 * 1024;

/// Longest text of a password hash, in bytes. The texts that this crate writes have less than half of it.
pub const PASSWORD_HASH_BYTES_MAX: usize = 256;

/// The longest pattern of a right, in bytes: as long as a key of the configuration may be.
pub const PATTERN_BYTES_MAX: usize = 256;

/// The longest text of a right, in bytes.
pub const RIGHT_BYTES_MAX: usize = 512;

/// Most rights that a principal or a role has of its own: a decision walks over them.
pub const RIGHTS_MAX: usize = 256;

/// Most roles of a principal.
pub const ROLES_MAX: usize = 16;

/// The longest name of a user, role or tenant, in bytes.
pub const IDENTITY_NAME_BYTES_MAX: usize = 64;
