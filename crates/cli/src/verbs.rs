//! The command line: the verbs and their shared help. Each verb has its own file.

use clap::{Parser, Subcommand};

use crate::{
    auth, backup, bench, cert, cluster, config, consume, context, cursor, dead_letters, delayed,
    exit::Failure, explain, group, hook, kv, live, messages, publish, read, reply, request,
    restore, schedule, seal, serve, storage, stream, subscription, throttle, topic,
};

/// Shown below the help of the whole program.
const EXAMPLES: &str = "\
Examples:
  sennit serve --data ./data
  sennit topic create orders
  echo hello | sennit publish orders
  sennit consume orders

Data goes to standard output, talk to standard error. Tables are for terminals; into a pipe the
same cells come as tab-separated lines, and with --json as JSON. NO_COLOR is honoured.

The first Ctrl-C, SIGTERM or SIGHUP lets a verb finish what it has begun, the second ends it at
once. Verbs that go on until they are stopped try a broker that is lost again for about a minute.

Durations are 250ms, 1.5s, 1h30m or 7d, sizes 4096, 64KiB or 2GB. Addresses are host:port; what an
address leaves out is filled in. Dates and times that name no zone are UTC.

Exit codes:
  0  done                      4  exists or differs already
  1  failed                    5  not allowed
  2  the command line is wrong 6  unreachable, or too late
  3  not found                 7  done in part
                             130  ended by a second Ctrl-C (143 by SIGTERM, 129 by SIGHUP)";

/// A message broker: queues and streams on one durable log
#[derive(Debug, Parser)]
#[command(name = "sennit", version, after_help = EXAMPLES)]
#[command(propagate_version = true, max_term_width = 100)]
pub struct Sennit {
    /// Reach the broker of this context (`sennit context`) instead of the one in use
    #[arg(long, value_name = "NAME", env = "SENNIT_CONTEXT", global = true)]
    context: Option<String>,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run the broker until it is stopped
    Serve(serve::Args),
    /// The settings of `sennit serve`: check them, show the values in force, print the defaults
    Config(config::Args),
    /// Create, describe and change topics
    Topic(topic::Args),
    /// Create, describe and change groups of a topic
    Group(group::Args),
    /// Explain why a message or a fair key waits in a group
    Explain(explain::Args),
    /// Messages that a group still has: show, count, cancel and move them
    Messages(messages::Args),
    /// Dead letters: show, count, redrive, edit and remove them
    DeadLetters(dead_letters::Args),
    /// List, cancel and reschedule messages that their publisher has delayed
    Delayed(delayed::Args),
    /// Recurring schedules: publish a message at the times of a cron pattern
    Schedule(schedule::Args),
    /// Publish messages and wait until they are confirmed
    Publish(publish::Args),
    /// Take messages as a member of a group, print them or pass them to a command, and settle them
    Consume(consume::Args),
    /// Publish a request, wait for its reply and print it
    Request(request::Args),
    /// Run a command for each request of a topic, and reply with its output
    Reply(reply::Args),
    /// Read messages by offset and print them; affects no other reader or consumer
    Read(read::Args),
    /// List and move the named cursors of topics
    Cursor(cursor::Args),
    /// HTTP streams: create, append, read
    Stream(stream::Args),
    /// Subscriptions that are woken when HTTP streams have content: create, list, show
    Subscription(subscription::Args),
    /// Live connections: subscribe to channels, publish to them, see who is there
    Live(live::Args),
    /// The configuration of the broker: get, set, delete, list and watch keys
    Kv(kv::Args),
    /// Who may do what: API keys, users, roles, rights and tenants
    Auth(auth::Args),
    /// Scripts of topics that decide about each message: set, check, roll back, show
    Hook(hook::Args),
    /// Throttle rules, which limit how fast messages of a throttle key are delivered
    Throttle(throttle::Args),
    /// Verify or repair a data directory that no broker serves
    Storage(storage::Args),
    /// Copy all data of a running broker into one archive
    Backup(backup::Args),
    /// Create a data directory from the archive of a backup
    Restore(restore::Args),
    /// Brokers by name, with how to reach them and a credential: add, use, list, remove
    Context(context::Args),
    /// Certificates for TLS: make an authority, issue, show
    Cert(cert::Args),
    /// Keys for sealed messages, which the broker cannot read: make, show
    Seal(seal::Args),
    /// The nodes of a cluster: which of them hear each other
    #[command(hide = true)]
    Cluster(cluster::Args),
    /// Measure a broker
    Bench(bench::Args),
    #[command(hide = true)]
    BenchWorker,
}

