//! The handle of a core for everything that runs on its thread, and the loop that drives the core.

use std::{cell::RefCell, rc::Rc, sync::Arc, thread, time::Duration};

use tokio::sync::Notify;

use super::{Core, Cores, LocalShard};
use crate::runtime::{
    clock::now, index::CoreIndex, reader_pacing::ReaderPacing, send_budget::SendBudget,
    services::Services, write_buffer::WriteBuffer,
};

/// Looks at the sockets, at most, before what they have brought is done.
const LOOKS_MAX: usize = 16;

/// The least time between two looks at what is due.
const TIMER_STEP: Duration = Duration::from_millis(1);

/// What has to end its work when the broker stops.
pub(crate) trait Closes: std::fmt::Debug {
    /// It takes nothing new from now on.
    fn begin(&self);

    /// Whether what was under way is done.
    fn has_closed(&self) -> bool;
}

/// A core, and the notification that makes it carry what has gathered.
#[derive(Clone, Debug)]
pub(crate) struct CoreHandle {
    pub(super) core: Rc<RefCell<Core>>,
    notify: Rc<Notify>,
    /// Where the writers of this core's connections make their writes ready, one after the other.
    pub(crate) write_scratch: Rc<RefCell<WriteBuffer>>,
    /// How often they write to readers.
    pub(crate) pace: Rc<ReaderPacing>,
    /// What waits for the sockets of all of them.
    pub(crate) waiting_room: Rc<SendBudget>,
    /// What has to end its work when the broker stops.
    closing: Rc<RefCell<Vec<Rc<dyn Closes>>>>,
    /// What else runs on the core.
    pub(crate) services: Rc<Services>,
    pub(crate) cores: Arc<Cores>,
    pub(crate) index: CoreIndex,
}

impl CoreHandle {
    pub(crate) fn new(index: CoreIndex, shards: Vec<LocalShard>, cores: Arc<Cores>) -> Self {
        let core = Core::new(index, shards, cores.clone());
        Self {
            core: Rc::new(RefCell::new(core)),
            notify: Rc::default(),
            write_scratch: Rc::default(),
            pace: Rc::default(),
            waiting_room: Rc::default(),
            closing: Rc::default(),
            services: Rc::default(),
            cores,
            index,
        }
    }

    /// When the broker stops, this is told and waited for.
    pub(crate) fn add_closing(&self, closes: Rc<dyn Closes>) {
        self.closing.borrow_mut().push(closes);
    }

    /// The broker stops.
    pub(crate) fn begin_to_close(&self) {
        self.closing.borrow().iter().for_each(|closes| closes.begin());
    }

    /// Whether all that was under way then is done.
    pub(crate) fn has_closed(&self) -> bool {
        self.closing.borrow().iter().all(|closes| closes.has_closed())
    }

    /// Does something with the core, and has it carry what comes of it once the connections that
    /// are ready now have had their turn.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Core) -> T) -> T {
        let result = act(&mut self.core.borrow_mut());
        self.notify.notify_one();
        result
    }

    /// Looks at the core.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&Core) -> T) -> T {
        look(&self.core.borrow())
    }

    /// Lets the sockets bring more, as long as each look at them brings another question: one commit is
    /// then for all of them, and their answers go out one after the other. Where a look brings nothing the
    /// thread gives way once, for who is about to ask may wait for the processor: on one that nobody waits
    /// for, that takes no time. Who asks alone is not held up. `carried` is how many questions there were
    /// before.
    async fn gather(&self, carried: &mut u64) {
        let question_count = || self.look(|core| core.answers.question_count());
        let mut seen = *carried + 1;
        let mut gives_way = false;
        for _ in 0..LOOKS_MAX {
            let now = question_count();
            if now > seen {
                gives_way = true;
            } else if gives_way {
                gives_way = false;
                thread::yield_now();
            } else {
                break;
            }
            seen = now;
            // The sockets are looked at before who yields goes on.
            tokio::task::yield_now().await;
        }
        *carried = question_count();
    }

    /// Carries what has gathered, whenever something has, and does what is due.
    pub(crate) async fn run(self) {
        let mut carried = 0;
        loop {
            self.gather(&mut carried).await;
            // Looked at in every pass: one that always has something must not hold up what is due.
            self.core.borrow_mut().advance();
            let wake = self.core.borrow_mut().carry();
            if self.look(Core::has_put_off) {
                // The links' tasks are ready, and go first.
                tokio::task::yield_now().await;
                self.core.borrow_mut().commit_put_off();
                continue;
            }
            match wake {
                None => self.notify.notified().await,
                Some(due) => {
                    let wait = due.since(now()).max(TIMER_STEP);
                    let _ = tokio::time::timeout(wait, self.notify.notified()).await;
                }
            }
        }
    }
}
