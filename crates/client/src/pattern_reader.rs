//! The pattern reader: reads all topics that match a pattern, with one reader for each, and adds readers for topics
//! that appear. It knows no socket.

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
    connection_handle::ConnectionHandle,
    error::Error,
    gap::Received,
    pattern_watch::{NewReader, PatternWatch},
    pool::{POOL_BYTES, Pool},
    read_run::{ReadMessage, ReadRun},
    reader::{Reader, ReaderBuilder},
    ready_list::ReadyList,
};

/// Default window of one topic, in messages.
const CREDIT_MESSAGES: u32 = 8192;

/// The shortest time between two checks for due commits, because a check of very many topics takes
/// a while.
const COMMIT_CHECK_SPACING: Duration = Duration::from_millis(50);

/// The settings of a pattern reader. Made by [`crate::Client::pattern_reader`].
#[must_use = "nothing is read before `start` is called"]
pub struct PatternReaderBuilder {
    connection: Arc<ConnectionHandle>,
    pattern: TopicPattern,
    builder: ReaderBuilder,
    held_bytes: u64,
}

impl PatternReaderBuilder {
    pub(crate) fn new(connection: Arc<ConnectionHandle>, pattern: &TopicPattern) -> Self {
        let builder = ReaderBuilder::template(Arc::clone(&connection));
        let builder = builder.credit_messages(CREDIT_MESSAGES);
        Self { connection, pattern: pattern.clone(), builder, held_bytes: POOL_BYTES }
    }

    /// Where to begin in the topics that exist now; default the earliest message. Topics that
    /// appear later are read from their first message.
    pub fn from(mut self, from: ReadFrom) -> Self {
        self.builder = self.builder.from(from);
        self
    }

    /// As [`ReaderBuilder::cursor`], in each topic.
    pub fn cursor(mut self, name: &CursorName) -> Self {
        self.builder = self.builder.cursor(name);
        self
    }

    /// As [`ReaderBuilder::take_over`].
    pub fn take_over(mut self, take_over: bool) -> Self {
        self.builder = self.builder.take_over(take_over);
        self
    }

    /// As [`ReaderBuilder::auto_commit`], for each topic by itself: after a number of messages of
    /// that topic, or a time after the first of them. [`PatternReader::close`] commits all messages
    /// that the program has received.
    pub fn auto_commit(mut self, when: impl Into<AutoCommit>) -> Self {
        self.builder = self.builder.auto_commit(when);
        self
    }

    /// As [`ReaderBuilder::filter`].
    pub fn filter(mut self, filter: &Filter) -> Self {
        self.builder = self.builder.filter(filter);
        self
    }

    /// As [`ReaderBuilder::when_slow`], in each topic.
    pub fn when_slow(mut self, when_slow: WhenSlow) -> Self {
        self.builder = self.builder.when_slow(when_slow);
        self
    }

    /// As [`ReaderBuilder::until_end`]: the reader stops at the end that each existing topic had
    /// when it began, and adds no topics.
    pub fn until_end(mut self, until_end: bool) -> Self {
        self.builder = self.builder.until_end(until_end);
        self
    }

    /// As [`ReaderBuilder::credit_messages`], for each topic; default 8192.
    pub fn credit_messages(mut self, messages: u32) -> Self {
        self.builder = self.builder.credit_messages(messages);
        self
    }

    /// As [`ReaderBuilder::credit_bytes`], for each topic. The default is an equal share of
    /// [`Self::held_bytes`] among the existing topics, at most 1 MiB and at least 4 KiB.
    pub fn credit_bytes(mut self, bytes: u64) -> Self {
        self.builder = self.builder.credit_bytes(bytes);
        self
    }

    /// How many bytes of all topics together may wait in the client; default 256 MiB. Beyond that
    /// all readers pause, until the program has taken half of them. Frames that are on their way
    /// come in addition.
    pub fn held_bytes(mut self, bytes: u64) -> Self {
        self.held_bytes = bytes.max(1);
        self
    }

