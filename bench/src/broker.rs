//! The broker under test: one that runs already, or one of our own in a process of its own.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use tempfile::TempDir;

use crate::options::Options;

/// Where a broker is, and what may be asked of the kernel about it.
pub struct Broker {
    /// Its address.
    pub server: String,
    /// Where its metrics are.
    pub http: String,
    /// Its process, if it is on this machine and known.
    pub pid: Option<u32>,
    /// Where its journal is, if known.
    pub data: Option<PathBuf>,
    own: Option<Own>,
}

struct Own {
    child: Child,
    /// Removed with the broker.
    _data: Option<TempDir>,
}

/// What `sennit serve --json` prints.
#[derive(Deserialize)]
struct Addresses {
    listen: String,
    http: String,
}

impl Broker {
    /// The broker that `options` name, started if they say so.
    ///
    /// # Errors
    /// It does not start.
    pub fn of(options: &Options) -> Result<Self> {
        if options.serve {
            return Self::start(options);
        }
        Ok(Self {
            server: options.server.clone(),
            http: options.http.clone(),
            pid: options.pid,
            data: options.data.clone(),
            own: None,
        })
    }

    fn start(options: &Options) -> Result<Self> {
        let (data, kept) = match &options.data {
            Some(data) => (data.clone(), None),
            None => {
                let fresh = fresh_folder()?;
                (fresh.path().to_owned(), Some(fresh))
            }
        };
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["serve", "--json", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
        command.arg("--data").arg(&data);
        if let Some(shards) = options.shards {
            command.args(["--shards", &shards.to_string()]);
        }
        if std::env::var_os("RUST_LOG").is_none() {
            command.env("RUST_LOG", "warn");
        }
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        let said = child.stdout.take().context("the broker has a standard output")?;
        BufReader::new(said).read_line(&mut line)?;
        let Ok(addresses) = serde_json::from_str::<Addresses>(&line) else {
            let ended = child.wait()?;
            bail!("the broker did not start: {ended}");
        };
        Ok(Self {
            server: addresses.listen,
            http: addresses.http,
            pid: Some(child.id()),
            data: Some(data),
            own: Some(Own { child, _data: kept }),
        })
    }

    /// The folder whose disk the broker writes to, as well as it is known.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.data.clone().unwrap_or_else(|| PathBuf::from("."))
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if let Some(own) = &mut self.own {
            // Nothing of it is kept, so it need not end well.
            let _ = own.child.kill();
            let _ = own.child.wait();
        }
    }
}

/// A fresh folder on a disk: below ./bench-results where that can be made, else where temporary
/// files go.
fn fresh_folder() -> Result<TempDir> {
    let results = Path::new("bench-results");
    let made = std::fs::create_dir_all(results)
        .and_then(|()| tempfile::Builder::new().prefix("data-").tempdir_in(results));
    Ok(made.or_else(|_| tempfile::tempdir())?)
}

/// Whether `folder` lies in memory, where a sync costs nothing and a figure means nothing.
#[must_use]
pub fn lies_in_memory(folder: &Path) -> bool {
    const TMPFS: u64 = 0x0102_1994;
    const RAMFS: u64 = 0x8584_58f6;
    rustix::fs::statfs(folder).is_ok_and(|statfs| [TMPFS, RAMFS].contains(&(statfs.f_type as u64)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_in_memory_is_told_from_one_on_disk() {
        assert!(!lies_in_memory(Path::new("/proc")));
        if Path::new("/dev/shm").is_dir() {
            assert!(lies_in_memory(Path::new("/dev/shm")));
        }
    }
}
