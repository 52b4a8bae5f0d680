//! All limits of credentials that a user can reach, with their reasons. A refusal names its limit.

use std::time::Duration;

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

/// Longest token (JWT), in bytes. A longer one is refused before anything of it is decoded.
pub const TOKEN_BYTES_MAX: usize = 8192;

/// Longest subject of a token, in bytes: what OpenID Connect allows.
pub const TOKEN_SUBJECT_BYTES_MAX: usize = 255;

/// Longest leeway for clocks that differ.
pub const TOKEN_LEEWAY_MAX: Duration = Duration::from_secs(300);

/// Longest time for which tokens may be good that a broker may be configured to take.
pub const TOKEN_LIFETIME_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

/// Shortest secret of HS256, in bytes: as long as its hash (RFC 7518, section 3.2). A shorter one can be guessed from one token.
pub const TOKEN_SECRET_BYTES_MIN: usize = 32;

/// Longest secret of HS256, in bytes.
pub const TOKEN_SECRET_BYTES_MAX: usize = 1024;

/// Longest file of keys in PEM, in bytes.
pub const KEY_FILE_BYTES_MAX: usize = 64 << 10;

/// Shortest modulus of an RSA key, in bits (RFC 7518, section 3.3).
pub const RSA_BITS_MIN: usize = 2048;

/// Longest modulus of an RSA key, in bits. Longer ones make each check slow.
pub const RSA_BITS_MAX: usize = 8192;

/// Longest key set document (JWKS), in bytes.
pub const KEY_SET_BYTES_MAX: usize = 1 << 20;

/// Most keys in a key set.
pub const KEY_SET_KEYS_MAX: usize = 64;

/// Most keys without an id in a key set. A token that names none of the others is checked with each of them.
pub const KEYS_WITHOUT_ID_MAX: usize = 4;

/// Longest id of a key (`kid`), in bytes.
pub const KEY_ID_BYTES_MAX: usize = 256;

/// Longest client certificate, in bytes, without those of its issuers.
pub const CERTIFICATE_BYTES_MAX: usize = 32 << 10;

/// Most names in a client certificate.
pub const CERTIFICATE_NAMES_MAX: usize = 64;

/// Longest name in a client certificate, in bytes.
pub const CERTIFICATE_NAME_BYTES_MAX: usize = 1024;

/// Most names of certificates that one user accepts.
pub const CERTIFICATES_OF_USER_MAX: usize = 16;

/// Shortest time for which a fetched key set is fresh, whatever its issuer says.
pub const KEY_SET_FRESH_MIN: Duration = Duration::from_secs(60);

/// The time for which a fetched key set is fresh when its issuer says nothing.
pub const KEY_SET_FRESH: Duration = Duration::from_secs(300);

/// Longest time for which a fetched key set is fresh: so long may a key that its issuer has removed be good.
pub const KEY_SET_FRESH_MAX: Duration = Duration::from_secs(3600);

/// Longest time for which the keys of an issuer that is away are good.
pub const KEY_SET_AGE_MAX: Duration = Duration::from_secs(24 * 3600);

/// Shortest time between two fetches for tokens that name an unknown key. Anybody can send such tokens.
pub const KEY_SET_UNKNOWN_KEY_INTERVAL: Duration = Duration::from_secs(30);

/// The wait after the first fetch that has failed; it doubles.
pub const KEY_SET_RETRY_MIN: Duration = Duration::from_secs(1);

/// The longest wait after fetches that have failed.
pub const KEY_SET_RETRY_MAX: Duration = Duration::from_secs(120);

/// Failed logins of a user from one address that are answered at once. More are answered one for each
/// [`LOGIN_NAME_INTERVAL`].
pub const LOGIN_NAME_BURST: u32 = 5;

/// The time between two failed logins of one name from one address.
pub const LOGIN_NAME_INTERVAL: Duration = Duration::from_secs(2);

/// Failed logins from one address, with any names, that are answered at once. More are answered one for each
/// [`LOGIN_ADDRESS_INTERVAL`]. People behind one address have different names. Loopback addresses have no such limit: all
/// that a proxy on the broker's machine passes on comes from there.
pub const LOGIN_ADDRESS_BURST: u32 = 100;

/// The time between two failed logins from one address.
pub const LOGIN_ADDRESS_INTERVAL: Duration = Duration::from_millis(100);

/// Wrong passwords of a user from one address that are compared at once with those that were right there before. More are
/// compared one for each [`LOGIN_RECALL_INTERVAL`]. It bounds guesses that cost no hash, and is far beyond what a user sends.
pub const LOGIN_RECALL_BURST: u32 = 100;

/// The time between two wrong passwords of a user from one address that are compared with those that were right there.
pub const LOGIN_RECALL_INTERVAL: Duration = Duration::from_millis(100);

/// Longest delay of a login. One that would have to wait longer is refused with the time to retry. It is less than clients
/// give a greeting as a rule.
pub const LOGIN_DELAY_MAX: Duration = Duration::from_secs(4);

/// Most addresses, and names at addresses, whose failed logins are remembered. Those that failed longest ago are forgotten.
pub const LOGIN_ENTRIES_MAX: usize = 16_384;

/// Lines about refused logins that are logged at once. More are logged one for each [`LOGIN_LOG_INTERVAL`].
pub const LOGIN_LOG_BURST: u32 = 10;

/// The time between two lines about refused logins.
pub const LOGIN_LOG_INTERVAL: Duration = Duration::from_secs(1);
