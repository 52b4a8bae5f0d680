//! Returns memory that came free while a core was busy: the allocator keeps it until the thread allocates again,
//! which a thread at rest does not.

use std::time::Duration;

use tokio::{runtime::Handle, time::sleep};

/// How often it is looked whether the thread rests.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// It rests if it was busy for less than one of so many parts of that time.
const BUSY_PART: u32 = 50;

/// Gives back each time that this thread's runtime has come to rest, as long as that lives.
pub(crate) async fn give_back_at_rest(give_back: fn()) {
    let metrics = Handle::current().metrics();
    let mut busy_before = Duration::ZERO;
    let mut was_at_rest = false;
    loop {
        sleep(LOOK_EVERY).await;
        let busy = metrics.worker_total_busy_duration(0);
        let is_at_rest = busy.saturating_sub(busy_before) < LOOK_EVERY / BUSY_PART;
        if is_at_rest && !was_at_rest {
            give_back();
        }
        (busy_before, was_at_rest) = (busy, is_at_rest);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering::Relaxed},
        time::Instant,
    };

    use super::*;

    static GIVEN_BACK: AtomicUsize = AtomicUsize::new(0);

    /// Keeps the thread busy for longer than one at rest may be, and lets the clock go on to the next look.
    async fn work() {
        let begun = Instant::now();
        while begun.elapsed() < LOOK_EVERY / BUSY_PART * 2 {
            std::hint::spin_loop();
        }
        sleep(LOOK_EVERY).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_thread_gives_back_when_it_comes_to_rest_and_never_while_it_works() {
        tokio::task::LocalSet::new()
            .run_until(async {
                tokio::task::spawn_local(give_back_at_rest(|| {
                    GIVEN_BACK.fetch_add(1, Relaxed);
                }));
                for _ in 0..3 {
                    let before = GIVEN_BACK.load(Relaxed);
                    for _ in 0..3 {
                        work().await;
                        assert_eq!(GIVEN_BACK.load(Relaxed), before, "while it works");
                    }
                    // However busy the machine is, the thread itself is at rest before long.
                    let mut looks = 0;
                    while GIVEN_BACK.load(Relaxed) == before {
                        sleep(LOOK_EVERY).await;
                        looks += 1;
                        assert!(looks < 1000, "never given back");
                    }
                }
            })
            .await;
    }
}
