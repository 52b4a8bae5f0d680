//! The pace of writes to readers. Where very many small writes would take all of a core's time, a reader is served
//! every third millisecond, and one write carries everything since the last one. Readers are spread over the three
//! milliseconds, so that the load stays even. It knows no sockets.

use std::{cell::Cell, io, os::fd::OwnedFd, rc::Rc, time::Duration};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::{net::unix::pipe::Receiver, sync::Notify, time::Instant};

/// Readers have their turns in so many groups, one after the other.
const TURNS: u64 = 3;

/// From one turn to the next. The runtime's own timers are up to two of them late.
const STEP: Duration = Duration::from_millis(1);

/// How long they have to be many: what has waited for a moment comes all at once, and is no crowd.
const WINDOW: Duration = Duration::from_millis(30);

/// Deliveries to readers in small writes within [`WINDOW`] beyond which they are many: 40,000 a second,
/// and without waiting each is a write as a rule.
const DELIVERIES_MAX: usize = 1280;

/// The pace of the writes to a core's readers.
#[derive(Debug)]
pub(crate) struct ReaderPacing {
    since: Cell<Instant>,
    deliveries: Cell<usize>,
    is_crowded: Cell<bool>,
    /// Rung when there begin to be many.
    crowd: Notify,
    /// Whether turns are being served: only then anybody waits.
    is_active: Cell<bool>,
    /// Turns that were given so far.
    served: Cell<u64>,
    turns: [Notify; TURNS as usize],
    readers: Cell<u64>,
}

/// A reader's place among the others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place(u64);

impl Default for ReaderPacing {
    fn default() -> Self {
        Self {
            since: Cell::new(Instant::now()),
            deliveries: Cell::default(),
            is_crowded: Cell::default(),
            crowd: Notify::new(),
            is_active: Cell::default(),
            served: Cell::default(),
            turns: [const { Notify::const_new() }; TURNS as usize],
            readers: Cell::default(),
        }
    }
}

impl ReaderPacing {
    /// The place of another reader: they have their turns one after the other.
    pub(crate) fn place(&self) -> Place {
        self.readers.set(self.readers.get() + 1);
        Place(self.readers.get() % TURNS)
    }

    /// Something small was written to a reader, so many deliveries; says which turn it is to wait for, if it
    /// is to wait.
    pub(crate) fn wrote(&self, place: Place, deliveries: usize, now: Instant) -> Option<u64> {
        self.deliveries.set(self.deliveries.get() + deliveries);
        if now - self.since.get() >= WINDOW {
            self.is_crowded.set(self.is_recent(now) && self.deliveries.get() > DELIVERIES_MAX);
            self.deliveries.set(0);
            self.since.set(now);
            if self.is_crowded.get() && !self.is_active.get() {
                self.crowd.notify_one();
            }
        }
        self.is_active.get().then(|| {
            let served = self.served.get();
            served + TURNS - (served + TURNS - place.0) % TURNS
        })
    }

    /// Whether what was counted last is not long ago.
    fn is_recent(&self, now: Instant) -> bool {
        now - self.since.get() < 2 * WINDOW
    }

    /// Waits for this turn; not at all where it was served already.
    pub(crate) async fn wait_for_turn(&self, turn: u64) {
        while self.is_active.get() && self.served.get() < turn {
            self.turns[(turn % TURNS) as usize].notified().await;
        }
    }

    /// Gives the next turn.
    fn give(&self) {
        let next = self.served.get() + 1;
        self.served.set(next);
        self.turns[(next % TURNS) as usize].notify_waiters();
    }

    /// Gives turns as long as there are many, whenever there are.
    pub(crate) async fn run(self: Rc<Self>) {
        let timer = match Timer::new() {
            Ok(timer) => timer,
            Err(error) => return tracing::warn!(%error, "many readers are written to at once"),
        };
        loop {
            self.crowd.notified().await;
            self.is_active.set(true);
            if let Err(error) = self.give_turns(&timer).await {
                tracing::warn!(%error, "many readers are written to at once");
            }
            // A timer that cannot be stopped rings without effect until there are many readers again.
            let _ = timer.set(Duration::ZERO);
            self.is_active.set(false);
            self.turns.iter().for_each(Notify::notify_waiters);
        }
    }

    async fn give_turns(&self, timer: &Timer) -> io::Result<()> {
        timer.set(STEP)?;
        while self.is_crowded.get() && self.is_recent(Instant::now()) {
            let steps = timer.steps().await?;
            (0..steps.min(TURNS)).for_each(|_| self.give());
        }
        Ok(())
    }
}

