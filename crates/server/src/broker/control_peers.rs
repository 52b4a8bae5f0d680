//! The way from the first core of this node to those of the other nodes of its cluster: requests and their answers, as bytes. What was
//! asked of a node whose link ends is lost. It knows no request.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    fmt,
    pin::Pin,
    rc::{Rc, Weak},
    sync::Arc,
};

use bytes::Bytes;
use tokio::{sync::oneshot, task::spawn_local};

use crate::runtime::{
    groups::{Entries, Groups},
    index::ShardIndex,
};

/// The subject of a request: each has messages of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PeerTopic {
    /// Names: `name_change`.
    Names,
    /// The broker's own keys: `cluster_secrets`.
    Secrets,
    /// Schedules: `schedules`.
    Schedules,
    /// Subscriptions: `subscriptions`.
    Subscriptions,
    /// Sessions whose clients are at another node now: `session_replacement`.
    Sessions,
    /// What tenants store: `tenant_storage`.
    Storage,
}

impl PeerTopic {
    const ALL: [Self; 6] = [
        Self::Names,
        Self::Secrets,
        Self::Schedules,
        Self::Subscriptions,
        Self::Sessions,
        Self::Storage,
    ];

    /// Its number on links.
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::Names => 1,
            Self::Secrets => 2,
            Self::Schedules => 3,
            Self::Subscriptions => 4,
            Self::Sessions => 5,
            Self::Storage => 6,
        }
    }

    /// The one with this number.
    pub(crate) fn of_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|topic| topic.number() == number)
    }
}

/// The links of the first core to the other nodes.
pub(crate) trait ControlLinks: fmt::Debug {
    /// Sends a request; false if it is lost.
    fn send_request(&self, node: u16, number: u64, about: PeerTopic, body: Bytes) -> bool;

    /// Sends the answer to a request of that number.
    fn send_answer(&self, node: u16, number: u64, about: PeerTopic, body: Bytes) -> bool;
}

/// An answer that is being made.
pub(crate) type PendingAnswer = Pin<Box<dyn Future<Output = Bytes>>>;

/// Answers requests of other nodes about one subject.
pub(crate) trait PeerRequests: fmt::Debug {
    /// Answers a request of another node, which has checked who asks it.
    fn answer_node(self: Rc<Self>, body: Bytes) -> PendingAnswer;
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// The request was not sent: nothing was done.
    NotSent,
    /// The link has ended: it is not known what was done.
    Lost,
}

/// See the file's page.
#[derive(Debug)]
pub(crate) struct ControlPeers {
    pub(crate) groups: Arc<Groups>,
    links: RefCell<Option<Weak<dyn ControlLinks>>>,
    /// Those who answer, by the subject.
    answering: RefCell<HashMap<PeerTopic, Weak<dyn PeerRequests>>>,
    /// Requests that wait, by number, each with the node that is to answer.
    waiting: RefCell<HashMap<u64, (u16, oneshot::Sender<Bytes>)>>,
    /// The last entry of the catalogue's group of which a leader has said that it is committed, and which this node has.
    told_committed: Cell<u64>,
}

impl ControlPeers {
    /// Without links yet: nothing can be asked.
    pub(crate) fn new(groups: Arc<Groups>) -> Self {
        let (links, answering, waiting, told_committed) = Default::default();
        Self { groups, links, answering, waiting, told_committed }
    }

    /// Asks by these links from now on, and takes requests of other nodes. The links hold what holds this: the core's services have
    /// them.
    pub(crate) fn open(&self, links: &Rc<dyn ControlLinks>) {
        self.links.replace(Some(Rc::downgrade(links)));
    }

    /// Has requests of other nodes about a subject be answered by somebody, who holds this.
    pub(crate) fn have_answered(&self, about: PeerTopic, by: &Rc<dyn PeerRequests>) {
        self.answering.borrow_mut().insert(about, Rc::downgrade(by));
    }

    fn links(&self) -> Option<Rc<dyn ControlLinks>> {
        self.links.borrow().as_ref().and_then(Weak::upgrade)
    }

    /// Asks another node.
    ///
    /// # Errors
    /// There is no answer.
    pub(crate) async fn ask(
        &self,
        node: u16,
        about: PeerTopic,
        body: Bytes,
    ) -> Result<Bytes, Unanswered> {
        let links = self.links().ok_or(Unanswered::NotSent)?;
        let number = self.groups.next_number();
        let (sender, answer) = oneshot::channel();
        self.waiting.borrow_mut().insert(number, (node, sender));
        let _forgotten = Forgotten { peers: self, number };
        if !links.send_request(node, number, about, body) {
            return Err(Unanswered::NotSent);
        }
        answer.await.map_err(|_| Unanswered::Lost)
    }

    /// Whether this node leads the catalogue, and no other node can lead it now.
    pub(crate) fn has_lease(&self) -> bool {
        self.groups.entries(ShardIndex::CATALOGUE).borrow().may_give
    }

