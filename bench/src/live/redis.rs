//! The Redis between the brokers of a row: one that the row starts, or one that runs already. It says just enough to a
//! Redis to know that it is there, and how much it has passed on.

use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    process::{Command, Stdio},
    str::FromStr,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use tempfile::TempDir;

use crate::children::{ChildProcess, pause};

/// The program, as Debian names it.
const PROGRAM: &str = "redis-server";

/// The port of a Redis whose URL names none.
const PORT: u16 = 6379;

/// Attempts to start it: another program may take the port that was free.
const ATTEMPTS: u32 = 3;

/// Time within which a Redis answers.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// The time between two questions whether it is there.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The Redis of a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RedisChoice {
    /// One of the row's own.
    Own,
    /// The one at this address, host and port, by its URL.
    At {
        /// The URL.
        url: String,
        /// Host and port.
        address: String,
    },
}

/// The reason why there is no Redis between the brokers.
#[derive(Debug, thiserror::Error)]
pub enum RedisError {
    /// The program is not there.
    #[error(
        "there is no {PROGRAM}, which --redis starts: install it (on Debian, apt-get install {PROGRAM}), or name a \
         Redis that runs by --redis redis://HOST:PORT"
    )]
    Missing,
    /// The text names no Redis.
    #[error("{0:?} is not the URL of a Redis without a password: write redis://HOST[:PORT]")]
    Url(String),
    /// The Redis does not answer.
    #[error("no Redis answers at {address}: {source}")]
    Silent {
        /// The address.
        address: String,
        /// The reason.
        source: io::Error,
    },
}

impl FromStr for RedisChoice {
    type Err = RedisError;

    fn from_str(text: &str) -> Result<Self, RedisError> {
        if text == "own" {
            return Ok(Self::Own);
        }
        let refused = || RedisError::Url(text.to_owned());
        let rest = text.strip_prefix("redis://").ok_or_else(refused)?;
        let host = rest.split('/').next().unwrap_or_default();
        // Passwords do not come by arguments, which others on the machine can see.
        if host.is_empty() || host.contains('@') {
            return Err(refused());
        }
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let address = if has_port { host.to_owned() } else { format!("{host}:{PORT}") };
        Ok(Self::At { url: text.to_owned(), address })
    }
}

/// A Redis that is there.
pub struct Redis {
    /// Its URL.
    pub url: String,
    /// Its address.
    pub address: String,
    /// Its process, if it is the row's own.
    pub pid: Option<u32>,
    _own: Option<OwnServer>,
}

/// A server, and what ends it when this process is killed.
struct OwnServer {
    /// Dropped first, so that it never signals a process that came later.
    _guard: ChildProcess,
    _server: ChildProcess,
    _folder: TempDir,
}

impl Redis {
    /// Has a Redis be there.
    ///
    /// # Errors
    /// A [`RedisError`] says why there is none.
    pub fn of(choice: &RedisChoice) -> Result<Self> {
        match choice {
            RedisChoice::At { url, address } => {
                ask_whether_it_is_there(address)
                    .map_err(|source| RedisError::Silent { address: address.clone(), source })?;
                Ok(Self { url: url.clone(), address: address.clone(), pid: None, _own: None })
            }
            RedisChoice::Own => Self::start(),
        }
    }

    fn start() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut attempt = 0;
        loop {
            attempt += 1;
            let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
            let address = format!("127.0.0.1:{port}");
            let mut command = Command::new(PROGRAM);
            command.args(["--bind", "127.0.0.1", "--port", &port.to_string()]);
            // Nothing of it is kept.
            command.args(["--save", "", "--appendonly", "no"]).arg("--dir").arg(folder.path());
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let mut server = ChildProcess::spawn(&mut command).map_err(missing)?;
            let pid = server.id();
            match until_ready(&mut server, &address) {
                Ok(()) => {
                    let own = OwnServer { _guard: guard(pid)?, _server: server, _folder: folder };
                    let url = format!("redis://{address}");
                    return Ok(Self { url, address, pid: Some(pid), _own: Some(own) });
                }
                Err(error) if attempt == ATTEMPTS => return Err(error),
                Err(_) => pause(LOOK_EVERY)?,
            }
        }
    }

    /// The number of messages that were published by it so far.
    ///
    /// # Errors
    /// It does not answer.
    pub fn published(&self) -> Result<u64> {
        let statistics = RedisTalk::open(&self.address)?.ask(&["INFO", "commandstats"])?;
        let of_publish = statistics.lines().find_map(|line| {
            let counts = line.strip_prefix("cmdstat_publish:calls=")?;
            counts.split(',').next()?.parse().ok()
        });
        // A command that nobody has used is not listed.
        Ok(of_publish.unwrap_or(0))
    }
}

