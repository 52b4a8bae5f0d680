//! The binary `sennit`: reads the command line, runs one verb, ends with its exit code. Knows no
//! verb's work.

mod address;
mod allocator;
mod backup;
mod bench;
mod consume;
mod cursor;
mod delimiter;
mod exit;
mod format;
mod group;
mod http;
mod interrupt;
mod json_line;
mod lines;
mod moment;
mod output;
mod printer;
mod publish;
mod quantity;
mod reach;
mod read;
mod reader_left;
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

#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::Allocator;

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