    /// The last entry of the catalogue's group that is known to be committed: a leader may have said so before the replica hears of
    /// it.
    pub(crate) fn committed(&self, entries: Entries) -> u64 {
        entries.committed.max(self.told_committed.get())
    }

    /// A leader has said that an entry is committed, and this node has it.
    pub(crate) fn note_committed(&self, index: u64) {
        self.told_committed.set(self.told_committed.get().max(index));
    }

    /// Another node asks.
    pub(crate) fn take_request(&self, node: u16, number: u64, about: PeerTopic, body: Bytes) {
        let answering = self.answering.borrow().get(&about).and_then(Weak::upgrade);
        let Some((links, answering)) = self.links().zip(answering) else { return };
        let answer = answering.answer_node(body);
        spawn_local(async move {
            let answer = answer.await;
            // If the link has ended, its other end knows.
            links.send_answer(node, number, about, answer);
        });
    }

    /// Another node has answered.
    pub(crate) fn take_answer(&self, node: u16, number: u64, body: Bytes) {
        let mut waiting = self.waiting.borrow_mut();
        // A node never answers for another.
        if waiting.get(&number).is_some_and(|(asked, _)| *asked == node)
            && let Some((_, sender)) = waiting.remove(&number)
        {
            let _ = sender.send(body);
        }
    }

    /// The link to a node has ended: what waits for it is lost.
    pub(crate) fn lose(&self, node: u16) {
        self.waiting.borrow_mut().retain(|_, (asked, _)| *asked != node);
    }
}

/// Takes a request from those that wait when nobody waits for it any more.
struct Forgotten<'a> {
    peers: &'a ControlPeers,
    number: u64,
}

impl Drop for Forgotten<'_> {
    fn drop(&mut self) {
        self.peers.waiting.borrow_mut().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        task::{Context, Poll, Waker},
    };

    use super::*;

    #[derive(Debug, Default)]
    struct Sent {
        requests: RefCell<Vec<(u16, u64)>>,
        loses: Cell<bool>,
    }

    impl ControlLinks for Sent {
        fn send_request(&self, node: u16, number: u64, _: PeerTopic, _: Bytes) -> bool {
            self.requests.borrow_mut().push((node, number));
            !self.loses.get()
        }

        fn send_answer(&self, _: u16, _: u64, _: PeerTopic, _: Bytes) -> bool {
            true
        }
    }

    fn peers() -> (ControlPeers, Rc<Sent>) {
        let peers = ControlPeers::new(Arc::new(Groups::new(1, [2, 3].into_iter(), 1, 1)));
        let sent = Rc::new(Sent::default());
        let links: Rc<dyn ControlLinks> = sent.clone();
        peers.open(&links);
        (peers, sent)
    }

    fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
        Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn an_answer_reaches_whoever_asked_if_the_node_gives_it_that_was_asked() {
        let (peers, sent) = peers();
        let mut first = pin!(peers.ask(2, PeerTopic::Names, Bytes::new()));
        let mut second = pin!(peers.ask(3, PeerTopic::Names, Bytes::new()));
        assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
        let numbers: Vec<u64> = sent.requests.borrow().iter().map(|(_, number)| *number).collect();
        assert_ne!(numbers[0], numbers[1]);
        peers.take_answer(3, numbers[0], Bytes::from_static(b"another's"));
        assert!(poll(&mut first).is_pending());
        peers.take_answer(2, numbers[0], Bytes::from_static(b"first"));
        peers.take_answer(3, numbers[1], Bytes::from_static(b"second"));
        assert_eq!(poll(&mut first), Poll::Ready(Ok(Bytes::from_static(b"first"))));
        assert_eq!(poll(&mut second), Poll::Ready(Ok(Bytes::from_static(b"second"))));
        assert!(peers.waiting.borrow().is_empty());
    }

    #[test]
    fn what_waits_for_a_node_whose_link_ends_is_lost_and_what_was_not_sent_says_so() {
        let (peers, sent) = peers();
        let mut lost = pin!(peers.ask(2, PeerTopic::Names, Bytes::new()));
        let mut kept = pin!(peers.ask(3, PeerTopic::Names, Bytes::new()));
        assert!(poll(&mut lost).is_pending() && poll(&mut kept).is_pending());
        peers.lose(2);
        assert_eq!(poll(&mut lost), Poll::Ready(Err(Unanswered::Lost)));
        assert!(poll(&mut kept).is_pending());
        sent.loses.set(true);
        let mut unsent = pin!(peers.ask(2, PeerTopic::Names, Bytes::new()));
        assert_eq!(poll(&mut unsent), Poll::Ready(Err(Unanswered::NotSent)));
    }

    #[test]
    fn each_topic_of_requests_has_a_number_of_its_own() {
        for topic in PeerTopic::ALL {
            assert_eq!(PeerTopic::of_number(topic.number()), Some(topic));
        }
        assert_eq!(PeerTopic::of_number(0), None);
    }
}
