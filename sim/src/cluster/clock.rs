//! The clocks of a node. They are set by the true time, which no node knows.

/// A clock that only goes forward, faster or slower than the true time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Its time that passes in a thousand of the true time.
    per_mille: u64,
}

impl Clock {
    /// A clock that goes `per_mille` thousandths as fast as the true time.
    pub fn new(per_mille: u64) -> Self {
        Self { per_mille }
    }

    /// Its time, in microseconds.
    pub fn read_us(self, now_us: u64) -> u64 {
        now_us * self.per_mille / 1000
    }

    /// The true time at which it shows `read_us`.
    pub fn true_us(self, read_us: u64) -> u64 {
        (read_us * 1000).div_ceil(self.per_mille)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_shows_a_time_when_the_true_time_has_come_and_not_before() {
        for per_mille in [900, 1000, 1100, 1500] {
            let clock = Clock::new(per_mille);
            for read_us in [0, 1, 7, 50_000, 1_000_003] {
                let at_us = clock.true_us(read_us);
                assert!(clock.read_us(at_us) >= read_us);
                assert!(at_us == 0 || clock.read_us(at_us - 1) < read_us);
            }
        }
    }
}
