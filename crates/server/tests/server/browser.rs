//! A client of the HTTP port that says what it is told to, byte by byte.

use std::{
    io::{ErrorKind, Read, Write},
    net::SocketAddr,
};

use crate::{
    stream::{Dialing, Stream},
    world::Broker,
};

/// A connection of the HTTP port.
pub struct Browser {
    stream: Stream,
    input: Vec<u8>,
}

/// An answer: status, head and body.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Browser {
    pub fn of(broker: &Broker) -> Self {
        Self::by(broker, &broker.dialing)
    }

    pub fn by(broker: &Broker, dialing: &Dialing) -> Self {
        Self::to(broker.addresses.http, dialing)
    }

    pub fn to(http: SocketAddr, dialing: &Dialing) -> Self {
        Self { stream: dialing.dial(http), input: Vec::new() }
    }

    /// Says as much as the broker takes before it hangs up.
    pub fn say(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.stream.write_all(bytes.as_ref());
    }

    pub fn get(&mut self, path: &str) -> Answer {
        self.say(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        self.hear(true)
    }

    /// The next answer, with its body if it has one.
    pub fn hear(&mut self, has_body: bool) -> Answer {
        let head = self.until("\r\n\r\n");
        self.hear_after(&head, has_body)
    }

    /// The answer whose head was heard, with its body if it has one.
    pub fn hear_after(&mut self, head: &str, has_body: bool) -> Answer {
        let head = head.to_owned();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        if has_body && head.contains("transfer-encoding: chunked") {
            let body = self.chunks().expect("the body breaks off");
            return Answer { status, head, body };
        }
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length = if has_body { length.map_or(0, |digits| digits.parse().unwrap()) } else { 0 };
        while self.input.len() < length {
            assert!(self.read() > 0, "the body breaks off");
        }
        let body = self.input.drain(..length).collect();
        Answer { status, head, body: String::from_utf8(body).unwrap() }
    }

    /// A body that comes in chunks; `None` if it breaks off.
    pub fn chunks(&mut self) -> Option<String> {
        let (mut body, mut taken) = (Vec::new(), 0);
        loop {
            let line = self.input[taken..].windows(2).position(|end| end == b"\r\n");
            let size = line.map(|end| str::from_utf8(&self.input[taken..taken + end]).unwrap());
            let size = size.map(|digits| usize::from_str_radix(digits, 16).unwrap());
            if let (Some(line), Some(size)) = (line, size)
                && self.input.len() >= taken + line + 2 + size + 2
            {
                let data = taken + line + 2..taken + line + 2 + size;
                taken = data.end + 2;
                if size == 0 {
                    self.input.drain(..taken);
                    return Some(String::from_utf8(body).unwrap());
                }
                body.extend_from_slice(&self.input[data]);
            } else if self.read() == 0 {
                return None;
            }
        }
    }

    /// The next chunk of a body that comes in chunks; `None` behind the last, or if it breaks off.
    pub fn chunk(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(end) = self.input.windows(2).position(|end| end == b"\r\n") {
                let digits = str::from_utf8(&self.input[..end]).unwrap();
                let size = usize::from_str_radix(digits, 16).unwrap();
                if self.input.len() >= end + 2 + size + 2 {
                    let data = self.input[end + 2..end + 2 + size].to_vec();
                    self.input.drain(..end + 2 + size + 2);
                    return (size > 0).then_some(data);
                }
            }
            if self.read() == 0 {
                return None;
            }
        }
    }

    /// Everything up to these characters.
    pub fn until(&mut self, end: &str) -> String {
        let mut from = 0;
        loop {
            let mut places = self.input[from..].windows(end.len());
            if let Some(at) = places.position(|place| place == end.as_bytes()) {
                let text = self.input.drain(..from + at + end.len()).collect();
                return String::from_utf8(text).unwrap();
            }
            from = self.input.len().saturating_sub(end.len());
            assert!(self.read() > 0, "no answer comes: {:?}", String::from_utf8_lossy(&self.input));
        }
    }

    /// Everything up to the end of the connection.
    pub fn until_closed(&mut self) -> String {
        while self.read() > 0 {}
        String::from_utf8(std::mem::take(&mut self.input)).unwrap()
    }

    /// The connection, and what was read of it and not heard.
    pub fn into_parts(self) -> (Stream, Vec<u8>) {
        (self.stream, self.input)
    }

    /// Says that nothing more is said.
    pub fn send_no_more(&mut self) {
        self.stream.end();
    }

    /// Whether the broker has said all it will say.
    pub fn is_closed(&mut self) -> bool {
        self.input.is_empty() && self.read() == 0
    }

    fn read(&mut self) -> usize {
        let mut bytes = [0; 64 << 10];
        match self.stream.read(&mut bytes) {
            Ok(count) => {
                self.input.extend_from_slice(&bytes[..count]);
                count
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => 0,
            Err(error) => panic!("nothing comes: {error}"),
        }
    }
}
