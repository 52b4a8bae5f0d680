//! A webhook in this process: takes what it is told and answers as it is asked to. It knows no test.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::mpsc,
};

use serde_json::Value;

use crate::world::SOON;

/// What a webhook was told.
#[derive(Debug)]
pub struct Notice {
    pub signature: String,
    pub text: String,
    pub body: Value,
}

/// A webhook that listens.
pub struct Webhook {
    address: SocketAddr,
    notices: mpsc::Receiver<Notice>,
}

impl Webhook {
    /// One that answers in turn with these, and for ever with the last: a status and a body.
    pub fn answering(answers: &'static [(u16, &'static str)]) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, notices) = mpsc::channel();
        std::thread::spawn(move || {
            for (count, stream) in listener.incoming().enumerate() {
                let (status, body) = answers[count.min(answers.len() - 1)];
                let Ok(notice) = hear(&mut stream.unwrap(), status, body) else { continue };
                if sender.send(notice).is_err() {
                    return;
                }
            }
        });
        Self { address, notices }
    }

    pub fn url(&self) -> String {
        format!("http://{}/hook?with=query", self.address)
    }

    /// What it is told next.
    pub fn notice(&self) -> Notice {
        self.notices.recv_timeout(SOON).expect("the webhook is told nothing")
    }

    /// Whether it was told anything that nobody has looked at.
    pub fn was_told(&self) -> bool {
        self.notices.try_recv().is_ok()
    }
}

fn hear(stream: &mut TcpStream, status: u16, body: &str) -> std::io::Result<Notice> {
    stream.set_read_timeout(Some(SOON))?;
    let mut reader = BufReader::new(&mut *stream);
    let (mut signature, mut length, mut line) = (String::new(), 0, String::new());
    reader.read_line(&mut line)?;
    assert_eq!(line, "POST /hook?with=query HTTP/1.1\r\n");
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "webhook-signature" => signature = value.to_owned(),
            "content-length" => length = value.parse().unwrap(),
            _ => {}
        }
    }
    let mut text = vec![0; length];
    reader.read_exact(&mut text)?;
    let text = String::from_utf8(text).unwrap();
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status} x\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: {length}\r\n\r\n{body}"
    )?;
    Ok(Notice { signature, body: serde_json::from_str(&text).unwrap(), text })
}