fn missing(error: io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::NotFound => RedisError::Missing.into(),
        _ => anyhow::Error::from(error).context(PROGRAM),
    }
}

/// A process that ends another one once this one has ended, however that was.
fn guard(pid: u32) -> Result<ChildProcess> {
    let mut command = Command::new("sh");
    command.args(["-c", "read -r line; kill \"$0\"", &pid.to_string()]).stdin(Stdio::piped());
    ChildProcess::spawn(&mut command).context("sh, which ends a Redis whose benchmark was killed")
}

fn until_ready(server: &mut ChildProcess, address: &str) -> Result<()> {
    let begun = Instant::now();
    loop {
        if let Some(status) = server.child().try_wait()? {
            anyhow::bail!("{PROGRAM} did not start: {status}");
        }
        match ask_whether_it_is_there(address) {
            Ok(()) => return Ok(()),
            Err(source) if begun.elapsed() > READY_WITHIN => {
                return Err(RedisError::Silent { address: address.to_owned(), source }.into());
            }
            Err(_) => pause(LOOK_EVERY)?,
        }
    }
}

fn ask_whether_it_is_there(address: &str) -> io::Result<()> {
    RedisTalk::open(address)?.ask(&["PING"]).map(drop)
}

/// A connection with a Redis, one question after the other.
pub struct RedisTalk(BufReader<TcpStream>);

impl RedisTalk {
    /// Connects.
    ///
    /// # Errors
    /// The connection fails.
    pub fn open(address: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(READY_WITHIN))?;
        Ok(Self(BufReader::new(stream)))
    }

    /// The answer to a command, which is a text or a number.
    ///
    /// # Errors
    /// It does not answer, or refuses.
    pub fn ask(&mut self, words: &[&str]) -> io::Result<String> {
        let words: Vec<_> = words.iter().map(|word| word.as_bytes()).collect();
        self.0.get_mut().write_all(&command(&words))?;
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        let (kind, text) = line.trim_end().split_at_checked(1).unwrap_or_default();
        match (kind, text.parse::<usize>()) {
            ("+" | ":", _) => Ok(text.to_owned()),
            ("$", Ok(length)) => {
                let mut bytes = vec![0; length + 2];
                self.0.read_exact(&mut bytes)?;
                Ok(String::from_utf8_lossy(&bytes[..length]).into_owned())
            }
            _ => Err(io::Error::other(format!("it answers {line:?}"))),
        }
    }
}

/// The bytes of a command.
#[must_use]
pub fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Refuses options that do not go together with two brokers.
///
/// # Errors
/// It says what is wrong with them.
pub fn check_options(options: &crate::options::Options) -> Result<()> {
    ensure!(options.serve, "--redis has two brokers of its own: give --serve");
    ensure!(
        !options.serve_auth,
        "--redis and --serve-auth do not go together: each broker has a key of its own"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_where_a_redis_is_and_no_password() {
        let at = |url: &str, address: &str| RedisChoice::At {
            url: url.to_owned(),
            address: address.to_owned(),
        };
        for (url, address) in [
            ("redis://10.0.0.1", "10.0.0.1:6379"),
            ("redis://redis.example:7000/1", "redis.example:7000"),
            ("redis://[::1]", "[::1]:6379"),
            ("redis://[::1]:7000", "[::1]:7000"),
        ] {
            assert_eq!(url.parse::<RedisChoice>().unwrap(), at(url, address));
        }
        assert_eq!("own".parse::<RedisChoice>().unwrap(), RedisChoice::Own);
        for text in ["", "127.0.0.1", "redis://", "redis://:secret@a", "rediss://a", "http://a"] {
            let refused = text.parse::<RedisChoice>().unwrap_err().to_string();
            assert!(refused.contains("redis://HOST[:PORT]"), "{refused}");
        }
    }

    #[test]
    fn a_program_that_is_missing_is_refused_with_the_way_out() {
        let refused = missing(io::Error::from(io::ErrorKind::NotFound));
        assert!(matches!(refused.downcast_ref(), Some(RedisError::Missing)), "{refused}");
        for hint in ["redis-server", "apt-get install", "--redis redis://HOST:PORT"] {
            assert!(refused.to_string().contains(hint), "{refused}");
        }
    }

    #[test]
    fn nobody_at_an_address_is_told_with_the_address() {
        // A port that was free a moment ago.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let choice: RedisChoice = format!("redis://{address}").parse().unwrap();
        let refused = Redis::of(&choice).err().unwrap().to_string();
        assert!(refused.contains(&address) && refused.contains("no Redis answers"), "{refused}");
    }
}
