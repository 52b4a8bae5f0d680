//! The reader of many topics as programs hold it: those that a pattern means, each with a reader of its
//! own, and those that appear while it reads. It knows no socket.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use sennit_model::{
    CursorName, Filter, Offset, PartitionIndex, ReadFrom, TopicName, TopicPattern, WhenSlow,
};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};

use crate::{
    auto_commit::AutoCommit,
    bell::Bell,
    error::Error,
    gap::Received,
    joining::{Joined, Joining},
    link::Link,
    pool::{POOL_BYTES, Pool},
    read_run::{ReadMessage, ReadRun},
    reader::{Reader, ReaderBuilder},
};

/// Messages on their way from one topic, unless told.
const CREDIT_MESSAGES: u32 = 8192;

/// How long after a look for commits that are due the next one is at the earliest: with very many topics a
/// look takes a while.
const LOOKS_APART: Duration = Duration::from_millis(50);

/// How the reader of a pattern is to be. Made by [`crate::Client::pattern_reader`].
#[must_use = "nothing is read before `start` is called"]
pub struct PatternReaderBuilder {
    link: Arc<Link>,
    pattern: TopicPattern,
    each: ReaderBuilder,
    held_bytes: u64,
}

impl PatternReaderBuilder {
    pub(crate) fn new(link: Arc<Link>, pattern: &TopicPattern) -> Self {
        let each = ReaderBuilder::template(Arc::clone(&link));
        let each = each.credit_messages(CREDIT_MESSAGES);
        Self { link, pattern: pattern.clone(), each, held_bytes: POOL_BYTES }
    }

    /// Where to begin in the topics that are there now; at the earliest message unless told. Those that
    /// appear later are read from their first message.
    pub fn from(mut self, from: ReadFrom) -> Self {
        self.each = self.each.from(from);
        self
    }

    /// As [`ReaderBuilder::cursor`], in each topic.
    pub fn cursor(mut self, name: &CursorName) -> Self {
        self.each = self.each.cursor(name);
        self
    }

    /// As [`ReaderBuilder::take_over`].
    pub fn take_over(mut self, take_over: bool) -> Self {
        self.each = self.each.take_over(take_over);
        self
    }

    /// As [`ReaderBuilder::auto_commit`], in each topic by itself: after so many messages of that topic, or so
    /// long after the first of it. [`PatternReader::close`] commits everything that was given.
    pub fn auto_commit(mut self, when: impl Into<AutoCommit>) -> Self {
        self.each = self.each.auto_commit(when);
        self
    }

    /// As [`ReaderBuilder::filter`].
    pub fn filter(mut self, filter: &Filter) -> Self {
        self.each = self.each.filter(filter);
        self
    }

    /// As [`ReaderBuilder::when_slow`], in each topic.
    pub fn when_slow(mut self, when_slow: WhenSlow) -> Self {
        self.each = self.each.when_slow(when_slow);
        self
    }

    /// As [`ReaderBuilder::until_end`]: it ends once each topic that was there has been read to where it
    /// ended then, and no topic joins.
    pub fn until_end(mut self, until_end: bool) -> Self {
        self.each = self.each.until_end(until_end);
        self
    }

    /// As [`ReaderBuilder::credit_messages`], for each topic; 8192 unless told.
    pub fn credit_messages(mut self, messages: u32) -> Self {
        self.each = self.each.credit_messages(messages);
        self
    }

    /// As [`ReaderBuilder::credit_bytes`], for each topic. Unless told, an equal share of
    /// [`Self::held_bytes`] among the topics that are there, at most 1 MiB and at least 4 KiB.
    pub fn credit_bytes(mut self, bytes: u64) -> Self {
        self.each = self.each.credit_bytes(bytes);
        self
    }

    /// How many bytes of all topics together may be here untaken, beside what is on its way; 256 MiB
    /// unless told. Beyond that all of them pause, until half of it is taken.
    pub fn held_bytes(mut self, bytes: u64) -> Self {
        self.held_bytes = bytes.max(1);
        self
    }

