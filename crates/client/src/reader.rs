//! The reader as programs hold it: messages come in the order of their offsets, partition by
//! partition, and nothing is said of them. It knows no socket.

use std::sync::Arc;

use sennit_model::{
    CursorName, Filter, Offset, PartitionIndex, ReadFrom, TopicName, WhenSlow,
    limits::{CREDIT_BYTES_MAX, CREDIT_MESSAGES_MAX},
};
use sennit_protocol::{GapReason, Reply, Request, Taken, control};
use tokio::{sync::oneshot, time::Instant};

use crate::{
    auto_commit::{AutoCommit, AutoCommits, Done},
    bell::Bell,
    error::Error,
    gap::{Gap, Received},
    link::{Command, Link},
    pool::Pool,
    read_range::ReadRange,
    read_run::{ReadMessage, ReadRun},
    reader_queue::ReaderQueue,
};

/// What is taken is told once it is this part of the window: a half. Telling costs both ends some
/// microseconds, whatever it gives back.
const TOLD_PART: u64 = 2;

/// How a reader is to be. Made by [`crate::Client::reader`].
#[derive(Clone)]
#[must_use = "nothing is read before `start` is called"]
pub struct ReaderBuilder {
    link: Arc<Link>,
    read: control::Read,
    until_end: bool,
    auto: Option<AutoCommit>,
    /// For one who takes from many: rung when something comes, and what all of them hold.
    shared: Option<(Arc<Bell>, Arc<Pool>)>,
}

impl ReaderBuilder {
    pub(crate) fn new(link: Arc<Link>, topic: &TopicName) -> Self {
        let template = Self::template(link);
        Self { read: control::Read { topic: topic.to_string(), ..template.read }, ..template }
    }

    /// One that has to be told its topic, with [`Self::of_topic`].
    pub(crate) fn template(link: Arc<Link>) -> Self {
        let read = control::Read { credit_messages: 65_536, ..control::Read::default() };
        Self { link, read, until_end: false, auto: None, shared: None }
    }

    /// The same for a topic, as long as it has this number.
    pub(crate) fn of_topic(&self, topic: &TopicName, id: u32) -> Self {
        let Self { link, read, until_end, auto, shared } = self.clone();
        let read = control::Read { topic: topic.to_string(), topic_id: Some(id), ..read };
        Self { link, read, until_end, auto, shared }
    }

    /// Whether it ends at its end.
    pub(crate) fn ends(&self) -> bool {
        self.until_end
    }

    /// Has it ring whenever something comes, and count what it holds with others.
    pub(crate) fn sharing(self, bell: Arc<Bell>, pool: Arc<Pool>) -> Self {
        Self { shared: Some((bell, pool)), ..self }
    }

    /// Its window in bytes, unless the program has said one.
    pub(crate) fn window_unless_told(mut self, bytes: u64) -> Self {
        if self.read.credit_bytes == 0 {
            self.read.credit_bytes = bytes;
        }
        self
    }

    /// Where to begin in each partition; at the earliest message unless told.
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

    /// Reads under the name of a cursor: begins where that is, and where [`Self::from`] says only in
    /// partitions where it was never set. It moves with [`Reader::commit`], and is this reader's own
    /// until it ends.
    pub fn cursor(mut self, name: &CursorName) -> Self {
        self.read.cursor = Some(name.to_string());
        self
    }

    /// Whether a reader that has the cursor ends; unless told this one is refused as `cursor-held`
    /// while there is one.
    pub fn take_over(mut self, take_over: bool) -> Self {
        self.read.take_over = take_over;
        self
    }

    /// With [`Self::cursor`]: the reader commits by itself, after so many messages or so long
    /// ([`AutoCommit`], a count or a [`std::time::Duration`]). What is committed was given before
    /// the last call of [`Reader::next`] or its like: the program has come back for more, and is
    /// done with it. So each message is given at least once, and after a crash those again that
    /// were not committed. [`Reader::close`] commits everything that was given. One commit is under
    /// way at a time; one that fails is logged, and the next makes up for it.
    pub fn auto_commit(mut self, when: impl Into<AutoCommit>) -> Self {
        self.auto = Some(when.into());
        self
    }

    /// What becomes of the reader if it had come to the newest message and falls behind by more than
    /// 16 MiB: it waits for everything, as late as it comes, unless told; it skips, and gets a
    /// [`Gap`] for what it was spared; or it ends with `slow-consumer`.
    pub fn when_slow(mut self, when_slow: WhenSlow) -> Self {
        self.read.set_when_slow(when_slow.into());
        self
    }

