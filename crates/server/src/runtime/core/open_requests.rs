//! Open requests of this node's sessions to a group: subscriptions, questions, and commands that were sent to
//! the node that leads. When another node leads, subscriptions and questions are asked again there, as they are now. A
//! settlement that is to be confirmed is a question here: done twice it settles nothing twice. It knows no link and no
//! replica.

use std::collections::BTreeMap;

use sennit_engine::{
    Command, Effect, Origin, PartitionCommand, ReaderChange, Refusal, SessionId, StreamCommand,
};
use sennit_model::{Offset, PartitionId, Timestamp};

use super::{reader_window::ReaderWindow, sent_commands::SentCommands};

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
    /// Of a reader.
    window: ReaderWindow,
}

impl Kept {
    /// The command for a leader that is asked from now on.
    fn asked_anew(&mut self) -> Command {
        let mut command = self.command.clone();
        if let Command::Read(read) = &mut command {
            self.window.begin_anew();
            read.credit = self.window.left_of(read.credit);
        }
        command
    }
}

/// The requests on which sessions count.
#[derive(Debug, Default)]
pub(super) struct OpenRequests {
    subscriptions: BTreeMap<Place, Kept>,
    questions: BTreeMap<Question, Kept>,
    /// Commands that are answered once, at another node.
    pub(super) under_way: SentCommands,
    /// How many subscriptions and questions are to be asked.
    unasked: usize,
}

impl OpenRequests {
    /// Notes a command, which is asked at once if somebody leads. A change of a reader's window becomes what the leader is
    /// told of it, with a second command if one does not say it.
    pub(super) fn note(
        &mut self,
        command: &mut Command,
        is_led: bool,
        now: Timestamp,
    ) -> (Noted, Option<Command>) {
        let Command::Reader { session, subscription, partition, change } = command else {
            return (self.note_asked(command, is_led, now), None);
        };
        let (session, subscription, partition) = (*session, *subscription, *partition);
        if let ReaderChange::End = change {
            return (self.forget((session, subscription, partition)), None);
        }
        let second = self.change_reader((session, subscription, partition), is_led, change);
        let second =
            second.map(|change| Command::Reader { session, subscription, partition, change });
        (Noted::Kept, second)
    }

    fn note_asked(&mut self, command: &Command, is_led: bool, now: Timestamp) -> Noted {
        let kept = || Kept {
            command: command.clone(),
            is_asked: is_led,
            since: now,
            window: ReaderWindow::default(),
        };
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
                self.change(place, is_led, |kept| match &mut kept.command {
                    Command::Subscribe(subscribe) => subscribe.credit = *credit,
                    Command::Read(read) => read.credit = *credit,
                    _ => {}
                })
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

    /// Notes a command that was sent to another node. It publishes so many bytes.
    pub(super) fn sent(&mut self, command: &Command, bytes: u64) {
        if question_of(command).is_none()
            && let Some(origin) = answered_once(command)
        {
            self.under_way.add(origin, command.clone(), bytes);
        }
    }

    /// Hears an effect for a session of this node; false if the session is not told of it.
    pub(super) fn hear(&mut self, effect: &Effect, is_from_afar: bool) -> bool {
        match effect {
            Effect::Deliver(delivery) => {
                let next = Offset(delivery.first.0 + u64::from(delivery.count));
                let place = (delivery.session, delivery.subscription, delivery.partition);
                if let Some(window) = self.reached(place, next) {
                    window.delivered(delivery.count, delivery.messages.len() as u64);
                }
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
                let was_awaited = self.forget_question(origin) || self.under_way.answered(origin);
                return was_awaited || !is_from_afar;
            }
        }
        true
    }

    /// Hears an effect of the leader before; false if no session is told of it. It only answers what was sent there.
    pub(super) fn hear_late(&mut self, effect: &Effect) -> bool {
        answers(effect).is_some_and(|origin| self.under_way.answered(origin))
    }

    /// Another node leads, or nobody, since `now`: subscriptions and questions are to be asked again.
    pub(super) fn lose_leader(&mut self, now: Timestamp) {
        for kept in self.subscriptions.values_mut().chain(self.questions.values_mut()) {
            (kept.is_asked, kept.since) = (false, now);
        }
        self.unasked = self.subscriptions.len() + self.questions.len();
    }

    /// Whether the present leader has to be asked something.
    pub(super) fn are_unasked(&self) -> bool {
        self.unasked > 0
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
            kept.asked_anew()
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

    fn keep(&mut self, place: Place, kept: Kept) -> Noted {
        self.unasked += usize::from(!kept.is_asked);
        if let Some(before) = self.subscriptions.insert(place, kept) {
            self.unasked -= usize::from(!before.is_asked);
        }
        Noted::Kept
    }

    /// Changes what would be asked now. Without a leader that is to be asked.
    fn change(&mut self, place: Place, is_led: bool, change: impl FnOnce(&mut Kept)) -> Noted {
        if let Some(kept) = self.subscriptions.get_mut(&place) {
            change(kept);
            if !is_led {
                self.unasked += usize::from(std::mem::replace(&mut kept.is_asked, false));
            }
        }
        Noted::Kept
    }

    /// Changes what a reader holds, or its window. The leader is told what is left in `change`, and by the change that is
    /// returned.
    fn change_reader(
        &mut self,
        place: Place,
        is_led: bool,
        change: &mut ReaderChange,
    ) -> Option<ReaderChange> {
        let mut second = None;
        self.change(place, is_led, |kept| {
            let (Command::Read(read), held) = (&mut kept.command, &mut kept.window) else { return };
            match change {
                ReaderChange::Credit(window) => {
                    read.credit = *window;
                    *window = held.left_of(*window);
                }
                ReaderChange::Taken { messages, bytes } => {
                    let ((rest, rest_bytes), is_changed) = held.taken(*messages, *bytes);
                    let window = ReaderChange::Credit(held.left_of(read.credit));
                    (*messages, *bytes) = (rest, rest_bytes);
                    match rest {
                        _ if !is_changed => {}
                        0 => *change = window,
                        _ => second = Some(window),
                    }
                }
                ReaderChange::End => {}
            }
        });
        second
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

    /// A reader has got everything before this offset; returns what it holds.
    fn reached(&mut self, place: Place, next: Offset) -> Option<&mut ReaderWindow> {
        let Kept { command, window, .. } = self.subscriptions.get_mut(&place)?;
        let Command::Read(read) = command else { return None };
        read.at = read.at.max(next);
        Some(window)
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
        if self.forget_question(origin) || self.under_way.answered(origin) {
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
pub(super) fn answered_once(command: &Command) -> Option<Origin> {
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
