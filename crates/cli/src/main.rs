//! The binary `sennit`: parses the command line, runs one verb, and ends with its exit code.

mod address;
mod allocator;
mod auth;
mod backup;
mod bench;
mod cert;
mod cluster;
mod cluster_options;
mod config;
mod connect_options;
mod consume;
mod context;
mod context_defaults;
mod context_file;
mod credential_options;
mod cursor;
mod dead_letters;
mod delayed;
mod delimiter;
mod exit;
mod explain;
mod field_options;
mod field_values;
mod format;
mod group;
mod group_options;
mod header_argument;
mod hook;
mod http;
mod http_retry;
mod interrupt;
mod json_line;
mod key_files;
mod kv;
mod limit_options;
mod line_reader;
mod live;
mod live_options;
mod logging;
mod message_format;
mod messages;
mod offsets_argument;
mod output;
mod printer;
mod publish;
mod read;
mod read_source;
mod reload;
mod reply;
mod request;
mod restore;
mod retry_options;
mod schedule;
mod seal;
mod seal_options;
mod selection_options;
mod serve;
mod settings;
mod stdout_closed;
mod storage;
mod stream;
mod subscription;
mod throttle;
mod throttle_options;
mod time_argument;
mod tls_options;
mod topic;
mod topic_settings;
mod unseal_options;
mod verbs;
mod workbench;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};
use sennit_settings::quantity;

#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::Allocator;

fn main() -> ExitCode {
    let done = parse().and_then(verbs::run);
    std::mem::forget(interrupt::exit_turn());
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::print_to_stderr(&failure.to_string());
            failure.exit.into()
        }
    }
}

/// What the command line says; ends the process where it says nothing that makes sense.
fn parse() -> Result<verbs::Sennit, exit::Failure> {
    let mut command = context_defaults::with_context(verbs::Sennit::command())?;
    let found = command.get_matches_mut();
    let parsed = verbs::Sennit::from_arg_matches(&found);
    let parsed = parsed.unwrap_or_else(|error| error.format(&mut command).exit());
    // Or a broker holds the options of all verbs, 1.3 MiB, for as long as it runs.
    drop((command, found));
    allocator::give_back();
    Ok(parsed)
}