    /// Which messages come; all unless told. The broker passes over the others, which costs neither the
    /// network nor the window.
    pub fn filter(mut self, filter: &Filter) -> Self {
        self.read.filter = Some(filter.to_string());
        self
    }

    /// Whether it ends where the topic ended when it began, instead of waiting for more.
    pub fn until_end(mut self, until_end: bool) -> Self {
        self.until_end = until_end;
        self
    }

    /// How many messages may be on their way or untaken here, 1 to 1,000,000; 65,536 unless told.
    /// With several partitions each gets its share, and at least one.
    pub fn credit_messages(mut self, messages: u32) -> Self {
        self.read.credit_messages = messages.clamp(1, CREDIT_MESSAGES_MAX);
        self
    }

    /// How many bytes of encoded messages may be on their way or untaken here, at most 256 MiB. One
    /// message of each partition is always let through; once 8 MiB more than this are here and were not
    /// taken, nothing more is sent for until half of it is free. Unless told, what a line of 10 Gbit/s carries in two round trips,
    /// which are measured on each connection anew: at least 512 KiB, and 128 KiB for each partition; at
    /// most 8 MiB.
    pub fn credit_bytes(mut self, bytes: u64) -> Self {
        self.read.credit_bytes = bytes.clamp(1, CREDIT_BYTES_MAX);
        self
    }

    /// Begins to read.
    ///
    /// # Errors
    /// [`Error::Refused`] with `unknown-topic`, `unknown-kind` by a broker without readers, cursors or
    /// filters, and others, [`Error::Closed`], or [`Error::Unreachable`] when the client has given up.
    pub async fn start(mut self) -> Result<Reader, Error> {
        // Subscription numbers wrap after four thousand million; none lives that long.
        let subscription = self.link.number() as u32;
        self.read.subscription = subscription;
        let queue = match self.shared {
            Some((bell, pool)) => ReaderQueue::of_pool(bell, pool, subscription),
            None => ReaderQueue::default(),
        };
        let queue = Arc::new(queue);
        // Made first: if this call is cancelled, dropping it ends the subscription.
        let mut reader = Reader {
            link: self.link,
            topic: self.read.topic.parse().expect("it was a name when it was given"),
            subscription,
            queue,
            ranges: Vec::new(),
            share: (1, 1),
            current: None,
            epoch: 0,
            taken: Vec::new(),
            at: Vec::new(),
            until_end: self.until_end,
            cursor: self.read.cursor.clone(),
            done: Done::new(),
            limits: Done::new(),
            auto: self.auto.filter(|_| self.read.cursor.is_some()).map(AutoCommits::new),
            closed: false,
        };
        let (read, queue) = (self.read, Arc::clone(&reader.queue));
        let command = |answer| Command::Read { read, queue, answer };
        reader.ranges = reader.link.call(command).await?;
        reader.share = reader.queue.share();
        reader.taken = vec![(0, 0); reader.ranges.len()];
        reader.at = reader.ranges.iter().map(|range| range.first.0).collect();
        Ok(reader)
    }
}

/// One who reads a topic by offset: every message that is kept, in order within its partition, all
/// partitions together. Any number may read the same; nothing is leased, settled or remembered for
/// them. After a lost connection it goes on behind the last message that came, without a gap or a
/// repeat. Dropping it ends the subscription.
///
/// ```no_run
/// # async fn example(client: sennit_client::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use sennit_client::ReadFrom;
///
/// let mut reader = client.reader(&"orders".parse()?).from(ReadFrom::Back(100)).start().await?;
/// while let Some(message) = reader.next().await {
///     let message = message?;
///     println!("{} {:?}", message.offset(), message.payload());
/// }
/// # Ok(())
/// # }
/// ```
pub struct Reader {
    link: Arc<Link>,
    topic: TopicName,
    subscription: u32,
    queue: Arc<ReaderQueue>,
    ranges: Vec<ReadRange>,
    current: Option<ReadRun>,
    /// The connection that `taken` is to be told on.
    epoch: u64,
    /// Each partition's share of the window on that connection: messages and bytes.
    share: (u64, u64),
    /// Taken and not told, by partition: messages and bytes.
    taken: Vec<(u64, u64)>,
    /// Behind what came of each partition, whatever it was.
    at: Vec<u64>,
    /// Whether it ends at the end of its ranges.
    until_end: bool,
    cursor: Option<String>,
    /// Given to the program and not committed: behind which offset, by partition.
    done: Done,
    /// What commits do not go beyond, by partition.
    limits: Done,
    auto: Option<AutoCommits>,
    closed: bool,
}

impl Reader {
    /// Its topic.
    #[must_use]
    pub fn topic(&self) -> &TopicName {
        &self.topic
    }