    /// Begins to read, in every topic that is there: what is published to them from then on comes.
    ///
    /// # Errors
    /// [`Error::Refused`] with `limit-reached` where the pattern means more than 65,536
    /// topics,    /// `cursor-held`, `unknown-kind` by a broker without watches and others, [`Error::Closed`], or
    /// [`Error::Unreachable`] when the client has given up.
    pub async fn start(self) -> Result<PatternReader, Error> {
        let until_end = self.each.ends();
        let bell = Arc::new(Bell::default());
        let pool = Arc::new(Pool::new(self.held_bytes));
        let each = self.each.sharing(Arc::clone(&bell), Arc::clone(&pool));
        let (mut joining, joined) = Joining::begin(self.link, &self.pattern, (each, pool)).await?;
        let mut reader = PatternReader {
            pattern: self.pattern,
            bell,
            joined,
            readers: BTreeMap::new(),
            left: BTreeSet::new(),
            current: None,
            given_by: None,
            look_at: None,
            until_end,
            has_failed: false,
        };
        for begun in joining.begin_all().await? {
            reader.add(begun);
        }
        if !until_end {
            tokio::spawn(joining.run());
        }
        Ok(reader)
    }
}

/// One who reads all topics that a pattern means, as one reader for each would: in order within a
/// partition, fairly between topics. Topics that appear while it reads join from their first message;
/// deleted ones leave. Dropping it ends it.
///
/// ```no_run
/// # async fn example(client: sennit_client::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let mut reader = client.pattern_reader(&"orders.>".parse()?).start().await?;
/// while let Some(message) = reader.next().await {
///     let message = message?;
///     println!("{} {:?}", message.topic(), message.payload());
/// }
/// # Ok(())
/// # }
/// ```
pub struct PatternReader {
    pattern: TopicPattern,
    bell: Arc<Bell>,
    joined: mpsc::Receiver<Joined>,
    readers: BTreeMap<u32, Reader>,
    /// Of the readers, those that have come to their end.
    left: BTreeSet<u32>,
    /// What is left of a run that is given message by message, and whose it is.
    current: Option<(u32, ReadRun)>,
    /// The reader that has given something last.
    given_by: Option<u32>,
    /// When to look again for commits that are due.
    look_at: Option<Instant>,
    until_end: bool,
    has_failed: bool,
}

impl PatternReader {
    /// The topics that it reads now.
    pub fn topics(&self) -> impl Iterator<Item = &TopicName> {
        self.readers.values().map(Reader::topic)
    }

