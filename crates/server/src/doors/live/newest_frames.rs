//! The newest frame of each key of a topic, in one encoding, for subscribers that have lost their place in the ring of a
//! topic that conflates. They share it: each is at an offset, and what it has not read when a newer message of the key
//! comes it does not get. It knows no sockets.

use std::{
    collections::{BTreeMap, HashMap},
    rc::Rc,
};

use foldhash::fast::RandomState;

/// What an entry takes in memory beside its key and its frame, as it is counted.
const ENTRY_BYTES: usize = 128;

/// Frames by the offset of their message, one for each key.
#[derive(Debug)]
pub(crate) struct NewestFrames {
    frames: BTreeMap<u64, Entry>,
    offsets: HashMap<Rc<[u8]>, u64, RandomState>,
    bytes: usize,
    /// Each key whose newest message is not before this offset has its frame here.
    from: u64,
}

#[derive(Debug)]
struct Entry {
    key: Rc<[u8]>,
    frame: Box<[u8]>,
}

impl Entry {
    fn bytes(&self) -> usize {
        ENTRY_BYTES + self.key.len() + self.frame.len()
    }
}

impl NewestFrames {
    /// None yet, of messages from this offset on.
    pub(crate) fn from(offset: u64) -> Self {
        Self { frames: BTreeMap::new(), offsets: HashMap::default(), bytes: 0, from: offset }
    }

    /// Whether one who needs what is not before `offset` finds it here.
    pub(crate) fn reach(&self, offset: u64) -> bool {
        offset >= self.from
    }

    /// Bytes that it holds.
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    /// Takes the frame of a message, in parts, in place of the one that its key has had. Offsets rise.
    pub(crate) fn push(&mut self, offset: u64, key: &[u8], parts: [&[u8]; 3]) {
        let key = match self.offsets.get_key_value(key) {
            Some((held, before)) => {
                let (held, before) = (held.clone(), *before);
                if let Some(replaced) = self.frames.remove(&before) {
                    self.bytes -= replaced.bytes();
                }
                held
            }
            None => Rc::from(key),
        };
        self.offsets.insert(key.clone(), offset);
        let entry = Entry { key, frame: parts.concat().into() };
        self.bytes += entry.bytes();
        self.frames.insert(offset, entry);
    }

    /// Lets the oldest go until there are no more than so many keys and bytes: who needs them reads the log.
    pub(crate) fn shrink(&mut self, keys: usize, bytes: usize) {
        while (self.bytes > bytes || self.frames.len() > keys)
            && let Some((offset, oldest)) = self.frames.pop_first()
        {
            self.bytes -= oldest.bytes();
            self.offsets.remove(&oldest.key);
            self.from = offset + 1;
        }
    }

    /// Nobody needs what comes before this offset.
    pub(crate) fn clear(&mut self, next: u64) {
        *self = Self::from(next);
    }

    /// The frames of messages that are not before `offset`, each with its offset.
    pub(crate) fn behind(&self, offset: u64) -> impl Iterator<Item = (u64, &[u8])> {
        self.frames.range(offset..).map(|(offset, entry)| (*offset, &*entry.frame))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn all(frames: &NewestFrames, offset: u64) -> Vec<(u64, &[u8])> {
        frames.behind(offset).collect()
    }

    #[test]
    fn a_key_has_its_newest_frame_where_that_was_published() {
        let mut frames = NewestFrames::from(4);
        frames.push(4, b"a", [b"4", b"", b""]);
        frames.push(5, b"b", [b"5", b"!", b""]);
        frames.push(7, b"a", [b"7", b"", b""]);
        assert_eq!(all(&frames, 0), [(5, &b"5!"[..]), (7, b"7")]);
        assert_eq!(all(&frames, 6), [(7, &b"7"[..])]);
        assert!(frames.reach(4) && !frames.reach(3));
    }

    #[test]
    fn what_goes_is_told_by_the_offset_from_which_all_is_there() {
        let mut frames = NewestFrames::from(0);
        for offset in 0..10_u64 {
            frames.push(offset, &[offset as u8], [&[0; 100], &[], &[]]);
        }
        frames.shrink(4, usize::MAX);
        assert_eq!(all(&frames, 0).len(), 4);
        assert!(frames.reach(6) && !frames.reach(5));
        frames.shrink(4, 2 * (ENTRY_BYTES + 101));
        assert!(frames.reach(8) && !frames.reach(7));
        // A key that has gone is one like any other when it comes back.
        frames.push(10, &[0], [b"again", b"", b""]);
        assert_eq!(all(&frames, 10), [(10, &b"again"[..])]);
        frames.clear(11);
        assert_eq!((frames.len(), frames.reach(11), frames.reach(10)), (0, true, false));
    }

    /// What happens next.
    #[derive(Clone, Debug)]
    enum Step {
        Publish(u8),
        /// The reader takes so many frames.
        Read(usize),
        Shrink(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            6 => (0..12_u8).prop_map(Step::Publish),
            2 => (0..6_usize).prop_map(Step::Read),
            1 => (0..8_usize).prop_map(Step::Shrink),
        ];
        vec(step, 0..200)
    }

    proptest! {
        /// A reader that takes what is here, or from the log where that does not reach, has the newest message of each key
        /// in the end, and never an older one of a key behind a newer one.
        #[test]
        fn a_reader_of_any_pace_ends_with_the_newest_of_each_key(steps in steps()) {
            let mut frames = NewestFrames::from(0);
            let mut log: Vec<u8> = Vec::new();
            let mut next = 0_u64;
            let mut seen: BTreeMap<u8, u64> = BTreeMap::new();
            let last = [Step::Read(usize::MAX)];
            for step in steps.into_iter().chain(last) {
                match step {
                    Step::Publish(key) => {
                        frames.push(log.len() as u64, &[key], [&[key], &[], &[]]);
                        log.push(key);
                    }
                    Step::Shrink(keys) => frames.shrink(keys, usize::MAX),
                    Step::Read(mut count) => while count > 0 && next < log.len() as u64 {
                        count -= 1;
                        let (offset, key) = if frames.reach(next) {
                            let Some((offset, frame)) = frames.behind(next).next() else { break };
                            (offset, frame[0])
                        } else {
                            (next, log[next as usize])
                        };
                        prop_assert_eq!(log[offset as usize], key);
                        prop_assert!(seen.insert(key, offset).is_none_or(|before| before < offset));
                        next = offset + 1;
                    }
                }
                let keys = frames.frames.len();
                prop_assert_eq!(frames.offsets.len(), keys);
                prop_assert_eq!(frames.bytes, keys * (ENTRY_BYTES + 2));
            }
            for (offset, key) in log.iter().enumerate() {
                prop_assert!(seen.get(key).is_some_and(|seen| *seen >= offset as u64));
            }
        }
    }
}