/// A timer of the system, which rings again and again.
struct Timer {
    /// The runtime has no type for a timer of the system; to wait and read, it is like a pipe.
    rings: Receiver,
    /// The same timer, to be set.
    set: OwnedFd,
}

impl Timer {
    /// One that is not set.
    fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Self { set: timer.try_clone()?, rings: Receiver::from_owned_fd_unchecked(timer)? })
    }

    /// From now on it rings each time that so much has passed; with nothing, no more.
    fn set(&self, every: Duration) -> io::Result<()> {
        let every = Timespec { tv_sec: 0, tv_nsec: i64::from(every.subsec_nanos()) };
        let setting = Itimerspec { it_interval: every, it_value: every };
        Ok(timerfd_settime(&self.set, TimerfdTimerFlags::empty(), &setting).map(drop)?)
    }

    /// Waits until it rings; says how often it has since the last time.
    async fn steps(&self) -> io::Result<u64> {
        let mut steps = [0; 8];
        loop {
            self.rings.readable().await?;
            match self.rings.try_read(&mut steps) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read.map(|_| u64::from_ne_bytes(steps)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{pin::pin, task::Poll};

    use super::*;

    #[test]
    fn readers_wait_for_their_turns_only_where_there_are_many() {
        let pace = ReaderPacing::default();
        let (begun, place) = (pace.since.get(), pace.place());
        let at = |micros: u64| begun + Duration::from_micros(micros);
        let waits = |from: u64, to: u64, step: usize, deliveries: usize| {
            let writes = (from..to).step_by(step);
            let writes = writes.filter(|&write| {
                pace.wrote(place, deliveries, at(write));
                pace.is_crowded.get()
            });
            writes.count()
        };
        assert_eq!(waits(0, 100_000, 30, 1), 0);
        // A moment in which everything comes that has waited.
        assert_eq!(waits(100_000, 101_000, 2, 1) + waits(101_000, 200_000, 100, 1), 0);
        assert!(waits(200_000, 300_000, 5, 1) > 12_000);
        // Fewer writes of more each are as many readers as before.
        assert_eq!(waits(300_000, 400_000, 15, 3), 6667);
        assert_eq!(waits(500_000, 600_000, 30, 1), 0);
    }

    #[tokio::test]
    async fn each_has_every_third_turn_and_neighbours_have_others() {
        let pace = ReaderPacing::default();
        assert_eq!(pace.wrote(pace.place(), 1, Instant::now()), None, "nobody gives turns");
        pace.is_active.set(true);
        let places = [pace.place(), pace.place(), pace.place()];
        for served in 0..7 {
            let mut turns = places.map(|place| pace.wrote(place, 1, Instant::now()).unwrap());
            turns.sort_unstable();
            assert_eq!(turns, [served + 1, served + 2, served + 3]);
            let mut waits = turns.map(|turn| Box::pin(pace.wait_for_turn(turn)));
            for wait in &mut waits {
                assert!(is_pending(wait.as_mut()).await);
            }
            pace.give();
            let [first, others @ ..] = &mut waits;
            assert!(!is_pending(first.as_mut()).await);
            for other in others {
                assert!(is_pending(other.as_mut()).await);
            }
        }
        // Who comes late for its turn does not wait for another.
        assert!(!is_pending(pin!(pace.wait_for_turn(1))).await);
        // Once nobody gives turns, nobody waits for one.
        pace.is_active.set(false);
        assert!(!is_pending(pin!(pace.wait_for_turn(1000))).await);
    }

    async fn is_pending(mut future: std::pin::Pin<&mut impl Future<Output = ()>>) -> bool {
        std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_pending()))
            .await
    }

    #[tokio::test(flavor = "current_thread")]
    async fn turns_are_given_as_long_as_there_are_many_and_no_longer() {
        tokio::task::LocalSet::new()
            .run_until(async {
                let pace = Rc::new(ReaderPacing::default());
                let place = pace.place();
                tokio::task::spawn_local(pace.clone().run());
                for _ in 0..2 {
                    let mut had = 0;
                    while had < 5 {
                        tokio::task::yield_now().await;
                        if let Some(turn) = pace.wrote(place, DELIVERIES_MAX + 1, Instant::now()) {
                            pace.wait_for_turn(turn).await;
                            had += 1;
                        }
                    }
                    let begun = Instant::now();
                    while pace.is_active.get() {
                        assert!(begun.elapsed().as_secs() < 60, "it rings on");
                        tokio::time::sleep(STEP).await;
                    }
                }
            })
            .await;
    }
}
