//! Open requests of this node's sessions to a group: subscriptions, questions, and commands that were sent to
//! the node that leads. When another node leads, subscriptions and questions are asked again there, as they are now; of
//! the rest nobody knows what became of it, and the sessions are told so. A settlement that is to be confirmed is a
//! question here: done twice it settles nothing twice. It knows no link and no replica.

use std::collections::BTreeMap;

use sennit_engine::{
    Command, Effect, Origin, PartitionCommand, ReaderChange, Refusal, SessionId, StreamCommand,
};
use sennit_model::{Offset, PartitionId, Timestamp};

/// A question to one partition. Of requests that settle messages of several, the parts have one origin.
type Question = (Origin, PartitionId);

/// A subscription to one partition.
type Place = (SessionId, u32, PartitionId);

/// The fate of a command while no leader is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Noted {
    /// It is asked as soon as somebody leads.
    Kept,
    /// It has to wait itself.
    Passing,
}

/// A subscription or a question.
#[derive(Debug)]
struct Kept {
    /// As it would be asked now.
    command: Command,
    /// Whether the leader has been asked.
    is_asked: bool,
    /// Since when it is as it is.
    since: Timestamp,
}

/// A request that was sent to another node under one origin and is not answered.
#[derive(Debug, Default)]
struct UnderWay {
    count: u64,
    bytes: u64,
}

/// The requests on which sessions count.
#[derive(Debug, Default)]
pub(super) struct OpenRequests {
    subscriptions: BTreeMap<Place, Kept>,
    questions: BTreeMap<Question, Kept>,
    under_way: BTreeMap<Origin, UnderWay>,
    bytes_under_way: u64,
    /// How many subscriptions and questions are to be asked.
    unasked: usize,
}

impl OpenRequests {
    /// Notes a command, which is asked at once if somebody leads.
    pub(super) fn note(&mut self, command: &Command, is_led: bool, now: Timestamp) -> Noted {
        let kept = || Kept { command: command.clone(), is_asked: is_led, since: now };
        match command {
            Command::Subscribe(subscribe) => {
                let place = (subscribe.origin.session, subscribe.subscription, subscribe.partition);
                self.keep(place, kept())
            }
            Command::Read(read) => {
                self.keep((read.origin.session, read.subscription, read.partition), kept())
            }
            Command::SetCredit { session, subscription, partition, credit, .. } => {
                let place = (*session, *subscription, *partition);
                self.change(place, is_led, |command| match command {
                    Command::Subscribe(subscribe) => subscribe.credit = *credit,
                    Command::Read(read) => read.credit = *credit,
                    _ => {}
                })
            }
            Command::Reader { session, subscription, partition, change } => {
                let place = (*session, *subscription, *partition);
                match change {
                    ReaderChange::Credit(credit) => self.change(place, is_led, |command| {
                        if let Command::Read(read) = command {
                            read.credit = *credit;
                        }
                    }),
                    // Asked again, it begins with its whole window.
                    ReaderChange::Taken { .. } => self.change(place, is_led, |_| ()),
                    ReaderChange::End => self.forget(place),
                }
            }
            Command::Unsubscribe { session, subscription, partition, .. } => {
                self.forget((*session, *subscription, *partition))
            }
            Command::EndSession { session, .. } => self.end_session(*session),
            Command::Stream(origin, _, StreamCommand::StopReading) => {
                self.forget_question(*origin);
                Noted::Passing
            }
            command => {
                let Some(question) = question_of(command) else { return Noted::Passing };
                self.unasked += usize::from(!is_led);
                if let Some(before) = self.questions.insert(question, kept()) {
                    self.unasked -= usize::from(!before.is_asked);
                }
                Noted::Kept
            }
        }
    }

    /// Notes that a command which is answered once was sent to another node.
    pub(super) fn sent(&mut self, command: &Command, bytes: u64) {
        if question_of(command).is_some() {
            return;
        }
        if let Some(origin) = answered_once(command) {
            let under_way = self.under_way.entry(origin).or_default();
            under_way.count += 1;
            under_way.bytes += bytes;
            self.bytes_under_way += bytes;
        }
    }

