//! The reader: reads a topic by offset, in order within each partition. Messages are not settled. It knows no
//! socket.

use std::sync::Arc;

use sennit_model::{
    CursorName, Filter, Offset, PartitionIndex, ReadFrom, TopicName, WhenSlow,
    limits::{CREDIT_BYTES_MAX, CREDIT_MESSAGES_MAX},
};
use sennit_protocol::{GapReason, Reply, Request, Taken, control};
use tokio::{sync::oneshot, time::Instant};

use crate::{
    auto_commit::{AutoCommit, AutoCommits, CommitOffsets},
    connection_handle::{Command, ConnectionHandle},
    error::Error,
    gap::{Gap, Received},
    pool::Pool,
    read_range::ReadRange,
    read_run::{ReadMessage, ReadRun},
    reader_queue::{ReaderQueue, Share},
    ready_list::ReadyList,
};

/// A reader reports taken messages once they are this fraction of the window: a half. A report
/// costs both ends some microseconds, whatever its size.
const REPORT_FRACTION: u64 = 2;

/// The settings of a reader. Made by [`crate::Client::reader`].
#[derive(Clone)]
#[must_use = "nothing is read before `start` is called"]
pub struct ReaderBuilder {
    connection: Arc<ConnectionHandle>,
    read: control::Read,
    until_end: bool,
    auto: Option<AutoCommit>,
    /// The ready list and the pool of a pattern reader, which takes from many readers.
    shared: Option<(Arc<ReadyList>, Arc<Pool>)>,
}

impl ReaderBuilder {
    pub(crate) fn new(connection: Arc<ConnectionHandle>, topic: &TopicName) -> Self {
        let template = Self::template(connection);
        Self { read: control::Read { topic: topic.to_string(), ..template.read }, ..template }
    }

    /// Settings without a topic, for [`Self::of_topic`].
    pub(crate) fn template(connection: Arc<ConnectionHandle>) -> Self {
        let read = control::Read { credit_messages: 65_536, ..control::Read::default() };
        Self { connection, read, until_end: false, auto: None, shared: None }
    }

    /// The same settings for a topic with this number.
    pub(crate) fn of_topic(&self, topic: &TopicName, id: u32) -> Self {
        let Self { connection, read, until_end, auto, shared } = self.clone();
        let read = control::Read { topic: topic.to_string(), topic_id: Some(id), ..read };
        Self { connection, read, until_end, auto, shared }
    }

    /// Returns whether the reader stops at the end.
    pub(crate) fn ends(&self) -> bool {
        self.until_end
    }

    /// Makes the reader use a shared ready list and pool.
    pub(crate) fn sharing(self, ready_list: Arc<ReadyList>, pool: Arc<Pool>) -> Self {
        Self { shared: Some((ready_list, pool)), ..self }
    }

    /// Sets the window in bytes, unless the program has set one.
    pub(crate) fn default_window(mut self, bytes: u64) -> Self {
        if self.read.credit_bytes == 0 {
            self.read.credit_bytes = bytes;
        }
        self
    }

    /// Where to begin in each partition; default the earliest message.
    pub fn from(mut self, from: ReadFrom) -> Self {
        self.read.from = Some(from.into());
        self
    }

    /// Where to begin in one partition, whatever [`Self::from`] says: for programs that keep their
    /// own offsets.
    pub fn at(mut self, partition: PartitionIndex, offset: Offset) -> Self {
        let position = control::ReadPosition { partition: partition.0, offset: offset.0 };
        self.read.positions.retain(|held| held.partition != partition.0);
        self.read.positions.push(position);
        self
    }

    /// Reads with a named cursor. The reader begins at the cursor; in partitions where the cursor
    /// was never set it begins as [`Self::from`] says. [`Reader::commit`] moves the cursor. The
    /// reader owns the cursor until it ends.
    pub fn cursor(mut self, name: &CursorName) -> Self {
        self.read.cursor = Some(name.to_string());
        self
    }

    /// Whether to take the cursor from a reader that holds it, which then ends. By default this
    /// reader is refused as `cursor-held`.
    pub fn take_over(mut self, take_over: bool) -> Self {
        self.read.take_over = take_over;
        self
    }