    /// The next messages of one partition of one topic, as many as came together, or a gap there, with the
    /// topic's name; `None` once it has ended. May be cancelled without loss.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub async fn receive_run(&mut self) -> Option<Result<(TopicName, Received<ReadRun>), Error>> {
        self.commit_if_due();
        let (number, received) = match self.current.take() {
            Some((number, rest)) if rest.count() > 0 => (number, Received::Delivered(rest)),
            _ => match self.take().await? {
                Ok(taken) => taken,
                Err(error) => return Some(Err(error)),
            },
        };
        self.has_given(number, |reader| reader.given(&received));
        let topic = match &received {
            Received::Delivered(run) => run.topic().clone(),
            Received::Gap(_) => self.readers.get(&number)?.topic().clone(),
        };
        Some(Ok((topic, received)))
    }

    /// What comes next, and by which reader. Nothing is lost if it is cancelled.
    async fn take(&mut self) -> Option<Result<(u32, Received<ReadRun>), Error>> {
        while !self.has_failed {
            while let Ok(joined) = self.joined.try_recv() {
                match joined {
                    Ok(begun) => self.add(begun),
                    Err(error) => return self.fails(error),
                }
            }
            let Some(number) = self.bell.answer() else {
                // What they held may have gone with a topic.
                if let Some(reader) = self.readers.values().next() {
                    reader.have_pool_go_on();
                }
                if self.until_end && self.left.len() == self.readers.len() {
                    return None;
                }
                tokio::select! {
                    () = self.bell.rung() => {}
                    () = until(self.look_at) => self.commit_if_due(),
                    joined = self.joined.recv(), if !self.until_end => match joined {
                        Some(Ok(begun)) => self.add(begun),
                        Some(Err(error)) => return self.fails(error),
                        // The client is closed; what has come is given first.
                        None if self.readers.is_empty() => return None,
                        None => self.until_end = true,
                    },
                }
                continue;
            };
            let Some(reader) = self.readers.get_mut(&number) else { continue };
            let received = reader.receive_now();
            if self.look_at.is_none() {
                // A filter may have passed over something.
                self.look_at = reader.look_at();
            }
            match received {
                Some(Some(Ok(received))) => {
                    // There may be more, behind what others have.
                    self.bell.ring(number);
                    return Some(Ok((number, received)));
                }
                // Nothing of it can be committed any more.
                Some(Some(Err(error))) if error.is_unknown_topic() => {
                    self.readers.remove(&number);
                }
                Some(Some(Err(error))) => return self.fails(error),
                Some(None) => self.leave(number),
                None => {}
            }
        }
        None
    }

    fn add(&mut self, reader: Reader) {
        let number = reader.number();
        self.readers.insert(number, reader);
        // What came before it was here.
        self.bell.ring(number);
    }

    /// A reader has nothing more: it is kept where it has something to commit.
    fn leave(&mut self, number: u32) {
        if self.until_end {
            self.left.insert(number);
        } else {
            self.readers.remove(&number);
        }
    }

    fn fails<T>(&mut self, error: Error) -> Option<Result<T, Error>> {
        self.has_failed = true;
        Some(Err(error))
    }

    /// The next message, which names its topic; `None` once it has ended. Gaps are logged as warnings and
    /// passed over; [`Self::receive_run`] tells of them. May be cancelled without loss.
    ///
    /// # Errors
    /// [`Error::Refused`] when another has the cursor of a topic, or more topics are there than may be,
    /// [`Error::Unreachable`] when the client has given up. Each is followed by `None`.
    pub async fn next(&mut self) -> Option<Result<ReadMessage, Error>> {
        self.commit_if_due();
        loop {
            if let Some((number, run)) = &mut self.current
                && let Some(message) = run.take_first()
            {
                let number = *number;
                let (partition, end) = (message.partition(), message.offset().0 + 1);
                self.has_given(number, |reader| reader.has_given(partition, end, 1));
                return Some(Ok(message));
            }
            self.current = None;
            match self.take().await? {
                Ok((number, Received::Delivered(run))) => self.current = Some((number, run)),
                Ok((number, Received::Gap(gap))) => {
                    let topic = self.readers.get(&number).map(Reader::topic);
                    tracing::warn!(topic = topic.map(TopicName::as_str), pattern = %self.pattern, "{gap}");
                    self.has_given(number, |reader| reader.given(&Received::Gap(gap)));
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }

    fn has_given(&mut self, number: u32, note: impl FnOnce(&mut Reader)) {
        // It may have left with its topic since.
        let Some(reader) = self.readers.get_mut(&number) else { return };
        note(reader);
        self.given_by = Some(number);
        if self.look_at.is_none() {
            self.look_at = reader.look_at();
        }
    }

    /// Commits what was given before, where it is time.
    fn commit_if_due(&mut self) {
        if let Some(reader) = self.given_by.and_then(|number| self.readers.get_mut(&number)) {
            reader.commit_if_due();
        }
        if self.look_at.is_some_and(|at| at <= Instant::now()) {
            self.readers.values_mut().for_each(Reader::commit_if_due);
            let next = self.readers.values().filter_map(Reader::look_at).min();
            self.look_at = next.map(|at| at.max(Instant::now() + LOOKS_APART));
        }
    }

    /// As [`Reader::uncommitted`], of every topic that it reads.
    pub fn uncommitted(&self) -> impl Iterator<Item = (&TopicName, PartitionIndex, Offset)> {
        self.readers.values().flat_map(|reader| {
            reader.uncommitted().map(|(partition, offset)| (reader.topic(), partition, offset))
        })
    }

    /// As [`Reader::commit_no_further`], in a topic that it reads.
    pub fn commit_no_further(
        &mut self,
        topic: &TopicName,
        partition: PartitionIndex,
        offset: Offset,
    ) {
        for reader in self.readers.values_mut().filter(|reader| reader.topic() == topic) {
            reader.commit_no_further(partition, offset);
        }
    }

    /// As [`Reader::commit`], in every topic where anything was given.
    ///
    /// # Errors
    /// The first error; the others are committed all the same.
    pub async fn commit(&mut self) -> Result<(), Error> {
        let mut committed = Ok(());
        for reader in self.readers.values_mut() {
            committed = committed.and(reader.commit().await);
        }
        committed
    }

    /// As [`Reader::close`], in every topic.
    ///
    /// # Errors
    /// The first error; the others are ended all the same.
    pub async fn close(self) -> Result<(), Error> {
        let mut closed = Ok(());
        for reader in self.readers.into_values() {
            closed = closed.and(reader.close().await);
        }
        closed
    }
}

/// Waits until then; without a time, for ever.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
