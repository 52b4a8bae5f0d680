//! Any entries of a directory, one on each line as NAME VALUE, then decisions about any verb and name: no panic, no right that
//! the texts do not give, and each right is shown as it can be given again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sennit_identity::{DENY_ALL, Directory, EntryKey, LastUse, Right, Verb};

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (entries, asked) = text.rsplit_once('\n').unwrap_or((text, ""));
    let mut directory = Directory::default();
    for line in entries.lines() {
        let (name, value) = line
            .split_once(' ')
            .map_or((line, None), |(name, value)| (name, Some(value.as_bytes())));
        let _ = directory.apply(name, value);
        let _ = LastUse::default().read(value.unwrap_or_default());
        if let Some(key) = EntryKey::of_name(name) {
            assert_eq!(key.name(), name);
        }
    }
    let holders: Vec<_> = directory
        .keys()
        .map(|(id, _)| EntryKey::Key(*id))
        .chain(directory.users().map(|(name, _)| EntryKey::User(name.clone())))
        .collect();
    assert_eq!(directory.has_credentials(), !holders.is_empty());
    for who in holders {
        let Some(rights) = directory.rights_of_entry(&who) else { panic!("{who:?} is gone") };
        let has_rights = rights.iter().count() > 0;
        for (text, _) in rights.iter().filter(|(text, _)| *text != DENY_ALL) {
            assert_eq!(text.parse::<Right>().map(|right| right.to_string()).as_deref(), Ok(text));
        }
        for &verb in Verb::ALL {
            assert!(has_rights || !rights.allow(verb, asked));
            let _ = rights.decide(verb, asked);
        }
    }
});
