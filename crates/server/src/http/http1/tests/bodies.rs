//! What heads and bodies of requests take of their core, and when it comes free.

use super::*;

#[test]
fn a_connection_at_rest_holds_no_buffers() {
    in_a_world(1 << 20, async |mut world| {
        for piece in ["GET / HTTP/1.1\r\nHo", "st: x\r\n\r\n"] {
            world.say(piece).await;
        }
        world.answer("/", text("x")).await;
        world.hear().await;
        let bytes = size_of::<Http1<DuplexStream>>();
        assert!(bytes <= 640, "a connection takes {bytes} bytes");
    });
}

#[test]
fn a_body_counts_until_its_request_is_answered() {
    in_a_world(1 << 20, async |mut world| {
        let request = |body: &str| {
            let length = body.len();
            format!(
                "POST /v1/stream/a HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}"
            )
        };
        let mut others = world.thread_state.account();
        others.set(BODIES_BYTES_MAX - 10).unwrap();
        world.say(&(request("four") + &request("five"))).await;
        world.say(&request("six")).await;
        assert_eq!(world.paths().len(), 2, "there is no room for the third");
        world.answer("/v1/stream/a", text("1")).await;
        world.answer("/v1/stream/a", text("2")).await;
        let heard = world.hear_the_end().await;
        assert_eq!((heard.matches(" 200 ").count(), heard.matches(" 503 ").count()), (2, 1));
        drop(others);
        world.thread_state.account().set(BODIES_BYTES_MAX).unwrap();
    });
}

/// Whether so much is held of bodies, and no more.
fn holds(world: &World, bytes: usize) -> bool {
    let room = BODIES_BYTES_MAX - bytes;
    world.thread_state.account().set(room).is_ok()
        && world.thread_state.account().set(room + 1).is_err()
}

#[test]
fn what_came_behind_a_request_that_waits_counts_as_bodies_do() {
    in_a_world(1 << 20, async |mut world| {
        world.ask(&["/wait"]).await;
        world.say(&of_one_stream(&["PUT"])).await;
        assert!(holds(&world, 0));
        let behind = of_one_stream(&["GET"]).repeat(100);
        world.say(&behind).await;
        assert!(holds(&world, behind.len()));
        let mut others = world.thread_state.account();
        others.set(BODIES_BYTES_MAX - behind.len()).unwrap();
        world.say("G").await;
        drop(others);
        assert!(holds(&world, 0));
        world.answer("/wait", text("first")).await;
        let heard = world.hear_the_end().await;
        assert!(heard.contains("\r\n\r\nfirstHTTP/1.1 503 "), "{heard}");
    });
}

#[test]
fn what_came_behind_a_request_counts_no_more_once_it_is_begun() {
    in_a_world(1 << 20, async |mut world| {
        world.ask(&["/wait"]).await;
        world.say(&of_one_stream(&["PUT", "GET", "GET"])).await;
        assert!(holds(&world, of_one_stream(&["GET", "GET"]).len()));
        world.answer("/wait", text("first")).await;
        world.answer("/v1/stream/a", text("made")).await;
        assert_eq!(world.paths(), ["/v1/stream/a", "/v1/stream/a"]);
        assert!(holds(&world, 0));
    });
}

#[test]
fn a_body_is_refused_when_all_of_them_hold_too_much() {
    in_a_world(1 << 20, async |mut world| {
        world.say("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nxx").await;
        let mut others = world.thread_state.account();
        others.set(BODIES_BYTES_MAX - 2).unwrap();
        settled().await;
        world.say("x").await;
        assert!(world.hear_the_end().await.starts_with("HTTP/1.1 503 "));
        drop(others);
        // The one that was refused holds nothing any more.
        world.thread_state.account().set(BODIES_BYTES_MAX).unwrap();
    });
}

#[test]
fn long_heads_count_as_bodies_do_whether_they_are_whole_or_not() {
    let long = |end: &str| {
        let value = "x".repeat(HEAD_FREE_BYTES);
        format!("GET /a HTTP/1.1\r\nHost: x\r\nX: {value}{end}")
    };
    for end in ["", "\r\n\r\n"] {
        in_a_world(1 << 20, async |mut world| {
            let mut others = world.thread_state.account();
            others.set(BODIES_BYTES_MAX).unwrap();
            world.say(&long(end)).await;
            let heard = world.hear_the_end().await;
            assert!(heard.starts_with("HTTP/1.1 503 "), "{heard}");
            assert!(heard.contains("BODIES_BYTES_MAX"));
            drop(others);
            assert!(holds(&world, 0));
        });
    }
    in_a_world(1 << 20, async |mut world| {
        let mut others = world.thread_state.account();
        others.set(BODIES_BYTES_MAX).unwrap();
        world.ask(&["/healthz"]).await;
        assert_eq!(world.paths(), ["/healthz"], "a head of the usual length holds nothing");
        drop(others);
        let long = long("\r\n\r\n");
        world.say(&long).await;
        assert!(holds(&world, long.len() - HEAD_FREE_BYTES));
        world.answer("/healthz", text("")).await;
        world.answer("/a", text("")).await;
        assert!(holds(&world, 0), "it is answered");
    });
}
