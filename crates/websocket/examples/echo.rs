//! A server that sends back each message: what a program does around the codec, with a thread for each connection.
//! The conformance suite runs against it: `conformance/autobahn/run`.
//!
//!     cargo run -p sennit-websocket --example echo -- 127.0.0.1:9001

use std::{
    env, io,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    thread,
};

use http::{Method, Version};
use sennit_websocket::{
    CloseCode, Decoder, DecoderLimits, Deflater, Incoming, Inflater, Opcode, Upgrade,
    UpgradeRefusal, WindowBits, frame,
};

/// The suite's largest messages have 16 MiB.
const LIMITS: DecoderLimits = DecoderLimits { message_bytes_max: 16 << 20 };

fn main() -> io::Result<()> {
    let address = env::args().nth(1).unwrap_or_else(|| "127.0.0.1:9001".into());
    let listener = TcpListener::bind(address)?;
    // A program that started this one reads which port it got.
    writeln!(io::stdout(), "ws://{}", listener.local_addr()?)?;
    for socket in listener.incoming() {
        let socket = socket?;
        thread::spawn(move || {
            if let Err(error) = serve(socket) {
                let _ = writeln!(io::stderr(), "a connection ended: {error}");
            }
        });
    }
    Ok(())
}

/// Reads the request, answers it, and serves the WebSocket that the connection becomes.
fn serve(mut socket: TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let mut bytes = Vec::new();
    let mut scratch = vec![0; 64 << 10];
    let (upgrade, head_bytes) = loop {
        let count = socket.read(&mut scratch)?;
        bytes.extend_from_slice(&scratch[..count]);
        match request(&bytes)? {
            Some((Ok(upgrade), head_bytes)) => break (upgrade, head_bytes),
            Some((Err(refusal), _)) => return refuse(&mut socket, refusal),
            None if count == 0 => return Ok(()),
            None => {}
        }
    };
    let mut answer = b"HTTP/1.1 101 Switching Protocols\r\n".to_vec();
    for (name, value) in upgrade.answer(None, upgrade.deflate()) {
        answer.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    answer.extend_from_slice(b"\r\n");
    socket.write_all(&answer)?;
    let window = upgrade.deflate().map(|deflate| deflate.window);
    echo(&mut socket, window, &bytes[head_bytes..], &mut scratch)
}

/// The request at the beginning of `bytes`, if it is whole, and how long it is.
fn request(bytes: &[u8]) -> io::Result<Option<(Result<Upgrade, UpgradeRefusal>, usize)>> {
    let mut lines = [httparse::EMPTY_HEADER; 32];
    let mut head = httparse::Request::new(&mut lines);
    let httparse::Status::Complete(head_bytes) = head.parse(bytes).map_err(io::Error::other)?
    else {
        return Ok(None);
    };
    let method = head.method.unwrap_or_default().as_bytes();
    let method = Method::from_bytes(method).map_err(io::Error::other)?;
    let version = if head.version == Some(1) { Version::HTTP_11 } else { Version::HTTP_10 };
    let headers = head.headers.iter().map(|line| (line.name, line.value));
    Ok(Some((Upgrade::of(&method, version, headers), head_bytes)))
}

fn refuse(socket: &mut TcpStream, refusal: UpgradeRefusal) -> io::Result<()> {
    let text = refusal.to_string();
    let length = text.len();
    write!(socket, "HTTP/1.1 {}\r\ncontent-length: {length}\r\n", refusal.status())?;
    for (name, value) in refusal.headers() {
        write!(socket, "{name}: {}\r\n", value.to_str().unwrap_or_default())?;
    }
    write!(socket, "\r\n{text}")
}

/// Sends back what comes, until the peer closes. `window` says that messages may be compressed.
fn echo(
    socket: &mut TcpStream,
    window: Option<WindowBits>,
    first: &[u8],
    scratch: &mut [u8],
) -> io::Result<()> {
    // A server has one of each for all connections of a core.
    let (mut inflater, mut deflater) = (Inflater::new(), Deflater::new());
    let mut decoder = Decoder::of_server(LIMITS, window.is_some());
    let mut out = Vec::new();
    let mut input = first;
    loop {
        let outcome = decoder.next(&mut input, &mut inflater);
        let mut send = |opcode, message: &[u8]| match window {
            Some(window) => drop(deflater.put_frame(opcode, message, window, &mut out)),
            None => frame::put_frame(opcode, message, &mut out),
        };
        match outcome {
            Ok(Some(Incoming::Text(text))) => send(Opcode::Text, text.as_bytes()),
            Ok(Some(Incoming::Binary(bytes))) => send(Opcode::Binary, &bytes),
            Ok(Some(Incoming::Ping(payload))) => frame::put_frame(Opcode::Pong, &payload, &mut out),
            Ok(Some(Incoming::Pong(_))) => {}
            Ok(Some(Incoming::Close(close))) => {
                frame::put_close(close.code.unwrap_or(CloseCode::NORMAL), "", &mut out);
                return socket.write_all(&out);
            }
            Err(fault) => {
                frame::put_close(fault.close_code(), &fault.to_string(), &mut out);
                return socket.write_all(&out);
            }
            Ok(None) => {
                socket.write_all(&out)?;
                out.clear();
                let count = socket.read(scratch)?;
                if count == 0 {
                    return Ok(());
                }
                input = &scratch[..count];
            }
        }
    }
}