    /// Hears an effect for a session of this node; false if the session is not told of it.
    pub(super) fn hear(&mut self, effect: &Effect, is_from_afar: bool) -> bool {
        match effect {
            Effect::Deliver(delivery) => {
                let next = Offset(delivery.first.0 + u64::from(delivery.count));
                self.reached((delivery.session, delivery.subscription, delivery.partition), next);
            }
            Effect::Gap { session, subscription, partition, range, .. } => {
                self.reached((*session, *subscription, *partition), range.end);
            }
            Effect::SubscriptionEnded { session, subscription, partition }
            | Effect::CursorTaken { session, subscription, partition }
            | Effect::ReaderTooSlow { session, subscription, partition } => {
                self.forget((*session, *subscription, *partition));
            }
            Effect::SubscriptionInterrupted { session, subscription, partition } => {
                let kept = self.subscriptions.get_mut(&(*session, *subscription, *partition));
                if let Some(kept) = kept {
                    self.unasked += usize::from(std::mem::replace(&mut kept.is_asked, false));
                }
                return false;
            }
            Effect::Refused { origin, refusal } => return self.refused(*origin, refusal),
            Effect::PublishNoted(_)
            | Effect::Subscribed { .. }
            | Effect::AttemptsFailed(_)
            | Effect::DeadLetterTopicNeeded { .. }
            | Effect::StreamEnded { .. } => {}
            // One that asks for no answer is answered if it was stale.
            Effect::Settled(settled) => {
                self.answer_question((settled.origin, settled.partition));
            }
            effect => {
                let Some(origin) = answers(effect) else { return true };
                let was_awaited = self.forget_question(origin) || self.answered(origin);
                return was_awaited || !is_from_afar;
            }
        }
        true
    }

    /// Another node leads, or nobody: tells the sessions what is not known, at `now`.
    pub(super) fn lose_leader(&mut self, now: Timestamp, out: &mut Vec<Effect>) {
        self.bytes_under_way = 0;
        for (origin, UnderWay { count, .. }) in std::mem::take(&mut self.under_way) {
            let refused = || Effect::Refused { origin, refusal: Refusal::OutcomeUnknown };
            out.extend((0..count).map(|_| refused()));
        }
        for kept in self.subscriptions.values_mut().chain(self.questions.values_mut()) {
            (kept.is_asked, kept.since) = (false, now);
        }
        self.unasked = self.subscriptions.len() + self.questions.len();
    }

    /// The commands that the present leader has to be asked; they count as asked from now on.
    pub(super) fn ask(&mut self) -> Vec<Command> {
        if self.unasked == 0 {
            return Vec::new();
        }
        self.unasked = 0;
        let all = self.subscriptions.values_mut().chain(self.questions.values_mut());
        let unasked = all.filter(|kept| !kept.is_asked).map(|kept| {
            kept.is_asked = true;
            kept.command.clone()
        });
        unasked.collect()
    }

    /// Questions that nobody could be asked since `since` or longer are answered: nobody leads.
    pub(super) fn give_up_questions(&mut self, since: Timestamp, out: &mut Vec<Effect>) {
        if self.unasked == 0 {
            return;
        }
        let is_late = |_: &Question, kept: &mut Kept| !kept.is_asked && kept.since <= since;
        for ((origin, _), _) in self.questions.extract_if(.., is_late) {
            self.unasked -= 1;
            out.push(Effect::Refused { origin, refusal: Refusal::NoLeader });
        }
    }

    /// Published bytes that were sent to another node and are not answered.
    pub(super) fn bytes_under_way(&self) -> u64 {
        self.bytes_under_way
    }

