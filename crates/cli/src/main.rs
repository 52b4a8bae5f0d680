//! The binary `sennit`: reads the command line, runs one verb, ends with its exit code. Knows no
//! verb's work.

mod bench;
mod consume;
mod exit;
mod group;
mod lines;
mod output;
mod publish;
mod quantity;
mod reach;
mod serve;
mod topic;
mod verbs;

use std::process::ExitCode;

use clap::Parser;

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
