//! The watches of the configuration on a connection. Each connection starts them anew behind what the last one has
//! told. It knows no socket.

use std::collections::BTreeMap;

use sennit_protocol::{Request, control};
use tokio::sync::mpsc;

use crate::{
    configuration_event::{
        ConfigurationChange, ConfigurationEntry, ConfigurationEvent, Event, checked,
    },
    connection_handle::ReplySender,
    error::Error,
};

struct Watching {
    /// Its revision is that of the last event.
    watch: control::WatchConfiguration,
    events: mpsc::Sender<Event>,
    /// Receives the result of the first request.
    answer: Option<ReplySender<()>>,
    /// The entries of an answer whose last frame has not come.
    entries: Vec<ConfigurationEntry>,
}

/// The watches of the configuration of a client, by number.
#[derive(Default)]
pub(crate) struct ConfigurationWatches {
    known: BTreeMap<u32, Watching>,
}

impl ConfigurationWatches {
    pub(crate) fn add(
        &mut self,
        watch: control::WatchConfiguration,
        events: mpsc::Sender<Event>,
        answer: ReplySender<()>,
    ) {
        let number = watch.subscription;
        let watching = Watching { watch, events, answer: Some(answer), entries: Vec::new() };
        self.known.insert(number, watching);
    }

    pub(crate) fn knows(&self, number: u32) -> bool {
        self.known.contains_key(&number)
    }

    pub(crate) fn remove(&mut self, number: u32) -> bool {
        self.known.remove(&number).is_some()
    }

    pub(crate) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.known.keys().copied()
    }

    /// The request that starts a watch.
    pub(crate) fn request(&mut self, number: u32) -> Option<Request> {
        let known = self.known.get_mut(&number)?;
        known.entries.clear();
        Some(Request::WatchConfiguration(known.watch.clone()))
    }

    /// Handles the answer.
    pub(crate) fn started(&mut self, number: u32) {
        if let Some(answer) = self.known.get_mut(&number).and_then(|known| known.answer.take()) {
            let _ = answer.send(Ok(()));
        }
    }

    /// Handles entries or changes. Returns the watch, if it is to end because its program does not take
    /// what comes.
    ///
    /// # Errors
    /// A key is none.
    pub(crate) fn told(
        &mut self,
        body: control::ConfigurationChanges,
    ) -> Result<Option<u32>, Error> {
        let control::ConfigurationChanges { subscription, changes, revision, reset, more } = body;
        // The frame may have been on its way when the watch ended.
        let Some(known) = self.known.get_mut(&subscription) else { return Ok(None) };
        let event = if reset {
            for control::ConfigurationChange { key, revision, value, .. } in changes {
                known.entries.push(ConfigurationEntry { key: checked(&key)?, revision, value });
            }
            if more {
                return Ok(None);
            }
            let entries = std::mem::take(&mut known.entries);
            ConfigurationEvent::All { entries, revision }
        } else {
            let change = |change: control::ConfigurationChange| {
                let control::ConfigurationChange { key, revision, deleted, value } = change;
                let value = (!deleted).then_some(value);
                Ok(ConfigurationChange { key: checked(&key)?, revision, value })
            };
            let changes = changes.into_iter().map(change).collect::<Result<_, Error>>()?;
            ConfigurationEvent::Changes { changes, revision }
        };
        known.watch.after_revision = Some(revision);
        if known.events.try_send(Ok(event)).is_ok() {
            return Ok(None);
        }
        // The program takes what waits, and then starts it anew.
        self.known.remove(&subscription);
        Ok(Some(subscription))
    }

    /// Handles a refused watch, or one that the broker has ended.
    pub(crate) fn refused(&mut self, number: u32, error: &Error) {
        let Some(Watching { events, answer, .. }) = self.known.remove(&number) else { return };
        fail(events, answer, error);
    }

    /// Ends all watches. Each program gets the error.
    pub(crate) fn fail(&mut self, error: &Error) {
        for Watching { events, answer, .. } in std::mem::take(&mut self.known).into_values() {
            fail(events, answer, error);
        }
    }
}

fn fail(events: mpsc::Sender<Event>, answer: Option<ReplySender<()>>, error: &Error) {
    match answer {
        Some(answer) => drop(answer.send(Err(error.clone()))),
        // Where there is no room for the error the watch is started anew, and then hears of it.
        None => drop(events.try_send(Err(error.clone()))),
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    fn changes(revision: u64) -> control::ConfigurationChanges {
        let change = control::ConfigurationChange { key: "k".into(), revision, ..<_>::default() };
        let changes = vec![change];
        control::ConfigurationChanges { subscription: 7, changes, revision, ..<_>::default() }
    }

    fn watching(room: usize) -> (ConfigurationWatches, mpsc::Receiver<Event>) {
        let mut watches = ConfigurationWatches::default();
        let (events, received) = mpsc::channel(room);
        let watch = control::WatchConfiguration { subscription: 7, ..<_>::default() };
        watches.add(watch, events, oneshot::channel().0);
        watches.started(7);
        (watches, received)
    }

    fn asked_after(watches: &mut ConfigurationWatches) -> Option<u64> {
        match watches.request(7) {
            Some(Request::WatchConfiguration(watch)) => watch.after_revision,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn entries_are_told_once_they_are_all_there_and_begin_anew_with_a_connection() {
        let (mut watches, mut events) = watching(8);
        let all = |revision, more| control::ConfigurationChanges {
            reset: true,
            more,
            ..changes(revision)
        };
        watches.told(all(5, true)).unwrap();
        assert!(events.try_recv().is_err());
        assert_eq!(asked_after(&mut watches), None, "the connection was lost");
        watches.told(all(6, true)).unwrap();
        watches.told(all(6, false)).unwrap();
        match events.try_recv() {
            Ok(Ok(ConfigurationEvent::All { entries, revision: 6 })) => {
                assert_eq!(entries.iter().map(|entry| entry.revision).collect::<Vec<_>>(), [6, 6]);
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(asked_after(&mut watches), Some(6));
    }

    #[test]
    fn a_watch_whose_program_is_busy_ends_and_the_program_has_what_came_before() {
        let (mut watches, mut events) = watching(2);
        assert_eq!(watches.told(changes(1)).unwrap(), None);
        assert_eq!(watches.told(changes(2)).unwrap(), None);
        assert_eq!(watches.told(changes(3)).unwrap(), Some(7));
        assert_eq!(watches.told(changes(4)).unwrap(), None, "nobody watches any more");
        for revision in [1, 2] {
            let event = events.try_recv().unwrap().unwrap();
            assert_eq!(event.revision(), revision);
        }
        assert_eq!(events.try_recv().unwrap_err(), mpsc::error::TryRecvError::Disconnected);
    }
}
