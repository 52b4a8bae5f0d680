//! The nearest name for one that does not exist.

use crate::limits::NAME_BYTES_MAX;

/// The name of `names` nearest to `wrong`, if one is near: at most a third of its characters differ, and no more than
/// three.
pub(crate) fn nearest<'n>(wrong: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    if wrong.len() > NAME_BYTES_MAX {
        return None;
    }
    let wrong = wrong.to_ascii_lowercase().replace('-', "_");
    let near = names.filter_map(|name| {
        let distance = strsim::damerau_levenshtein(&wrong, name);
        let most = (wrong.len().max(name.len()) / 3).clamp(1, 3);
        (distance <= most).then_some((distance, name))
    });
    near.min().map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 5] = ["listen", "connections", "hosts", "origins", "long_poll_timeout"];

    #[test]
    fn a_name_that_is_near_is_suggested() {
        for (wrong, name) in [
            ("lisen", Some("listen")),
            ("ilsten", Some("listen")),
            ("Listen", Some("listen")),
            ("connection", Some("connections")),
            ("conections", Some("connections")),
            ("host", Some("hosts")),
            ("long-poll-timeout", Some("long_poll_timeout")),
            ("long_poll_time", Some("long_poll_timeout")),
            ("data", None),
            ("", None),
            ("h", None),
        ] {
            assert_eq!(nearest(wrong, NAMES.into_iter()), name, "{wrong:?}");
        }
    }

    #[test]
    fn a_name_of_any_length_costs_little() {
        assert_eq!(nearest(&"listen".repeat(1 << 20), NAMES.into_iter()), None);
    }
}
