//! Hooks: scripts of topics that decide about messages on their way in. They are entries of the configuration; each core
//! has its own compiled scripts, and runs them for the publishes of its connections and the failed attempts of its
//! shards. What they decide about a message is written into it before the engine sees it. The sandbox is `sennit-hooks`.
//!
//! In reading order: the `entries` of a hook; the `breaker` of a script that fails; a `topic_hook` on one core, and all
//! of them (`core_hooks`); what becomes of a batch (`publishes`), also of one that the broker publishes by itself
//! (`broker_publishes`) or that a client publishes by a topic's name (`topic_publisher`), and of failed attempts (`failures`); the `requests` that change and describe hooks.

pub(crate) mod breaker;
pub(crate) mod broker_publishes;
pub(crate) mod core_hooks;
pub(crate) mod entries;
pub(crate) mod failures;
pub(crate) mod publishes;
pub(crate) mod requests;
pub(crate) mod topic_hook;
pub(crate) mod topic_publisher;
pub(crate) mod topic_settings;
