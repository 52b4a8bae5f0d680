//! The file descriptors of the process: it takes as many as the system allows, and reserves those that the log
//! needs.

use std::os::fd::{AsFd, AsRawFd as _};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that connections leave to a shard, if that is not more than half of all.
const RESERVED_PER_SHARD: u64 = 256;

/// What connections may have of the process's descriptors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileDescriptors {
    /// The first that is the log's.
    reserved: u64,
}

impl FileDescriptors {
    /// Has the process be given all that it may have: as a rule it begins with far fewer.
    pub(crate) fn raise(shards: usize) -> Self {
        let limit = getrlimit(Resource::Nofile);
        let all = Rlimit { current: limit.maximum, ..limit };
        let current = match setrlimit(Resource::Nofile, all) {
            Ok(()) => limit.maximum,
            Err(error) => {
                tracing::warn!(%error, "the limit of open files stays as it is");
                limit.current
            }
        };
        let all = current.unwrap_or(u64::MAX);
        Self { reserved: all - (shards as u64 * RESERVED_PER_SHARD).min(all / 2) }
    }

    /// Half of those that connections may have: nobody alone needs more.
    pub(crate) fn half(self) -> usize {
        usize::try_from(self.reserved / 2).unwrap_or(usize::MAX).max(1)
    }

    /// Whether there is room for this connection. The lowest free number is a new descriptor's.
    pub(crate) fn have_room_for(self, connection: &impl AsFd) -> bool {
        u64::try_from(connection.as_fd().as_raw_fd()).is_ok_and(|number| number < self.reserved)
    }
}