    /// With [`Self::cursor`]: the reader commits by itself, after a number of messages or a time
    /// ([`AutoCommit`], a count or a [`std::time::Duration`]). A commit covers the messages that
    /// were returned before the last call of [`Reader::next`] or its variants, as the program is
    /// then done with them. So each message is delivered at least once, and after a crash
    /// uncommitted ones are delivered again. [`Reader::close`] commits all returned messages. One
    /// commit is under way at a time; a failed one is logged, and the next makes up for it.
    pub fn auto_commit(mut self, when: impl Into<AutoCommit>) -> Self {
        self.auto = Some(when.into());
        self
    }

    /// The behaviour of a reader that had reached the newest message and then falls behind by more
    /// than 16 MiB: it receives everything late (the default), it skips messages and receives a
    /// [`Gap`] for them, or it ends with `slow-consumer`.
    pub fn when_slow(mut self, when_slow: WhenSlow) -> Self {
        self.read.set_when_slow(when_slow.into());
        self
    }

    /// The messages to receive; default all. The broker skips the others, which costs neither
    /// network nor window.
    pub fn filter(mut self, filter: &Filter) -> Self {
        self.read.filter = Some(filter.to_string());
        self
    }

    /// Whether to stop at the end that the topic had when the reader began, instead of waiting for
    /// more.
    pub fn until_end(mut self, until_end: bool) -> Self {
        self.until_end = until_end;
        self
    }

    /// How many messages may be on their way or waiting in the client, 1 to 1,000,000; default
    /// 65,536. With several partitions each gets a share, and at least one message.
    pub fn credit_messages(mut self, messages: u32) -> Self {
        self.read.credit_messages = messages.clamp(1, CREDIT_MESSAGES_MAX);
        self
    }

    /// How many bytes of encoded messages may be on their way or waiting in the client, at most 256
    /// MiB. The broker sends at least one message of each partition. If the client holds 8 MiB more
    /// than this, it pauses the reader until half of the window is free. The default is the amount
    /// that a line of 10 Gbit/s carries in two round trips, which are measured on each connection:
    /// at least 512 KiB, at least 128 KiB for each partition, and at most 8 MiB.
    pub fn credit_bytes(mut self, bytes: u64) -> Self {
        self.read.credit_bytes = bytes.clamp(1, CREDIT_BYTES_MAX);
        self
    }

    /// Starts the reader.
    ///
    /// # Errors
    /// [`Error::Refused`] with `unknown-topic`, with `unknown-kind` by a broker without readers,
    /// cursors or filters, and others; [`Error::Closed`], or [`Error::Unreachable`] when the client
    /// has given up.
    pub async fn start(mut self) -> Result<Reader, Error> {
        // Subscription numbers wrap after four thousand million; none lives that long.
        let subscription = self.connection.next_number() as u32;
        self.read.subscription = subscription;
        let queue = match self.shared {
            Some((ready_list, pool)) => ReaderQueue::of_pool(ready_list, pool, subscription),
            None => ReaderQueue::default(),
        };
        let queue = Arc::new(queue);
        // Made first: if this call is cancelled, dropping it ends the subscription.
        let mut reader = Reader {
            connection: self.connection,
            topic: self.read.topic.parse().expect("it was a name when it was given"),
            subscription,
            queue,
            ranges: Vec::new(),
            share: Share::default(),
            current: None,
            epoch: 0,
            taken: Vec::new(),
            at: Vec::new(),
            until_end: self.until_end,
            cursor: self.read.cursor.clone(),
            done: CommitOffsets::new(),
            limits: CommitOffsets::new(),
            auto: self.auto.filter(|_| self.read.cursor.is_some()).map(AutoCommits::new),
            closed: false,
        };
        let (read, queue) = (self.read, Arc::clone(&reader.queue));
        let command = |answer| Command::Read { read, queue, answer };
        reader.ranges = reader.connection.call(command).await?;
        reader.share = reader.queue.share();
        reader.taken = vec![Share::default(); reader.ranges.len()];
        reader.at = reader.ranges.iter().map(|range| range.first.0).collect();
        Ok(reader)
    }
}

