//! The recorder: each call of a client becomes an operation of the history, with the instants of one clock. It makes the
//! payload of each message from the message's name, so that a payload says by itself which message it is.

use std::{
    cell::{Cell, RefCell},
    fs::File,
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Instant,
};

use sennit_history::{Answer, Content, Delivered, History, MessageName, What};

/// The longest filler of a message.
const FILLER_BYTES_MAX: u64 = 300;

/// One message of so many is long.
const LONG_ONE_OF: u64 = 200;

const LONG_FILLER_BYTES_MAX: u64 = 60_000;

/// The clock of a history, and the faults that were made meanwhile, by whichever thread.
#[derive(Clone)]
pub struct Diary {
    clock: Instant,
    faults: Arc<Mutex<Vec<(u64, String)>>>,
}

impl Diary {
    /// One that begins now.
    pub fn begin() -> Self {
        Self { clock: Instant::now(), faults: Arc::default() }
    }

    /// Nanoseconds since it began.
    pub fn now_ns(&self) -> u64 {
        u64::try_from(self.clock.elapsed().as_nanos()).unwrap()
    }

    /// Notes a fault, or its end.
    pub fn note(&self, fault: String) {
        self.faults.lock().unwrap().push((self.now_ns(), fault));
    }
}

/// The history that grows.
pub struct Recorder {
    pub diary: Diary,
    history: RefCell<History>,
    /// The next number of a client, publisher, reader or consumer.
    next: Cell<u32>,
    confirmed: Cell<u64>,
    /// How many first attempts each group has received.
    delivered: RefCell<Vec<u64>>,
}

impl Recorder {
    /// An empty one.
    pub fn new(diary: Diary) -> Self {
        Self {
            diary,
            history: RefCell::default(),
            next: Cell::new(0),
            confirmed: Cell::new(0),
            delivered: RefCell::default(),
        }
    }

    /// A number that nobody else of this history has.
    pub fn number(&self) -> u32 {
        let number = self.next.get();
        self.next.set(number + 1);
        number
    }

    /// The instant, before a call.
    pub fn now_ns(&self) -> u64 {
        self.diary.now_ns()
    }

    /// Records a call that was answered just now. A publish whose outcome is unknown has no end.
    pub fn add(&self, process: u32, begun_ns: u64, what: What) {
        let is_open =
            matches!(&what, What::Published(published) if published.answer == Answer::Unknown);
        let ended_ns = (!is_open).then(|| self.now_ns());
        match &what {
            What::Published(published) if matches!(published.answer, Answer::Confirmed(_)) => {
                self.confirmed.set(self.confirmed.get() + u64::from(published.count));
            }
            What::Delivered(Delivered { group, contents, attempt: 1, .. }) => {
                let mut delivered = self.delivered.borrow_mut();
                let needed = delivered.len().max(*group as usize + 1);
                delivered.resize(needed, 0);
                delivered[*group as usize] += contents.len() as u64;
            }
            _ => {}
        }
        self.history.borrow_mut().add(process, begun_ns, ended_ns, what);
    }

    /// How many confirmed messages the slowest group has not received, about: some may have come again.
    pub fn backlog(&self) -> u64 {
        let delivered = self.delivered.borrow().iter().copied().min().unwrap_or(0);
        self.confirmed.get().saturating_sub(delivered)
    }

    /// The history so far.
    pub fn history(&self) -> History {
        self.history.borrow().clone()
    }

    /// Writes the history to a file of this name, and the faults beside it. Returns the path.
    pub fn write(&self, name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("{name}.history"));
        let written = self.write_to(&path).map(|()| path.clone());
        written.unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    fn write_to(&self, path: &Path) -> io::Result<()> {
        self.history.borrow().write(BufWriter::new(File::create(path)?))?;
        let mut faults = BufWriter::new(File::create(path.with_extension("faults"))?);
        for (at_ns, fault) in self.diary.faults.lock().unwrap().iter() {
            writeln!(faults, "{at_ns} {fault}")?;
        }
        faults.flush()
    }
}

fn hash_of(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The payload of a message.
pub fn payload_of(name: MessageName) -> Vec<u8> {
    let hash = hash_of(name);
    let bytes_max = match hash.is_multiple_of(LONG_ONE_OF) {
        true => LONG_FILLER_BYTES_MAX,
        false => FILLER_BYTES_MAX,
    };
    let filler = "x".repeat((hash / LONG_ONE_OF % bytes_max) as usize);
    format!("{} {} {filler}", name.publisher, name.number).into_bytes()
}

/// The message that a payload is, if it is one from its first byte to its last.
pub fn content_of(payload: &[u8]) -> Content {
    let name = || {
        let mut words = std::str::from_utf8(payload).ok()?.split(' ');
        let publisher = words.next()?.parse().ok()?;
        Some(MessageName { publisher, number: words.next()?.parse().ok()? })
    };
    match name().filter(|&name| payload_of(name) == payload) {
        Some(name) => Content::Message(name),
        None => Content::Foreign(hash_of(payload)),
    }
}

#[test]
fn a_payload_names_its_message_and_a_changed_one_names_none() {
    for number in 0..1000 {
        let name = MessageName { publisher: 7, number };
        let mut payload = payload_of(name);
        assert_eq!(content_of(&payload), Content::Message(name));
        *payload.last_mut().unwrap() ^= 1;
        assert!(matches!(content_of(&payload), Content::Foreign(_)), "{name:?}");
    }
}