/// Runs the verb.
///
/// # Errors
/// The failure, with its exit code.
pub fn run(command: Sennit) -> Result<(), Failure> {
    let Sennit { verb, context: _ } = command;
    match verb {
        Verb::Serve(args) => serve::run(args),
        Verb::Config(args) => config::run(args),
        Verb::Topic(args) => topic::run(args),
        Verb::Group(args) => group::run(args),
        Verb::Explain(args) => explain::run(args),
        Verb::Messages(args) => messages::run(args),
        Verb::DeadLetters(args) => dead_letters::run(args),
        Verb::Delayed(args) => delayed::run(args),
        Verb::Schedule(args) => schedule::run(args),
        Verb::Publish(args) => publish::run(args),
        Verb::Consume(args) => consume::run(args),
        Verb::Request(args) => request::run(args),
        Verb::Reply(args) => reply::run(args),
        Verb::Read(args) => read::run(args),
        Verb::Cursor(args) => cursor::run(args),
        Verb::Stream(args) => stream::run(args),
        Verb::Subscription(args) => subscription::run(args),
        Verb::Live(args) => live::run(args),
        Verb::Kv(args) => kv::run(args),
        Verb::Auth(args) => auth::run(args),
        Verb::Hook(args) => hook::run(args),
        Verb::Throttle(args) => throttle::run(args),
        Verb::Storage(args) => storage::run(&args),
        Verb::Backup(args) => backup::run(&args),
        Verb::Restore(args) => restore::run(&args),
        Verb::Context(args) => context::run(args),
        Verb::Cert(args) => cert::run(&args),
        Verb::Seal(args) => seal::run(args),
        Verb::Cluster(args) => cluster::run(args),
        Verb::Bench(args) => bench::run(args),
        Verb::BenchWorker => bench::run_worker(),
    }
}

#[cfg(test)]
mod tests {
    use std::{fmt::Write as _, fs, path::Path};

    use clap::{Command, CommandFactory};

    use super::*;

    const INTRODUCTION: &str = "# The command line

What `sennit` prints as help, verb by verb. This page is written by a test of `crates/cli`
(`SENNIT_WRITE_PAGES=1 cargo test -p sennit the_page`), which fails when the two differ. Options that
all subcommands of a verb take stand with the verb, and `--context`, which all verbs take, stands first.
";

    fn write_page(command: &mut Command, path: &str, page: &mut String) {
        let depth = path.split(' ').count() + 1;
        // What a verb passes on to its subcommands stands once, with the verb.
        let mut shown = command.clone().mut_args(|arg| {
            let is_above =
                arg.is_global_set() && (depth > 3 || depth > 2 && arg.get_id() == "context");
            if is_above { arg.hide(true) } else { arg }
        });
        shown = shown.term_width(100);
        let help = shown.render_long_help();
        let help: Vec<_> =
            help.to_string().lines().map(|line| line.trim_end().to_owned()).collect();
        write!(page, "\n{} {path}\n\n```text\n{}\n```\n", "#".repeat(depth), help.join("\n"))
            .unwrap();
        let names: Vec<_> = command
            .get_subcommands()
            .filter(|sub| !sub.is_hide_set() && sub.get_name() != "help")
            .map(|sub| sub.get_name().to_owned())
            .collect();
        for name in names {
            let sub = command.find_subcommand_mut(&name).unwrap();
            write_page(sub, &format!("{path} {name}"), page);
        }
    }

    #[test]
    fn the_commands_do_not_contradict_each_other() {
        Sennit::command().debug_assert();
    }

