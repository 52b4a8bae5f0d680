//! The binary `sennit`: reads the command line, runs one verb, ends with its exit code. Knows no
//! verb's work.

mod backup;
mod bench;
mod consume;
mod cursor;
mod exit;
mod group;
mod http;
mod lines;
mod output;
mod publish;
mod quantity;
mod reach;
mod read;
mod restore;
mod serve;
mod shown;
mod source;
mod storage;
mod stream;
mod subscription;
mod topic;
mod verbs;

use std::process::ExitCode;

use clap::Parser;

/// Frames come and go by the megabyte, on one thread, and leave on another: glibc gives them back
/// to the system each time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let command = verbs::Sennit::parse();
    match verbs::run(command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::talk(&failure.to_string());
            failure.exit.into()
        }
    }
}
