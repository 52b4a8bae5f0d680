//! Reports tests that cannot run on this machine. libtest counts a test that returns early as passed; `make test`
//! subtracts the reported ones and lists them.

use std::{
    fs::File,
    io::{self, Write},
    panic::Location,
    thread,
};

/// Says that the test on this thread cannot run here, to the file that `TEST_SKIPPED` names, if it does, and to
/// whoever looks on, whether tests are heard or not. The test returns after that.
#[track_caller]
pub fn skipped(why: &str) {
    let caller = Location::caller();
    // libtest names a test's thread after the test, unless it runs one test at a time.
    let thread = thread::current();
    let test = match thread.name() {
        Some(name) if name != "main" => name.to_owned(),
        _ => format!("{}:{}", caller.file(), caller.line()),
    };
    let line = format!("{} {test}\t{}\n", env!("CARGO_CRATE_NAME"), why.replace(['\n', '\t'], " "));
    // Nobody may hear it.
    let _ = write!(io::stderr(), "SKIPPED: {line}");
    if let Some(path) = std::env::var_os("TEST_SKIPPED") {
        let file = File::options().create(true).append(true).open(&path);
        // In one write, as other tests write to it at the same time.
        file.and_then(|mut file| file.write_all(line.as_bytes()))
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}