    fn keep(&mut self, place: Place, kept: Kept) -> Noted {
        self.unasked += usize::from(!kept.is_asked);
        if let Some(before) = self.subscriptions.insert(place, kept) {
            self.unasked -= usize::from(!before.is_asked);
        }
        Noted::Kept
    }

    /// Changes what would be asked now. Without a leader that is to be asked.
    fn change(&mut self, place: Place, is_led: bool, change: impl FnOnce(&mut Command)) -> Noted {
        if let Some(kept) = self.subscriptions.get_mut(&place) {
            change(&mut kept.command);
            if !is_led {
                self.unasked += usize::from(std::mem::replace(&mut kept.is_asked, false));
            }
        }
        Noted::Kept
    }

    fn forget(&mut self, place: Place) -> Noted {
        if let Some(kept) = self.subscriptions.remove(&place) {
            self.unasked -= usize::from(!kept.is_asked);
        }
        Noted::Passing
    }

    fn end_session(&mut self, session: SessionId) -> Noted {
        let places = (session, 0, PartitionId::default())..;
        let of_session: Vec<_> =
            self.subscriptions.range(places).map(|(place, _)| *place).collect();
        for place in of_session.into_iter().take_while(|(of, _, _)| *of == session) {
            self.forget(place);
        }
        Noted::Passing
    }

    fn forget_question(&mut self, origin: Origin) -> bool {
        let first = self.questions_of(origin).next();
        first.is_some_and(|question| self.answer_question(question))
    }

    fn questions_of(&self, origin: Origin) -> impl Iterator<Item = Question> {
        let from = self.questions.range((origin, PartitionId::default())..);
        from.map(|(question, _)| *question).take_while(move |(of, _)| *of == origin)
    }

    fn answer_question(&mut self, question: Question) -> bool {
        let kept = self.questions.remove(&question);
        self.unasked -= usize::from(kept.as_ref().is_some_and(|kept| !kept.is_asked));
        kept.is_some()
    }

    /// A reader has got everything before this offset.
    fn reached(&mut self, place: Place, next: Offset) {
        if let Some(Kept { command: Command::Read(read), .. }) = self.subscriptions.get_mut(&place)
        {
            read.at = read.at.max(next);
        }
    }

    /// Whether something that was sent under this origin is answered now.
    fn answered(&mut self, origin: Origin) -> bool {
        let Some(under_way) = self.under_way.get_mut(&origin) else { return false };
        let bytes = under_way.bytes / under_way.count;
        under_way.bytes -= bytes;
        under_way.count -= 1;
        self.bytes_under_way -= bytes;
        if under_way.count == 0 {
            self.under_way.remove(&origin);
        }
        true
    }

    /// Whether the session is told of a refusal. Questions and subscriptions that were refused because of who leads are
    /// asked again.
    fn refused(&mut self, origin: Origin, refusal: &Refusal) -> bool {
        let is_about_leader = matches!(
            refusal,
            Refusal::OutcomeUnknown | Refusal::NoLeader | Refusal::NotLeader { .. }
        );
        if is_about_leader {
            let questions: Vec<_> = self.questions_of(origin).collect();
            let of_origin = questions.iter().filter_map(|question| {
                let kept = self.questions.get_mut(question)?;
                Some(usize::from(std::mem::replace(&mut kept.is_asked, false)))
            });
            self.unasked += of_origin.sum::<usize>();
            if !questions.is_empty() {
                return false;
            }
        }
        if self.forget_question(origin) || self.answered(origin) {
            return true;
        }
        // Only a subscription is left that it may answer.
        let first = (origin.session, 0, PartitionId::default());
        let of_session = self.subscriptions.range(first..);
        let refused: Vec<_> = of_session
            .take_while(|((session, _, _), _)| *session == origin.session)
            .filter(|(_, kept)| origin_of(&kept.command) == Some(origin))
            .map(|(place, _)| *place)
            .collect();
        let is_kept = is_about_leader && !refused.is_empty();
        for place in refused {
            if is_about_leader {
                self.change(place, false, |_| ());
            } else {
                self.forget(place);
            }
        }
        !is_kept
    }
}