/// Reads a topic by offset: all messages that the topic keeps, of all partitions, in order within
/// each partition. Any number of readers may read the same messages; nothing is leased, settled or
/// remembered for them. After a lost connection the reader continues behind the last message that
/// came, without a gap or a repetition. Dropping it ends the subscription.
///
/// ```no_run
/// # async fn example(client: sennit_client::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use sennit_client::ReadFrom;
///
/// let mut reader = client.reader(&"orders".parse()?).from(ReadFrom::Last(100)).start().await?;
/// while let Some(message) = reader.next().await {
///     let message = message?;
///     println!("{} {:?}", message.offset(), message.payload());
/// }
/// # Ok(())
/// # }
/// ```
pub struct Reader {
    connection: Arc<ConnectionHandle>,
    topic: TopicName,
    subscription: u32,
    queue: Arc<ReaderQueue>,
    ranges: Vec<ReadRange>,
    current: Option<ReadRun>,
    /// The connection on which `taken` is reported.
    epoch: u64,
    /// Each partition's share of the window on that connection.
    share: Share,
    /// The part of it that was taken and not reported, by partition.
    taken: Vec<Share>,
    /// The next offset of each partition.
    at: Vec<u64>,
    /// Whether the reader stops at the end of its ranges.
    until_end: bool,
    cursor: Option<String>,
    /// For each partition the offset behind the messages that the program has received and not
    /// committed.
    done: CommitOffsets,
    /// For each partition the offset that commits do not exceed.
    limits: CommitOffsets,
    auto: Option<AutoCommits>,
    closed: bool,
}

impl Reader {
    /// The topic.
    #[must_use]
    pub fn topic(&self) -> &TopicName {
        &self.topic
    }

    pub(crate) fn next_number(&self) -> u32 {
        self.subscription
    }

    /// As [`Self::receive_run`] without waiting: `None` if no item is here yet. The caller reports
    /// items that it returns to the program with [`Self::note_received`] or
    /// [`Self::note_delivered`].
    pub(crate) fn receive_now(&mut self) -> Option<Option<Result<Received<ReadRun>, Error>>> {
        loop {
            if self.has_reached_end() {
                return Some(None);
            }
            let (epoch, received) = match self.queue.next_now()? {
                Some(Ok(item)) => item,
                Some(Err(error)) => return Some(Some(Err(error))),
                None => return Some(None),
            };
            if let Some(received) = self.track(epoch, received) {
                return Some(Some(Ok(received)));
            }
        }
    }

    /// Notes an item that the program receives, for the cursor.
    pub(crate) fn note_received(&mut self, received: &Received<ReadRun>) {
        match received {
            Received::Delivered(run) => {
                let count = u64::from(run.count());
                self.note_delivered(run.partition(), run.first_offset().0 + count, count);
            }
            Received::Gap(gap) => self.note_delivered(gap.partition, gap.offsets.end.0, 0),
        }
    }

    /// The range at which the reader began in each partition, by index.
    #[must_use]
    pub fn ranges(&self) -> &[ReadRange] {
        &self.ranges
    }

