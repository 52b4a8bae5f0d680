//! A Redis of this process with as much of it as brokers use, so that tests see what they ask of it. It knows no test.

use std::{
    collections::BTreeSet,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

/// It listens until the process ends.
pub struct FakeRedis {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    clients: Vec<Client>,
    asked: Vec<String>,
    /// Messages that were published, each with the number of its client.
    published: Vec<(usize, Vec<u8>)>,
    /// Clients of which nothing is passed on.
    silent: BTreeSet<usize>,
}

impl State {
    /// The number of the client that has published something with this text in it.
    fn publisher(&self, text: &str) -> Option<usize> {
        let has_it = |message: &[u8]| message.windows(text.len()).any(|it| it == text.as_bytes());
        self.published.iter().find(|(_, message)| has_it(message)).map(|(number, _)| *number)
    }
}

struct Client {
    number: usize,
    stream: TcpStream,
    names: BTreeSet<String>,
    patterns: BTreeSet<String>,
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FakeRedis {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::<Mutex<State>>::default();
        let shared = state.clone();
        thread::spawn(move || {
            for (number, stream) in listener.incoming().map_while(Result::ok).enumerate() {
                let shared = shared.clone();
                thread::spawn(move || serve(number, stream, &shared));
            }
        });
        Self { address, state }
    }

    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Whether something with this text in it was published.
    pub fn has_published(&self, text: &str) -> bool {
        locked(&self.state).publisher(text).is_some()
    }

    /// Passes on nothing more of the client that has published something with this text in it.
    pub fn silence(&self, text: &str) {
        let mut state = locked(&self.state);
        let number = state.publisher(text).expect("somebody has published it");
        state.silent.insert(number);
    }

    /// How often this was asked: a command with its words in capitals and as they are.
    pub fn times_asked(&self, command: &str) -> usize {
        locked(&self.state).asked.iter().filter(|asked| *asked == command).count()
    }
}

/// The words of the next command; none at the end.
fn command(reader: &mut BufReader<TcpStream>) -> Option<Vec<Vec<u8>>> {
    let mut line = String::new();
    let mut number = |reader: &mut BufReader<TcpStream>, sign: char| {
        line.clear();
        reader.read_line(&mut line).ok()?;
        line.trim_end().strip_prefix(sign)?.parse::<usize>().ok()
    };
    let count = number(reader, '*')?;
    let mut words = Vec::new();
    for _ in 0..count {
        let length = number(reader, '$')?;
        let mut word = vec![0; length + 2];
        reader.read_exact(&mut word).ok()?;
        word.truncate(length);
        words.push(word);
    }
    Some(words)
}

fn push(parts: &[&[u8]], number: Option<usize>) -> Vec<u8> {
    let mut out = format!(">{}\r\n", parts.len() + usize::from(number.is_some())).into_bytes();
    for part in parts {
        out.extend(format!("${}\r\n", part.len()).bytes());
        out.extend(*part);
        out.extend(b"\r\n");
    }
    out.extend(number.map(|number| format!(":{number}\r\n")).unwrap_or_default().bytes());
    out
}

fn serve(number: usize, stream: TcpStream, state: &Mutex<State>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let client = Client { number, stream, names: BTreeSet::new(), patterns: BTreeSet::new() };
    locked(state).clients.push(client);
    while let Some(words) = command(&mut reader) {
        answer(number, &words, &mut locked(state));
    }
    locked(state).clients.retain(|client| client.number != number);
}

fn answer(number: usize, words: &[Vec<u8>], state: &mut State) {
    let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    let name = text(&words[0]).to_uppercase();
    if name != "PUBLISH" {
        let rest = words[1..].iter().map(|word| format!(" {}", text(word)));
        state.asked.push(format!("{name}{}", rest.collect::<String>()));
    }
    let mut said = Vec::new();
    match name.as_str() {
        "PUBLISH" => {
            let (channel, message) = (text(&words[1]), &words[2]);
            state.published.push((number, message.clone()));
            let is_silent = state.silent.contains(&number);
            for client in state.clients.iter_mut().filter(|_| !is_silent) {
                // One that has gone is removed by its own thread.
                if client.names.contains(&channel) {
                    let push = push(&[b"message", channel.as_bytes(), message], None);
                    let _ = client.stream.write_all(&push);
                }
                for glob in client.patterns.iter().filter(|glob| matches(glob, &channel)) {
                    let parts = [b"pmessage", glob.as_bytes(), channel.as_bytes(), message];
                    let _ = client.stream.write_all(&push(&parts, None));
                }
            }
            said.extend(b":0\r\n");
        }
        "HELLO" => said.extend(b"%1\r\n+server\r\n+redis\r\n"),
        _ => {}
    }
    let Some(client) = state.clients.iter_mut().find(|client| client.number == number) else {
        return;
    };
    let kind = name.to_lowercase();
    if kind.ends_with("subscribe") {
        let held = if kind.starts_with('p') { &mut client.patterns } else { &mut client.names };
        for channel in &words[1..] {
            match kind.contains("un") {
                true => drop(held.remove(&text(channel))),
                false => drop(held.insert(text(channel))),
            }
            said.extend(push(&[kind.as_bytes(), channel], Some(held.len())));
        }
    }
    if said.is_empty() {
        said.extend(b"+OK\r\n");
    }
    let _ = client.stream.write_all(&said);
}

/// Whether a pattern of Redis matches, as far as brokers use that: `*`, `?` and what a backslash stands before.
fn matches(glob: &str, text: &str) -> bool {
    let Some(first) = glob.chars().next() else { return text.is_empty() };
    let rest = &glob[first.len_utf8()..];
    let mut others = text.chars();
    match first {
        '*' => text.char_indices().any(|(at, _)| matches(rest, &text[at..])) || matches(rest, ""),
        '?' => others.next().is_some() && matches(rest, others.as_str()),
        '\\' => {
            let wanted = rest.chars().next();
            others.next() == wanted
                && matches(&rest[wanted.map_or(0, char::len_utf8)..], others.as_str())
        }
        first => others.next() == Some(first) && matches(rest, others.as_str()),
    }
}