    #[test]
    fn the_page_says_what_the_help_says() {
        let mut command = Sennit::command();
        command.build();
        let mut page = INTRODUCTION.to_owned();
        write_page(&mut command, "sennit", &mut page);
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/cli.md");
        if std::env::var_os("SENNIT_WRITE_PAGES").is_some() {
            fs::write(&path, &page).unwrap();
        }
        let written = fs::read_to_string(&path).unwrap_or_default();
        assert!(written == page, "docs/reference/cli.md is behind; SENNIT_WRITE_PAGES=1 writes it");
    }

    #[test]
    fn help_is_a_word_as_well_as_an_option() {
        for (line, part) in [
            (&["sennit", "help"][..], "Usage: sennit [OPTIONS] <COMMAND>"),
            (&["sennit", "help", "topic", "create"], "Usage: sennit topic create"),
            (&["sennit", "topic", "help", "create"], "Usage: sennit topic create"),
        ] {
            let help = Sennit::try_parse_from(line).unwrap_err();
            assert_eq!(help.exit_code(), 0, "{line:?}");
            assert!(help.to_string().contains(part), "{help}");
        }
    }

    #[test]
    fn a_wrong_command_line_ends_with_2() {
        for line in [
            &["sennit"][..],
            &["sennit", "serf"],
            &["sennit", "topic", "create"],
            &["sennit", "topic", "create", "no spaces"],
            &["sennit", "topic", "create", "a", "--ttl", "soon"],
            &["sennit", "publish", "orders", "--header", "no-equals-sign"],
            &["sennit", "consume", "orders", "--count", "0"],
            &["sennit", "consume", "orders", "--no-ack", "--verdict", "retry"],
            &["sennit", "consume", "orders", "--json", "--raw"],
            &["sennit", "consume", "orders", "--exec", "true", "--no-ack"],
            &["sennit", "consume", "orders", "--jobs", "2"],
            &["sennit", "publish", "orders", "body", "--whole"],
            &["sennit", "publish", "orders", "--whole", "--json-lines"],
            &["sennit", "read", "orders", "-0", "--delimiter", ","],
            &["sennit", "read", "orders", "--from", "yesterday"],
            &["sennit", "serve", "--scrub-every", "sometimes"],
            &["sennit", "serve", "--streams-storage", "disk"],
            &["sennit", "serve", "--io", "fast"],
            &["sennit", "serve", "--insecure-no-auth=perhaps"],
            &["sennit", "config"],
            &["sennit", "config", "show", "--listen", "a b"],
            &["sennit", "config", "check", "--until-stdin-ends"],
            &["sennit", "stream", "create"],
            &["sennit", "stream", "fork", "a", "b", "--behind", "1"],
            &["sennit", "subscription", "create", "s", "--pattern", "a/*"],
            &["sennit", "subscription", "create", "s", "--wake-stream", "w"],
            &["sennit", "backup"],
            &["sennit", "topic", "list", "--tls-fingerprint", "short"],
            &["sennit", "serve", "--tls", "cert.pem"],
            &["sennit", "cert", "issue", "localhost"],
            &["sennit", "context", "add", "no spaces"],
            &["sennit", "context", "add", "a", "--credential-file", "f", "--credential-env", "V"],
            &["sennit", "restore"],
            &["sennit", "kv", "get", "no spaces"],
            &["sennit", "kv", "set", "a"],
            &["sennit", "kv", "set", "a", "b", "--if-revision", "-1"],
            &["sennit", "throttle", "set", "a*b", "1/s"],
            &["sennit", "delayed", "cancel", "jobs"],
            &["sennit", "delayed", "reschedule", "jobs", "4"],
            &["sennit", "delayed", "reschedule", "jobs", "4", "--now", "--in", "5s"],
            &["sennit", "schedule", "create", "report", "--topic", "jobs"],
            &["sennit", "hook", "set", "jobs"],
            &["sennit", "hook", "check", "a.lua", "--last", "3"],
            &["sennit", "explain", "jobs"],
            &["sennit", "explain", "jobs", "4", "--key", "acme"],
            &["sennit", "group", "keys", "jobs", "default", "--top", "1001"],
        ] {
            assert_eq!(Sennit::try_parse_from(line).unwrap_err().exit_code(), 2, "{line:?}");
        }
    }
}
