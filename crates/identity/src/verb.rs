//! The verbs of rights: one table of verb, name, subject and meaning. docs/reference/identity.md repeats the table, and
//! a test compares them.

use std::{fmt, str::FromStr};

/// The things that a right is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Topics: its pattern is one of topic names.
    Topic,
    /// Entries of the configuration: its pattern is one of keys.
    Key,
    /// The broker as a whole: it has no pattern.
    Broker,
}

macro_rules! verbs {
    ($($verb:ident = $name:literal, $subject:ident, $meaning:literal;)*) => {
        /// What a principal does to a topic, an entry of the configuration, or the broker.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Verb {
            $(#[doc = concat!($meaning, ".")] $verb,)*
        }

        impl Verb {
            /// All verbs.
            pub const ALL: &'static [Self] = &[$(Self::$verb,)*];

            /// The name in rights and refusals.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$verb => $name,)* }
            }

            /// The things that it is about.
            #[must_use]
            pub fn subject(self) -> Subject {
                match self { $(Self::$verb => Subject::$subject,)* }
            }

            /// Says in one line what it allows.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$verb => $meaning,)* }
            }
        }
    };
}

// verb = name, what it is about, what it allows
verbs! {
    Publish = "publish", Topic, "Publishes messages, appends to a stream and closes it";
    Consume = "consume", Topic, "Takes messages of a group under a lease, and creates the group that is missing";
    Settle = "settle", Topic, "Acks, retries, rejects and extends the deliveries that it has";
    Read = "read", Topic, "Reads messages by offset, and moves its cursors";
    Subscribe = "subscribe", Topic, "Receives live messages over WebSocket";
    Presence = "presence", Topic, "Sees who is subscribed live";
    Describe = "describe", Topic, "Sees that a topic exists, its settings, groups and counts; every allowed verb for a topic includes it";
    Inspect = "inspect", Topic, "Reads the payloads of messages that others wait for, and why they wait";
    Rework = "rework", Topic, "Publishes again, moves, cancels or delays messages that others wait for";
    Create = "create", Topic, "Creates a topic or a stream";
    Configure = "configure", Topic, "Changes the settings of a topic and of its groups";
    Delete = "delete", Topic, "Deletes a topic, and frees its oldest messages";
    Hook = "hook", Topic, "Reads and changes the script of a topic";
    KvRead = "kv-read", Key, "Reads entries of the configuration";
    KvWrite = "kv-write", Key, "Changes entries of the configuration, throttle rules included";
    Monitor = "monitor", Broker, "Reads the metrics";
    Backup = "backup", Broker, "Takes a backup of everything";
    Webhook = "webhook", Broker, "Manages the subscriptions of HTTP streams, which call webhooks";
    Live = "live", Broker, "Sees live connections, has them end, subscribes them, and sends them messages";
    Identity = "identity", Broker, "Manages keys, users, roles, rights and tenants";
}

/// A name that no verb has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is no verb; the verbs are {}", all_names())]
pub struct UnknownVerb {
    /// The name.
    pub name: String,
}

fn all_names() -> String {
    Verb::ALL.iter().map(|verb| verb.name()).collect::<Vec<_>>().join(", ")
}

impl FromStr for Verb {
    type Err = UnknownVerb;

    fn from_str(name: &str) -> Result<Self, UnknownVerb> {
        let found = Verb::ALL.iter().find(|verb| verb.name() == name);
        found.copied().ok_or_else(|| UnknownVerb { name: name.chars().take(64).collect() })
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of verbs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerbSet(u32);

impl VerbSet {
    /// All verbs about these things.
    #[must_use]
    pub fn of_subject(subject: Subject) -> Self {
        Verb::ALL.iter().copied().filter(|verb| verb.subject() == subject).collect()
    }

    /// Returns whether the verb is in it.
    #[must_use]
    pub fn has(self, verb: Verb) -> bool {
        self.0 & 1 << verb as u8 != 0
    }

    /// Returns whether there is none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The verbs that are in one or the other.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The verbs that are in both.
    #[must_use]
    pub fn both(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The verbs in it, in the order of the table.
    pub fn iter(self) -> impl Iterator<Item = Verb> {
        Verb::ALL.iter().copied().filter(move |verb| self.has(*verb))
    }
}

impl FromIterator<Verb> for VerbSet {
    fn from_iter<I: IntoIterator<Item = Verb>>(verbs: I) -> Self {
        Self(verbs.into_iter().fold(0, |set, verb| set | 1 << verb as u8))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_verb_is_found_by_its_name_and_in_its_set() {
        for &verb in Verb::ALL {
            assert_eq!(verb.name().parse(), Ok(verb));
            let set: VerbSet = [verb].into_iter().collect();
            assert_eq!(set.iter().collect::<Vec<_>>(), [verb]);
        }
        assert!("Publish".parse::<Verb>().is_err());
        let long = "x".repeat(1000).parse::<Verb>().unwrap_err();
        assert_eq!(long.name.len(), 64, "what was given is not repeated whole");
    }

    #[test]
    fn the_page_has_every_verb() {
        let page = include_str!("../../../docs/reference/identity.md");
        for verb in Verb::ALL {
            let row = format!("| `{}` | {} |", verb.name(), verb.meaning());
            assert!(page.contains(&row), "docs/reference/identity.md lacks\n{row}");
        }
    }
}