    /// The next message or gap, in order within each partition; `None` once the subscription has
    /// ended. Each gap comes once. May be cancelled without loss.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub async fn receive(&mut self) -> Option<Result<Received<ReadMessage>, Error>> {
        self.commit_if_due();
        loop {
            if let Some(current) = &mut self.current {
                if let Some(message) = current.take_first() {
                    self.note_delivered(message.partition(), message.offset().0 + 1, 1);
                    return Some(Ok(Received::Delivered(message)));
                }
                self.current = None;
            }
            match self.take().await? {
                Ok(Received::Delivered(run)) => self.current = Some(run),
                Ok(Received::Gap(gap)) => {
                    self.note_delivered(gap.partition, gap.offsets.end.0, 0);
                    return Some(Ok(Received::Gap(gap)));
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// As [`Self::receive`], for all messages of one partition that came together.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub async fn receive_run(&mut self) -> Option<Result<Received<ReadRun>, Error>> {
        self.commit_if_due();
        let received = match self.current.take() {
            Some(rest) if rest.count() > 0 => Ok(Received::Delivered(rest)),
            _ => self.take().await?,
        };
        if let Ok(received) = &received {
            self.note_received(received);
        }
        Some(received)
    }

    /// The next message; `None` once the subscription has ended. Gaps are logged as warnings and
    /// skipped; [`Self::receive`] returns them. May be cancelled without loss.
    ///
    /// # Errors
    /// [`Error::Refused`] when the topic was deleted or another reader has taken the cursor,
    /// [`Error::Unreachable`] when the client has given up, [`Error::Unexpected`] if the broker has
    /// lost messages that it had delivered. Each is followed by `None`.
    pub async fn next(&mut self) -> Option<Result<ReadMessage, Error>> {
        loop {
            match self.receive().await? {
                Ok(Received::Delivered(message)) => return Some(Ok(message)),
                Ok(Received::Gap(gap)) => self.pass_over(gap),
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// The next messages of one partition that came in one frame. Otherwise as [`Self::next`].
    ///
    /// # Errors
    /// As [`Self::next`].
    pub async fn next_run(&mut self) -> Option<Result<ReadRun, Error>> {
        loop {
            match self.receive_run().await? {
                Ok(Received::Delivered(run)) => return Some(Ok(run)),
                Ok(Received::Gap(gap)) => self.pass_over(gap),
                Err(error) => return Some(Err(error)),
            }
        }
    }

    fn pass_over(&self, gap: Gap) {
        tracing::warn!(topic = %self.topic, "{gap}");
    }

    /// The next item. Commits meanwhile when a commit is due.
    async fn take(&mut self) -> Option<Result<Received<ReadRun>, Error>> {
        loop {
            if self.has_reached_end() {
                return None;
            }
            let next = match self.commit_check_at() {
                None => self.queue.next().await,
                Some(at) => match tokio::time::timeout_at(at, self.queue.next()).await {
                    Ok(next) => next,
                    Err(_) => {
                        self.commit_if_due();
                        continue;
                    }
                },
            };
            let (epoch, received) = match next? {
                Ok(item) => item,
                Err(error) => return Some(Err(error)),
            };
            if let Some(received) = self.track(epoch, received) {
                return Some(Ok(received));
            }
        }
    }

    /// Returns whether the reader has reached the offset at which it stops.
    fn has_reached_end(&self) -> bool {
        let reached = |(range, &at): (&ReadRange, &u64)| at >= range.end.0;
        self.until_end && self.ranges.iter().zip(&self.at).all(reached)
    }

    /// Moves the position behind an item; `None` if the program does not receive it.
    fn track(&mut self, epoch: u64, received: Received<ReadRun>) -> Option<Received<ReadRun>> {
        match received {
            Received::Delivered(mut run) => {
                self.consume(epoch, &run);
                let index = run.partition().0 as usize;
                self.at[index] = run.first_offset().0 + u64::from(run.count());
                let has_messages = !self.until_end || run.keep_before(self.ranges[index].end);
                has_messages.then_some(Received::Delivered(run))
            }
            Received::Gap(gap) => {
                self.at[gap.partition.0 as usize] = gap.offsets.end.0;
                if matches!(gap.reason, GapReason::Filtered | GapReason::Compacted) {
                    // The program has processed all messages before it.
                    self.note_delivered(gap.partition, gap.offsets.end.0, 0);
                    return None;
                }
                Some(Received::Gap(gap))
            }
        }
    }

    /// Makes room in the window, and reports it once it is worth a frame.
    fn consume(&mut self, epoch: u64, run: &ReadRun) {
        if self.queue.take_resume() {
            self.connection.send(Command::Resume { subscription: self.subscription });
        }
        self.resume_pool();
        if std::mem::replace(&mut self.epoch, epoch) != epoch {
            self.taken.fill(Share::default());
            self.share = self.queue.share();
        }
        let Some(taken) = self.taken.get_mut(run.partition().0 as usize) else { return };
        taken.messages += u64::from(run.count());
        taken.bytes += run.byte_count() as u64;
        let is_due = |taken, share| taken * REPORT_FRACTION >= share;
        if !is_due(taken.messages, self.share.messages) && !is_due(taken.bytes, self.share.bytes) {
            return;
        }
        let Share { messages, bytes } = std::mem::take(taken);
        let taken = Taken {
            subscription: self.subscription,
            partition: run.partition(),
            messages: u32::try_from(messages).unwrap_or(u32::MAX),
            bytes,
        };
        self.connection.send(Command::Taken { epoch, taken });
    }

    /// Resumes all readers of the pool, if they were paused and enough messages were taken.
    pub(crate) fn resume_pool(&self) {
        if self.queue.pool_resumes() {
            self.connection.send(Command::ResumePool { subscription: self.subscription });
        }
    }

    /// Notes that the program has received everything before `end`, of it `count` messages just
    /// now.
    pub(crate) fn note_delivered(&mut self, partition: PartitionIndex, end: u64, count: u64) {
        self.done.insert(partition.0, end);
        if let Some(auto) = &mut self.auto {
            auto.note_delivered(count);
        }
    }

    /// Limits commits of this partition to `offset`: for programs that leave the remaining messages
    /// to the next reader of the cursor.
    pub fn commit_no_further(&mut self, partition: PartitionIndex, offset: Offset) {
        let limit = self.limits.entry(partition.0).or_insert(offset.0);
        *limit = offset.0.min(*limit);
    }

    /// Moves the cursor behind all messages that the program has received, with one record for each
    /// partition, and waits until that is committed. The next reader of the cursor begins there.
    /// Does nothing without a cursor, or if no messages came since the last call.
    ///
    /// # Errors
    /// [`Error::Refused`] with `cursor-held` if another reader has taken the cursor, and others;
    /// [`Error::Closed`], also after the subscription has ended.
    pub async fn commit(&mut self) -> Result<(), Error> {
        let Some((done, request)) = self.commit_request() else { return Ok(()) };
        if self.queue.has_ended() {
            // Another reader may hold the cursor now.
            return Err(Error::Closed);
        }
        match self.connection.ask(request, true).await? {
            Reply::Done(_) => {
                self.committed(&done);
                Ok(())
            }
            other => Err(Error::Unexpected(format!("{} is not the answer", other.kind()))),
        }
    }

    fn commit_request(&self) -> Option<(CommitOffsets, Request)> {
        let name = self.cursor.clone().filter(|_| !self.done.is_empty())?;
        let until = |(&partition, &end): (&u32, &u64)| {
            (partition, self.limits.get(&partition).map_or(end, |&limit| end.min(limit)))
        };
        let done: CommitOffsets = self.done.iter().map(until).collect();
        let positions =
            done.iter().map(|(&partition, &offset)| control::ReadPosition { partition, offset });
        let body = control::SetCursor {
            topic: self.topic.to_string(),
            name,
            positions: positions.collect(),
            subscription: Some(self.subscription),
            take_over: false,
        };
        Some((done, Request::SetCursor(body)))
    }

    fn committed(&mut self, done: &CommitOffsets) {
        self.done.retain(|partition, offset| done.get(partition) != Some(offset));
    }

    /// The time of the next check for a due commit if no message comes.
    pub(crate) fn commit_check_at(&self) -> Option<Instant> {
        self.auto.as_ref().and_then(AutoCommits::commit_check_at)
    }

    /// Sends a commit if one is due, without waiting for the answer.
    pub(crate) fn commit_if_due(&mut self) {
        let Some(auto) = &mut self.auto else { return };
        if let Some(done) = auto.committed() {
            self.committed(&done);
        }
        if !self.auto.as_ref().is_some_and(AutoCommits::is_due) || self.queue.has_ended() {
            return;
        }
        let request = self.commit_request();
        let Some(auto) = &mut self.auto else { return };
        let Some((done, request)) = request else { return auto.reset() };
        let (answer, answered) = oneshot::channel();
        self.connection.send(Command::Ask { request, resend: true, answer });
        auto.start(done, answered);
    }

    /// The offsets that [`Self::commit`] would commit: for each partition the first offset that the
    /// program has not received.
    pub fn uncommitted(&self) -> impl Iterator<Item = (PartitionIndex, Offset)> {
        self.done.iter().map(|(&partition, &offset)| (PartitionIndex(partition), Offset(offset)))
    }

    /// Ends the subscription, and waits for the broker's answer. With
    /// [`ReaderBuilder::auto_commit`] it first commits all messages that the program has received.
    ///
    /// # Errors
    /// [`Error::Closed`] after the client was closed; otherwise the broker's refusal.
    pub async fn close(mut self) -> Result<(), Error> {
        let committed = match &self.auto {
            Some(_) if !self.queue.has_ended() => self.commit().await,
            _ => Ok(()),
        };
        self.closed = true;
        let subscription = self.subscription;
        let call = |answer| Command::Unsubscribe { subscription, answer: Some(answer) };
        self.connection.call(call).await?;
        committed
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if !self.closed {
            let subscription = self.subscription;
            self.connection.send(Command::Unsubscribe { subscription, answer: None });
        }
    }
}
