//! How long a client may take, of each thing that it does.

use super::*;

#[test]
fn a_head_that_takes_too_long_is_refused() {
    in_a_world(1 << 20, async |mut world| {
        let begin = Instant::now();
        // A byte now and then does not help.
        for byte in "GET / HT".chars() {
            world.say(&byte.to_string()).await;
            sleep(Duration::from_secs(1)).await;
        }
        assert!(world.hear_the_end().await.starts_with("HTTP/1.1 408 "));
        let took = begin.elapsed();
        assert!(took >= HEAD_TIMEOUT && took < HEAD_TIMEOUT + Duration::from_secs(1), "{took:?}");
    });
}

#[test]
fn a_body_may_take_its_time_as_long_as_something_comes() {
    in_a_world(1 << 20, async |mut world| {
        world.say("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n").await;
        for _ in 0..8 {
            sleep(BODY_TIMEOUT - Duration::from_secs(1)).await;
            world.say("x").await;
        }
        assert_eq!(world.hear().await, "");
        let begin = Instant::now();
        assert!(world.hear_the_end().await.starts_with("HTTP/1.1 408 "));
        assert!(begin.elapsed() >= BODY_TIMEOUT);
    });
}

#[test]
fn a_connection_at_rest_ends_after_a_while_and_a_busy_one_does_not() {
    in_a_world(1 << 20, async |mut world| {
        for _ in 0..5 {
            sleep(IDLE_TIMEOUT - Duration::from_secs(1)).await;
            world.ask(&["/"]).await;
            world.answer("/", text("here")).await;
            assert!(world.hear().await.ends_with("here"));
        }
        // Who waits for an answer is not at rest.
        world.ask(&["/"]).await;
        sleep(10 * IDLE_TIMEOUT).await;
        world.answer("/", text("late")).await;
        assert!(world.hear().await.ends_with("late"));
        let begin = Instant::now();
        assert_eq!(world.hear_the_end().await, "");
        let took = begin.elapsed();
        assert!(took >= IDLE_TIMEOUT && took < IDLE_TIMEOUT + Duration::from_secs(1), "{took:?}");
    });
}

#[test]
fn a_client_that_takes_nothing_is_closed() {
    in_a_world(100, async |mut world| {
        world.ask(&["/"]).await;
        world.answer("/", Body::Full(vec![b'x'; 1000].into())).await;
        sleep(WRITE_TIMEOUT - Duration::from_secs(1)).await;
        assert!(!world.thread_state.is_empty());
        sleep(Duration::from_secs(2)).await;
        assert!(world.thread_state.is_empty());
    });
}
