//! One request over HTTP on a connection of its own, to a broker that may be killed at any moment.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use crate::bounds::BOUND;

/// A whole answer.
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find_map(|(key, value)| key.eq_ignore_ascii_case(name).then_some(value))
    }
}

/// Asks for a path below those of streams; `None` if no whole answer came.
pub fn ask(
    http: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Option<Answer> {
    ask_at(http, method, &format!("/v1/stream/{path}"), headers, body)
}

/// Asks for a path; `None` if no whole answer came.
pub fn ask_at(
    http: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Option<Answer> {
    let (answer, is_whole) = hear(http, method, path, headers, body)?;
    is_whole.then_some(answer)
}

/// Reads a stream whose answer breaks off; `None` if it does not.
pub fn read_broken(http: &str, path: &str) -> Option<Answer> {
    let (answer, is_whole) = hear(http, "GET", &format!("/v1/stream/{path}"), &[], "")?;
    (!is_whole).then_some(answer)
}

/// Asks for a path; gives what came of the answer, and whether that is all of it.
fn hear(
    http: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Option<(Answer, bool)> {
    let mut stream = TcpStream::connect(http).ok()?;
    stream.set_read_timeout(Some(BOUND)).ok()?;
    let length = body.len();
    let mut request =
        format!("{method} {path} HTTP/1.1\r\nconnection: close\r\ncontent-length: {length}\r\n");
    if headers.iter().all(|(name, _)| *name != "host") {
        request.push_str(&format!("host: {http}\r\n"));
    }
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    stream.write_all(format!("{request}\r\n{body}").as_bytes()).ok()?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).ok()?;
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let body = bytes.split_off(end + 4);
    let mut answer = Answer { status, head, body };
    if answer.header("transfer-encoding").is_some() {
        let (body, is_whole) = of_chunks(&answer.body);
        answer.body = body;
        return Some((answer, is_whole));
    }
    let length: usize = answer.header("content-length").unwrap_or("0").parse().ok()?;
    let is_whole = answer.body.len() == length;
    Some((answer, is_whole))
}

/// A body that came in chunks, as far as it came, and whether that is all of it.
fn of_chunks(mut bytes: &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    while let Some((data, rest)) = chunk(bytes) {
        if data.is_empty() {
            return (body, true);
        }
        body.extend_from_slice(data);
        bytes = rest;
    }
    (body, false)
}

/// The first chunk, and what follows it.
fn chunk(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.windows(2).position(|window| window == b"\r\n")?;
    let size = usize::from_str_radix(std::str::from_utf8(&bytes[..end]).ok()?, 16).ok()?;
    let (data, rest) = bytes.get(end + 2..)?.split_at_checked(size)?;
    Some((data, rest.strip_prefix(b"\r\n")?))
}