    pub(crate) fn number(&self) -> u32 {
        self.subscription
    }

    /// As [`Self::receive_run`] without waiting: `None` where nothing is here yet. Whoever passes it on to the
    /// program says so, with [`Self::given`] or [`Self::has_given`].
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
            if let Some(received) = self.sort(epoch, received) {
                return Some(Some(Ok(received)));
            }
        }
    }

    /// Notes what the program is given, for the cursor.
    pub(crate) fn given(&mut self, received: &Received<ReadRun>) {
        match received {
            Received::Delivered(run) => {
                let count = u64::from(run.count());
                self.has_given(run.partition(), run.first_offset().0 + count, count);
            }
            Received::Gap(gap) => self.has_given(gap.partition, gap.offsets.end.0, 0),
        }
    }

    /// Where it began in each partition, by index, and how far that reached then.
    #[must_use]
    pub fn ranges(&self) -> &[ReadRange] {
        &self.ranges
    }

    /// The next message or gap, in order within each partition; `None` once the subscription has
    /// ended. A gap says which messages do not come, and is told once. May be cancelled without
    /// loss.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub async fn receive(&mut self) -> Option<Result<Received<ReadMessage>, Error>> {
        self.commit_if_due();
        loop {
            if let Some(current) = &mut self.current {
                if let Some(message) = current.take_first() {
                    self.has_given(message.partition(), message.offset().0 + 1, 1);
                    return Some(Ok(Received::Delivered(message)));
                }
                self.current = None;
            }
            match self.take().await? {
                Ok(Received::Delivered(run)) => self.current = Some(run),
                Ok(Received::Gap(gap)) => {
                    self.has_given(gap.partition, gap.offsets.end.0, 0);
                    return Some(Ok(Received::Gap(gap)));
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// As [`Self::receive`], but the messages of one partition that came together.
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
            self.given(received);
        }
        Some(received)
    }

    /// The next message; `None` once the subscription has ended. Gaps are logged as warnings and
    /// passed over; [`Self::receive`] tells of them. May be cancelled without loss.
    ///
    /// # Errors
    /// [`Error::Refused`] when the topic is gone or another has the cursor, [`Error::Unreachable`] when the client has given
    /// up, [`Error::Unexpected`] if the broker has lost what it had delivered. Each is followed by
    /// `None`.
    pub async fn next(&mut self) -> Option<Result<ReadMessage, Error>> {
        loop {
            match self.receive().await? {
                Ok(Received::Delivered(message)) => return Some(Ok(message)),
                Ok(Received::Gap(gap)) => self.pass_over(gap),
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// The next messages of one partition, as many as came together: one frame. Otherwise as
    /// [`Self::next`].
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

    /// What comes next for the program; meanwhile it commits when that is due.
    async fn take(&mut self) -> Option<Result<Received<ReadRun>, Error>> {
        loop {
            if self.has_reached_end() {
                return None;
            }
            let next = match self.look_at() {
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
            if let Some(received) = self.sort(epoch, received) {
                return Some(Ok(received));
            }
        }
    }

    /// Whether it has come to where it is to end.
    fn has_reached_end(&self) -> bool {
        let reached = |(range, &at): (&ReadRange, &u64)| at >= range.end.0;
        self.until_end && self.ranges.iter().zip(&self.at).all(reached)
    }

    /// Notes what has come; `None` where it is nothing for the program.
    fn sort(&mut self, epoch: u64, received: Received<ReadRun>) -> Option<Received<ReadRun>> {
        match received {
            Received::Delivered(mut run) => {
                self.has_taken(epoch, &run);
                let index = run.partition().0 as usize;
                self.at[index] = run.first_offset().0 + u64::from(run.count());
                let is_wanted = !self.until_end || run.keep_before(self.ranges[index].end);
                is_wanted.then_some(Received::Delivered(run))
            }
            Received::Gap(gap) => {
                self.at[gap.partition.0 as usize] = gap.offsets.end.0;
                if matches!(gap.reason, GapReason::Filtered | GapReason::Compacted) {
                    // Nothing came before it that is not done.
                    self.has_given(gap.partition, gap.offsets.end.0, 0);
                    return None;
                }
                Some(Received::Gap(gap))
            }
        }
    }

    /// Makes room in the window, once there is enough of it to be worth a frame.
    fn has_taken(&mut self, epoch: u64, run: &ReadRun) {
        if self.queue.goes_on() {
            self.link.tell(Command::GoOn { subscription: self.subscription });
        }
        self.have_pool_go_on();
        if std::mem::replace(&mut self.epoch, epoch) != epoch {
            self.taken.fill((0, 0));
            self.share = self.queue.share();
        }
        let Some(taken) = self.taken.get_mut(run.partition().0 as usize) else { return };
        taken.0 += u64::from(run.count());
        taken.1 += run.byte_count() as u64;
        if taken.0 * TOLD_PART < self.share.0 && taken.1 * TOLD_PART < self.share.1 {
            return;
        }
        let (messages, bytes) = std::mem::take(taken);
        let taken = Taken {
            subscription: self.subscription,
            partition: run.partition(),
            messages: u32::try_from(messages).unwrap_or(u32::MAX),
            bytes,
        };
        self.link.tell(Command::Taken { epoch, taken });
    }

    /// Has all readers go on that share what they hold with this one, if they paused and enough is taken.
    pub(crate) fn have_pool_go_on(&self) {
        if self.queue.pool_goes_on() {
            self.link.tell(Command::PoolGoesOn { subscription: self.subscription });
        }
    }

    /// Everything before `end` was given to the program, `count` messages of it just now.
    pub(crate) fn has_given(&mut self, partition: PartitionIndex, end: u64, count: u64) {
        self.done.insert(partition.0, end);
        if let Some(auto) = &mut self.auto {
            auto.has_given(count);
        }
    }

    /// Commits of this partition do not go beyond `offset` any more, whatever was given: for
    /// programs that leave the rest of what they were given to whoever reads under the name next.
    pub fn commit_no_further(&mut self, partition: PartitionIndex, offset: Offset) {
        let limit = self.limits.entry(partition.0).or_insert(offset.0);
        *limit = offset.0.min(*limit);
    }

    /// Moves the cursor behind everything that was given so far, as one record for each partition
    /// where there was anything, and waits until that is committed. Whoever reads under its name
    /// next begins there. Nothing without a cursor, or where nothing was given since the last call.
    ///
    /// # Errors
    /// [`Error::Refused`] with `cursor-held` if another has the cursor now, and others;
    /// [`Error::Closed`], also once the subscription has ended.
    pub async fn commit(&mut self) -> Result<(), Error> {
        let Some((done, request)) = self.commit_request() else { return Ok(()) };
        if self.queue.has_ended() {
            // Another may have the cursor now.
            return Err(Error::Closed);
        }
        match self.link.ask(request, true).await? {
            Reply::Done(_) => {
                self.committed(&done);
                Ok(())
            }
            other => Err(Error::Unexpected(format!("{} is not the answer", other.kind()))),
        }
    }

    fn commit_request(&self) -> Option<(Done, Request)> {
        let name = self.cursor.clone().filter(|_| !self.done.is_empty())?;
        let until = |(&partition, &end): (&u32, &u64)| {
            (partition, self.limits.get(&partition).map_or(end, |&limit| end.min(limit)))
        };
        let done: Done = self.done.iter().map(until).collect();
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

    fn committed(&mut self, done: &Done) {
        self.done.retain(|partition, offset| done.get(partition) != Some(offset));
    }

    /// When to look again whether a commit is due, although nothing has come.
    pub(crate) fn look_at(&self) -> Option<Instant> {
        self.auto.as_ref().and_then(AutoCommits::look_at)
    }

    /// Commits what was given, if it is time, without waiting for the answer.
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
        let Some((done, request)) = request else { return auto.nothing_is_left() };
        let (answer, answered) = oneshot::channel();
        self.link.tell(Command::Ask { request, again: true, answer });
        auto.begun(done, answered);
    }

    /// What [`Self::commit`] would commit: by partition, the first offset that was neither given nor passed
    /// over.
    pub fn uncommitted(&self) -> impl Iterator<Item = (PartitionIndex, Offset)> {
        self.done.iter().map(|(&partition, &offset)| (PartitionIndex(partition), Offset(offset)))
    }

    /// Ends the subscription, and waits until the broker has heard of it. With
    /// [`ReaderBuilder::auto_commit`] everything that was given is committed first.
    ///
    /// # Errors
    /// [`Error::Closed`] after the client was closed; otherwise as the broker refuses.
    pub async fn close(mut self) -> Result<(), Error> {
        let committed = match &self.auto {
            Some(_) if !self.queue.has_ended() => self.commit().await,
            _ => Ok(()),
        };
        self.closed = true;
        let subscription = self.subscription;
        let call = |answer| Command::Unsubscribe { subscription, answer: Some(answer) };
        self.link.call(call).await?;
        committed
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if !self.closed {
            let subscription = self.subscription;
            self.link.tell(Command::Unsubscribe { subscription, answer: None });
        }
    }
}
