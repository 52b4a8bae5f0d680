//! The clock that all processes of a run share, and waiting with a precision of a microsecond.

use std::{io, os::fd::OwnedFd, time::Duration};

use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use tokio::net::unix::pipe::Receiver;

/// Nanoseconds of the machine's monotonic clock, which all processes share.
#[must_use]
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // The clock counts up from the machine's start: neither part is negative.
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Blocks this thread until `instant_ns`.
pub fn sleep_until(instant_ns: u64) {
    let wait = instant_ns.saturating_sub(now_ns());
    if wait > 0 {
        std::thread::sleep(Duration::from_nanos(wait));
    }
}

/// A timer with a precision of a microsecond. The runtime's timers round to milliseconds, which is longer than a
/// confirm takes.
#[derive(Debug)]
pub struct Alarm {
    /// The timer's descriptor. The runtime has no type for it, and a pipe is read in the same way.
    timer: Receiver,
    /// The same timer, for setting it.
    set: OwnedFd,
}

impl Alarm {
    /// An alarm that is not set. The caller runs inside a runtime.
    ///
    /// # Errors
    /// The system provides no timer.
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Self { set: timer.try_clone()?, timer: Receiver::from_owned_fd_unchecked(timer)? })
    }

    /// Waits until `instant_ns`. Returns immediately if that is past.
    ///
    /// # Errors
    /// The system cannot set the timer.
    pub async fn until(&mut self, instant_ns: u64) -> io::Result<()> {
        if now_ns() >= instant_ns {
            return Ok(());
        }
        let second = i64::try_from(instant_ns / 1_000_000_000).unwrap_or(i64::MAX);
        let spec = Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: Timespec { tv_sec: second, tv_nsec: (instant_ns % 1_000_000_000) as _ },
        };
        timerfd_settime(&self.set, TimerfdTimerFlags::ABSTIME, &spec)?;
        let mut expirations = [0; 8];
        loop {
            self.timer.readable().await?;
            match self.timer.try_read(&mut expirations) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read.map(|_| ()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_does_not_ring_early() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut alarm = Alarm::new().unwrap();
            for wait in [0, 50_000, 300_000] {
                let instant = now_ns() + wait;
                alarm.until(instant).await.unwrap();
                assert!(now_ns() >= instant);
            }
        });
    }
}