/// The question that a command is, if it may be asked again.
fn question_of(command: &Command) -> Option<Question> {
    let (origin, partition) = match command {
        Command::Partition(origin, partition, _) | Command::Stream(origin, partition, _) => {
            (*origin, *partition)
        }
        Command::Settle(settle) if settle.confirm => (settle.origin, settle.partition),
        _ => return None,
    };
    may_be_repeated(command).then_some((origin, partition))
}

/// Whether a command does nothing twice when it is done twice.
fn may_be_repeated(command: &Command) -> bool {
    match command {
        Command::Settle(_) => true,
        Command::Partition(_, _, command) => matches!(
            command,
            PartitionCommand::Describe
                | PartitionCommand::Locate(..)
                | PartitionCommand::ListCursors
                | PartitionCommand::Explain(..)
                | PartitionCommand::ListKeys(..)
                | PartitionCommand::ListDelayed(..)
        ),
        Command::Stream(_, _, command) => {
            matches!(command, StreamCommand::Read(_) | StreamCommand::Status { .. })
        }
        _ => false,
    }
}

/// The origin of a command that is answered once, whatever comes of it.
fn answered_once(command: &Command) -> Option<Origin> {
    match command {
        Command::Settle(_) => None,
        Command::Subscribe(_) | Command::Read(_) => None,
        Command::Stream(_, _, StreamCommand::StopReading) => None,
        command => origin_of(command),
    }
}

/// Where a refusal of a command goes.
pub(super) fn origin_of(command: &Command) -> Option<Origin> {
    match command {
        Command::Publish(publish) | Command::PublishAt(publish, _) => Some(publish.origin),
        Command::PublishAtomic(step) => Some(step.origin),
        Command::Settle(settle) => Some(settle.origin),
        Command::Subscribe(subscribe) => Some(subscribe.origin),
        Command::Read(read) => Some(read.origin),
        Command::Stream(_, _, StreamCommand::StopReading) => None,
        Command::Catalogue(origin, _)
        | Command::Partition(origin, _, _)
        | Command::Stream(origin, _, _)
        | Command::AppendTogether(origin, _) => Some(*origin),
        Command::Reader { .. }
        | Command::SetCredit { .. }
        | Command::Unsubscribe { .. }
        | Command::EndSession { .. }
        | Command::SetThrottles(_)
        | Command::WatchFailures(_)
        | Command::DecideFailures(_) => None,
    }
}

/// The command whose answer an effect is.
fn answers(effect: &Effect) -> Option<Origin> {
    match effect {
        Effect::Confirmed(confirmed) => Some(confirmed.origin),
        Effect::Settled(settled) => Some(settled.origin),
        Effect::Done { origin, .. }
        | Effect::PublishedAt { origin, .. }
        | Effect::PublishedAtomic { origin, .. }
        | Effect::Described { origin, .. }
        | Effect::Located { origin, .. }
        | Effect::Cursors { origin, .. }
        | Effect::Delayed { origin, .. }
        | Effect::DelaysChanged { origin, .. }
        | Effect::Explained { origin, .. }
        | Effect::Keys { origin, .. }
        | Effect::Unparked { origin, .. }
        | Effect::Walked { origin, .. }
        | Effect::Refused { origin, .. }
        | Effect::Stream(origin, _) => Some(*origin),
        Effect::PublishNoted(_)
        | Effect::Subscribed { .. }
        | Effect::Deliver(_)
        | Effect::SubscriptionEnded { .. }
        | Effect::SubscriptionInterrupted { .. }
        | Effect::CursorTaken { .. }
        | Effect::ReaderTooSlow { .. }
        | Effect::Gap { .. }
        | Effect::AttemptsFailed(_)
        | Effect::DeadLetterTopicNeeded { .. }
        | Effect::StreamEnded { .. } => None,
    }
}

#[cfg(test)]
mod tests;