    /// Starts a reader for each topic that exists. All messages that are published to them from
    /// then on are read.
    ///
    /// # Errors
    /// [`Error::Refused`] with `limit-reached` if more than 65,536 topics match the pattern, with
    /// `cursor-held`, with `unknown-kind` by a broker without watches, and others;
    /// [`Error::Closed`], or [`Error::Unreachable`] when the client has given up.
    pub async fn start(self) -> Result<PatternReader, Error> {
        let until_end = self.builder.ends();
        let ready = Arc::new(ReadyList::default());
        let pool = Arc::new(Pool::new(self.held_bytes));
        let builder = self.builder.sharing(Arc::clone(&ready), Arc::clone(&pool));
        let (mut pattern_watch, new_readers) =
            PatternWatch::start(self.connection, &self.pattern, builder, pool).await?;
        let mut reader = PatternReader {
            pattern: self.pattern,
            ready,
            new_readers,
            readers: BTreeMap::new(),
            ended: BTreeSet::new(),
            current: None,
            last_reader: None,
            commit_check_at: None,
            until_end,
            has_failed: false,
        };
        for started in pattern_watch.start_all().await? {
            reader.add(started);
        }
        if !until_end {
            tokio::spawn(pattern_watch.run());
        }
        Ok(reader)
    }
}

/// Reads all topics that match a pattern: in order within each partition, and fairly between
/// topics. Topics that appear are added and read from their first message; deleted topics are
/// removed. Dropping the pattern reader ends it.
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
    ready: Arc<ReadyList>,
    new_readers: mpsc::Receiver<NewReader>,
    readers: BTreeMap<u32, Reader>,
    /// The readers that have reached their end.
    ended: BTreeSet<u32>,
    /// The rest of a run that is returned message by message, and the number of its reader.
    current: Option<(u32, ReadRun)>,
    /// The reader of the last item.
    last_reader: Option<u32>,
    /// The time of the next check for due commits.
    commit_check_at: Option<Instant>,
    until_end: bool,
    has_failed: bool,
}

impl PatternReader {
    /// The topics that it reads now.
    pub fn topics(&self) -> impl Iterator<Item = &TopicName> {
        self.readers.values().map(Reader::topic)
    }

