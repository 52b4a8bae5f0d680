//! Measures the cost of a decision with 10,000 keys that have 10,000 grants together, and of one principal with many:
//! `cargo run --release -p sennit-identity --example decision_cost`. The results are in bench/results/identity.md.
#![expect(clippy::print_stdout, reason = "its output is its purpose")]

use std::{hint::black_box, time::Instant};

use sennit_identity::{
    API_KEY_ID_RANDOM_BYTES, ApiKeyId, Directory, EntryKey, Holder, KeyEntry, Right, Rights,
    RoleEntry, RoleName, Verb, entry_bytes,
    limits::{RIGHTS_MAX, ROLES_MAX},
};

/// The number of keys, each with one grant.
const KEYS: u32 = 10_000;

/// Times that each figure is measured; the least and the median are shown.
const ROUNDS: usize = 21;

fn main() {
    let topics: Vec<String> =
        (0..KEYS).map(|number| format!("orders.region-{number}.new")).collect();
    let ids: Vec<_> = (0..KEYS).map(id).collect();
    let mut directory = Directory::default();
    for (number, id) in ids.iter().enumerate() {
        add_key(&mut directory, *id, vec![right(number, "orders.region-N.>")], Vec::new());
    }
    // One after the other, each far from the one before, as connections ask.
    let order: Vec<usize> = (0..KEYS as usize).map(|n| n * 7919 % KEYS as usize).collect();
    let all: Vec<Rights> = ids.iter().map(|id| rights_of(&directory, *id)).collect();
    measure("each of 10,000 keys, its rights cached", KEYS, || {
        order.iter().filter(|&&n| all[n].allow(Verb::Publish, black_box(&topics[n]))).count()
    });
    measure("the same, a name that is denied", KEYS, || {
        order.iter().filter(|&&n| !all[n].allow(Verb::Publish, black_box("orders.other"))).count()
    });
    measure("each of 10,000 keys, its rights found anew", KEYS, || {
        let may = |&&n: &&usize| {
            rights_of(&directory, ids[n]).allow(Verb::Publish, black_box(&topics[n]))
        };
        order.iter().filter(may).count()
    });
    let id = id(KEYS);
    for grants in [1, 16, RIGHTS_MAX] {
        let rights = (0..grants).map(|number| right(number, "orders.region-N.>")).collect();
        add_key(&mut directory, id, rights, Vec::new());
        last_of(&directory, id, grants);
    }
    let roles = (0..ROLES_MAX).map(|number| {
        let name: RoleName = format!("role-{number}").parse().expect("it is a name");
        let right = |of| right(RIGHTS_MAX * (number + 1) + of, "orders.region-N.>");
        let role = RoleEntry { rights: (0..RIGHTS_MAX).map(right).collect() };
        let entry = EntryKey::Role(name.clone()).name();
        directory.apply(&entry, Some(&entry_bytes(&role))).expect("it is an entry");
        name
    });
    let roles = roles.collect();
    let rights = (0..RIGHTS_MAX).map(|number| right(number, "orders.region-N.>")).collect();
    add_key(&mut directory, id, rights, roles);
    last_of(&directory, id, RIGHTS_MAX * (ROLES_MAX + 1));
}

/// Measures the decision by the last of so many rights of a key.
fn last_of(directory: &Directory, id: ApiKeyId, grants: usize) {
    let rights = rights_of(directory, id);
    let name = format!("orders.region-{}.new", grants - 1);
    measure(&format!("the last of {grants} rights of one key"), 1000, || {
        (0..1000).filter(|_| rights.allow(Verb::Publish, black_box(&name))).count()
    });
}

fn id(number: u32) -> ApiKeyId {
    let mut random = [0; API_KEY_ID_RANDOM_BYTES];
    random[..4].copy_from_slice(&number.to_le_bytes());
    ApiKeyId::from_random(random)
}

fn right(number: usize, pattern: &str) -> Right {
    let pattern = pattern.replace('N', &number.to_string());
    format!("publish {pattern}").parse().expect("it is a right")
}

fn add_key(directory: &mut Directory, id: ApiKeyId, rights: Vec<Right>, roles: Vec<RoleName>) {
    let entry = KeyEntry {
        name: "key".into(),
        generation: 1,
        created_ms: 0,
        expires_ms: None,
        previous_until_ms: None,
        holder: Holder { tenant: None, roles, rights },
    };
    let name = EntryKey::Key(id).name();
    directory.apply(&name, Some(&entry_bytes(&entry))).expect("it is an entry");
}

fn rights_of(directory: &Directory, id: ApiKeyId) -> Rights {
    directory.rights_of_entry(&EntryKey::Key(id)).expect("it is there")
}

/// Measures `decide`, which makes so many decisions and counts those that are as expected: all.
fn measure(name: &str, decisions: u32, mut decide: impl FnMut() -> usize) {
    let mut times = [0.0; ROUNDS];
    for time in &mut times {
        let began = Instant::now();
        assert_eq!(decide(), decisions as usize, "{name}");
        *time = began.elapsed().as_secs_f64() * 1e9 / f64::from(decisions);
    }
    times.sort_by(f64::total_cmp);
    println!("{name:45} {:9.1} ns a decision, least {:9.1}", times[ROUNDS / 2], times[0]);
}
