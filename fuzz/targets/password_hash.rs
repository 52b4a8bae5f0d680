//! Any text as the hash of a password: an error, or a hash whose cost is within its limits and whose text is the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sennit_identity::{
    PasswordCost, PasswordHash,
    limits::{PASSWORD_MEMORY_KIB_MAX, PASSWORD_WORK_KIB_MAX},
};

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(hash) = PasswordHash::parse(text) else { return };
    let (memory_kib, passes) = (hash.cost().memory_kib(), hash.cost().passes());
    assert!(memory_kib <= PASSWORD_MEMORY_KIB_MAX);
    assert!(u64::from(memory_kib) * u64::from(passes) <= u64::from(PASSWORD_WORK_KIB_MAX));
    assert_eq!(PasswordCost::new(memory_kib, passes), Ok(hash.cost()));
    let again = PasswordHash::parse(&hash.expose()).expect("what is written is read");
    assert_eq!(again.expose(), hash.expose());
});