    /// The next messages of one partition of one topic that came together, or a gap there, with the
    /// topic's name; `None` after the end. May be cancelled without loss.
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
        self.note_delivered(number, |reader| reader.note_received(&received));
        let topic = match &received {
            Received::Delivered(run) => run.topic().clone(),
            Received::Gap(_) => self.readers.get(&number)?.topic().clone(),
        };
        Some(Ok((topic, received)))
    }

    /// The next item and the number of its reader. May be cancelled without loss.
    async fn take(&mut self) -> Option<Result<(u32, Received<ReadRun>), Error>> {
        while !self.has_failed {
            while let Ok(new_readers) = self.new_readers.try_recv() {
                match new_readers {
                    Ok(started) => self.add(started),
                    Err(error) => return self.fails(error),
                }
            }
            let Some(number) = self.ready.pop() else {
                // A deleted topic may have freed the pool.
                if let Some(reader) = self.readers.values().next() {
                    reader.resume_pool();
                }
                if self.until_end && self.ended.len() == self.readers.len() {
                    return None;
                }
                tokio::select! {
                    () = self.ready.notified() => {}
                    () = until(self.commit_check_at) => self.commit_if_due(),
                    new_readers = self.new_readers.recv(), if !self.until_end => match new_readers {
                        Some(Ok(started)) => self.add(started),
                        Some(Err(error)) => return self.fails(error),
                        // The client is closed; items that have come are returned first.
                        None if self.readers.is_empty() => return None,
                        None => self.until_end = true,
                    },
                }
                continue;
            };
            let Some(reader) = self.readers.get_mut(&number) else { continue };
            let received = reader.receive_now();
            if self.commit_check_at.is_none() {
                // A filter may have skipped messages.
                self.commit_check_at = reader.commit_check_at();
            }
            match received {
                Some(Some(Ok(received))) => {
                    // There may be more, behind the items of other readers.
                    self.ready.notify(number);
                    return Some(Ok((number, received)));
                }
                // No commit is possible in a deleted topic.
                Some(Some(Err(error))) if error.is_unknown_topic() => {
                    self.readers.remove(&number);
                }
                Some(Some(Err(error))) => return self.fails(error),
                Some(None) => self.end_reader(number),
                None => {}
            }
        }
        None
    }

    fn add(&mut self, reader: Reader) {
        let number = reader.next_number();
        self.readers.insert(number, reader);
        // Items may have come before the reader was added.
        self.ready.notify(number);
    }

    /// Handles a reader that has ended. It is kept if it may have something to commit.
    fn end_reader(&mut self, number: u32) {
        if self.until_end {
            self.ended.insert(number);
        } else {
            self.readers.remove(&number);
        }
    }

    fn fails<T>(&mut self, error: Error) -> Option<Result<T, Error>> {
        self.has_failed = true;
        Some(Err(error))
    }

    /// The next message, which names its topic; `None` after the end. Gaps are logged as warnings
    /// and skipped; [`Self::receive_run`] returns them. May be cancelled without loss.
    ///
    /// # Errors
    /// [`Error::Refused`] when another reader has taken the cursor of a topic, or when too many
    /// topics match, [`Error::Unreachable`] when the client has given up. Each is followed by
    /// `None`.
    pub async fn next(&mut self) -> Option<Result<ReadMessage, Error>> {
        self.commit_if_due();
        loop {
            if let Some((number, run)) = &mut self.current
                && let Some(message) = run.take_first()
            {
                let number = *number;
                let (partition, end) = (message.partition(), message.offset().0 + 1);
                self.note_delivered(number, |reader| reader.note_delivered(partition, end, 1));
                return Some(Ok(message));
            }
            self.current = None;
            match self.take().await? {
                Ok((number, Received::Delivered(run))) => self.current = Some((number, run)),
                Ok((number, Received::Gap(gap))) => {
                    let topic = self.readers.get(&number).map(Reader::topic);
                    tracing::warn!(topic = topic.map(TopicName::as_str), pattern = %self.pattern, "{gap}");
                    self.note_delivered(number, |reader| reader.note_received(&Received::Gap(gap)));
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }

    fn note_delivered(&mut self, number: u32, note: impl FnOnce(&mut Reader)) {
        // The reader may have been removed with its topic.
        let Some(reader) = self.readers.get_mut(&number) else { return };
        note(reader);
        self.last_reader = Some(number);
        if self.commit_check_at.is_none() {
            self.commit_check_at = reader.commit_check_at();
        }
    }

    /// Sends the commits that are due.
    fn commit_if_due(&mut self) {
        if let Some(reader) = self.last_reader.and_then(|number| self.readers.get_mut(&number)) {
            reader.commit_if_due();
        }
        if self.commit_check_at.is_some_and(|at| at <= Instant::now()) {
            self.readers.values_mut().for_each(Reader::commit_if_due);
            let next = self.readers.values().filter_map(Reader::commit_check_at).min();
            self.commit_check_at = next.map(|at| at.max(Instant::now() + COMMIT_CHECK_SPACING));
        }
    }

    /// As [`Reader::uncommitted`], for all topics that it reads.
    pub fn uncommitted(&self) -> impl Iterator<Item = (&TopicName, PartitionIndex, Offset)> {
        self.readers.values().flat_map(|reader| {
            reader.uncommitted().map(|(partition, offset)| (reader.topic(), partition, offset))
        })
    }

    /// As [`Reader::commit_no_further`], for a topic that it reads.
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

    /// As [`Reader::commit`], for all topics from which messages came.
    ///
    /// # Errors
    /// The first error; the other commits are made all the same.
    pub async fn commit(&mut self) -> Result<(), Error> {
        let mut committed = Ok(());
        for reader in self.readers.values_mut() {
            committed = committed.and(reader.commit().await);
        }
        committed
    }

    /// As [`Reader::close`], for all topics.
    ///
    /// # Errors
    /// The first error; the other readers are closed all the same.
    pub async fn close(self) -> Result<(), Error> {
        let mut closed = Ok(());
        for reader in self.readers.into_values() {
            closed = closed.and(reader.close().await);
        }
        closed
    }
}

/// Waits until this time; without a time, for ever.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
