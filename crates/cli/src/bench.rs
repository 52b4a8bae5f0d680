//! `sennit bench`: hands over to the harness.
use crate::exit::Failure;
/// The arguments of `sennit bench`.
#[derive(Debug, clap::Args)]
pub struct Args {}
pub fn run(_: Args) -> Result<(), Failure> {
    Ok(())
}
pub fn run_worker() -> Result<(), Failure> {
    Ok(())
}
