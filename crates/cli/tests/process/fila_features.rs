//! Each documented feature of Fila by a test that is named after it. Fair scheduling, weights, throttles, limits and
//! pauses have theirs in `fair`, `on_failure` in `hook_failures`, crashes in `crash` and `torture`. Tests that run at the same
//! time share a broker.

use std::{
    process::Output,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use sennit_client::{Client, Consumer, GroupName, Header, Message, TopicName};
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    backup::get,
    bounds::{until, within},
    broker::{Broker, run},
};

/// The broker of the tests that run now.
static SHARED: Mutex<Weak<Shared>> = Mutex::new(Weak::new());

struct Shared {
    /// Dropped first, so that it is killed before its folder goes.
    broker: Broker,
    _folder: TempDir,
}

/// A test's own topic on the shared broker.
struct Queue {
    shared: Arc<Shared>,
    name: &'static str,
}

impl Queue {
    /// Creates topic `name`, which no other test uses, with a group.
    fn create(name: &'static str, options: &[&str]) -> Self {
        let mut held = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = held.upgrade().unwrap_or_else(|| {
            let folder = tempfile::tempdir().unwrap();
            let broker = Broker::start(folder.path());
            Arc::new(Shared { broker, _folder: folder })
        });
        *held = Arc::downgrade(&shared);
        drop(held);
        let queue = Self { shared, name };
        queue.ok(&[&["topic", "create", name], options].concat());
        queue
    }

    fn broker(&self) -> &Broker {
        &self.shared.broker
    }

    fn ok(&self, arguments: &[&str]) -> Vec<u8> {
        self.broker().ok(arguments, b"")
    }

    fn publish(&self, payload: &str, more: &[&str]) {
        self.ok(&[&["publish", self.name, payload], more].concat());
    }

    /// The payloads of the next `count` messages, acked.
    fn consume(&self, count: usize) -> Vec<String> {
        let count = count.to_string();
        let out = self.ok(&["consume", self.name, "--count", &count]);
        String::from_utf8(out).unwrap().lines().map(str::to_owned).collect()
    }

    /// Each line that a command prints as JSON.
    fn json(&self, arguments: &[&str]) -> Vec<Value> {
        let out = self.ok(&[arguments, &["--json"]].concat());
        let lines = std::str::from_utf8(&out).unwrap().lines();
        lines.map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The headers of the last message, as text.
    fn last_headers(&self) -> String {
        self.json(&["read", self.name, "--from", "-1"]).remove(0)["headers"].to_string()
    }

    /// The numbers of ready and of leased messages.
    fn counts(&self) -> (u64, u64) {
        let group = self.json(&["group", "describe", self.name, "default"]).remove(0);
        (group["ready"].as_u64().unwrap(), group["leased"].as_u64().unwrap())
    }

    /// Gives the topic a hook.
    fn hook(&self, source: &str) -> Output {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("script.lua");
        std::fs::write(&path, source).unwrap();
        let path = path.to_str().unwrap();
        run(self.broker().command(&["hook", "set", self.name, path]), b"")
    }

    async fn client(&self) -> Client {
        Client::connect(self.broker().listen.clone()).await.unwrap()
    }

    fn topic(&self) -> TopicName {
        self.name.parse().unwrap()
    }

    async fn consumer(&self, client: &Client, credit: u32) -> Consumer {
        let consumer = client.consumer(&self.topic(), &GroupName::default_group());
        consumer.credit_messages(credit).subscribe().await.unwrap()
    }
}

#[test]
fn create_queue_compiles_its_script_and_refuses_a_syntax_error() {
    let queue = Queue::create("create", &[]);
    let refused = queue.hook("function on_publish(msg) return {");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("line 1"), "{said}");
    assert!(queue.hook("function on_publish(msg) end").status.success());
    assert_eq!(queue.json(&["hook", "versions", queue.name]).len(), 1);
}

#[test]
fn delete_queue_removes_its_messages_for_good() {
    let queue = Queue::create("delete", &[]);
    queue.publish("old", &[]);
    queue.ok(&["topic", "delete", queue.name]);
    queue.ok(&["topic", "create", queue.name]);
    queue.publish("new", &[]);
    assert_eq!(queue.consume(1), ["new"]);
    assert_eq!(queue.counts(), (0, 0));
}

#[test]
fn list_queues_and_inspect_show_depth_leases_and_fair_keys() {
    let queue = Queue::create("inspect", &["--fair-key", "tenant"]);
    queue.publish("1", &["2", "3", "--header", "tenant=a"]);
    queue.publish("4", &["--header", "tenant=b"]);
    let listed = String::from_utf8(queue.ok(&["topic", "list"])).unwrap();
    assert!(listed.contains(queue.name), "{listed}");
    within("the description shows a lease", async {
        let client = queue.client().await;
        let mut consumer = queue.consumer(&client, 1).await;
        consumer.next().await.unwrap().unwrap();
        assert_eq!(queue.counts(), (3, 1));
        client.close().await;
    });
    let keys = queue.json(&["group", "keys", queue.name, "default"]);
    let keys: Vec<_> = keys.iter().map(|key| key["fair_key"].as_str().unwrap()).collect();
    assert_eq!(keys, ["a", "b"]);
}

#[test]
fn enqueue_takes_many_messages_for_several_queues_and_answers_each() {
    let (queue, other) = (Queue::create("enqueue-a", &[]), Queue::create("enqueue-b", &[]));
    within("each message has its answer", async {
        let client = queue.client().await;
        let publishers = [
            client.publisher(&queue.topic()).open().await.unwrap(),
            client.publisher(&other.topic()).open().await.unwrap(),
        ];
        let mut pending = Vec::new();
        for number in 0..20 {
            let message = Message::new(format!("{number}"));
            pending.push(publishers[number % 2].publish(message).await.unwrap());
        }
        // All are on their way before the first answer is awaited.
        for (number, pending) in (0..).zip(pending) {
            assert_eq!(pending.await.unwrap().offset.unwrap().0, number / 2);
        }
        let too_large = Message::new(vec![0; 64 << 20]);
        assert!(publishers[0].publish(too_large).await.is_err());
        client.close().await;
    });
    assert_eq!((queue.consume(10).len(), other.consume(10).len()), (10, 10));
}

#[test]
fn consume_pushes_each_message_to_one_of_the_consumers() {
    let queue = Queue::create("consume", &[]);
    within("two consumers share the messages", async {
        let client = queue.client().await;
        let mut consumers = [queue.consumer(&client, 2).await, queue.consumer(&client, 2).await];
        for number in 0..4 {
            queue.publish(&number.to_string(), &[]);
        }
        let mut seen = Vec::new();
        for consumer in &mut consumers {
            // No consumer gets more than it asked for, so each gets two.
            for _ in 0..2 {
                seen.push(consumer.next().await.unwrap().unwrap().offset().0);
            }
        }
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2, 3]);
        client.close().await;
    });
}

#[test]
fn nack_delivers_again_with_the_next_attempt_and_ack_ends_it() {
    let queue = Queue::create("nack", &[]);
    queue.publish("x", &[]);
    within("the message comes twice", async {
        let client = queue.client().await;
        let mut consumer = queue.consumer(&client, 1).await;
        let first = consumer.next().await.unwrap().unwrap();
        first.retry_confirmed().await.unwrap();
        let second = consumer.next().await.unwrap().unwrap();
        assert_eq!((first.attempt(), second.attempt()), (1, 2));
        // An ack of the first delivery does not settle the second.
        assert_eq!(first.ack_confirmed().await.unwrap().stale, 1);
        assert_eq!(queue.counts(), (0, 1));
        assert_eq!(second.ack_confirmed().await.unwrap().stale, 0);
        client.close().await;
    });
    assert_eq!(queue.counts(), (0, 0));
}

#[test]
fn visibility_timeout_gives_a_message_to_another_consumer_also_under_load() {
    let queue = Queue::create("visibility", &[]);
    queue.ok(&["group", "alter", queue.name, "default", "--lease", "200ms"]);
    queue.publish("held", &[]);
    within("the lease ends", async {
        let (silent, busy) = (queue.client().await, queue.client().await);
        let mut holder = queue.consumer(&silent, 1).await;
        let held = holder.next().await.unwrap().unwrap();
        // It takes nothing more.
        holder.set_credit(0, 0);
        let publisher = busy.publisher(&queue.topic()).open().await.unwrap();
        let mut consumer = queue.consumer(&busy, 1).await;
        // The broker is never idle until the held message comes.
        let again = loop {
            publisher.publish(Message::new("more")).await.unwrap().await.unwrap();
            let next = consumer.next().await.unwrap().unwrap();
            if next.offset() == held.offset() {
                break next;
            }
            next.ack();
        };
        assert_eq!((held.attempt(), again.attempt()), (1, 2));
        assert_eq!(held.ack_confirmed().await.unwrap().stale, 1);
        again.ack_confirmed().await.unwrap();
        silent.close().await;
        busy.close().await;
    });
}

#[test]
fn on_enqueue_sets_fairness_key_weight_and_throttle_keys_from_lua() {
    let options = ["--fair-key", "fair", "--weight", "share", "--throttle-keys", "limits"];
    let queue = Queue::create("on-enqueue", &options);
    let source = "
        function on_publish(msg)
          local limit = 'lua:' .. msg.topic
          return { fair_key = msg.headers.tenant, weight = 3, throttle_keys = { limit } }
        end";
    assert!(queue.hook(source).status.success());
    queue.publish("x", &["--header", "tenant=acme"]);
    let headers = queue.last_headers();
    for value in ["\"acme\"", "\"3\"", "\"lua:on-enqueue\""] {
        assert!(headers.contains(value), "{headers}");
    }
    assert_eq!(queue.json(&["group", "keys", queue.name, "default"])[0]["fair_key"], "acme");
}

#[test]
fn throttle_keys_need_a_token_of_all_buckets_or_take_none() {
    let queue = Queue::create("throttle", &["--throttle-keys", "limits"]);
    queue.ok(&["throttle", "set", "fila:provider", "1/h", "--burst", "3"]);
    queue.ok(&["throttle", "set", "fila:tenant", "1/h", "--burst", "1"]);
    let both = ["both2", "both3", "--header", "limits=fila:provider,fila:tenant"];
    queue.publish("both1", &both);
    queue.publish("one1", &["one2", "one3", "--header", "limits=fila:provider"]);
    // The second message of both has no token of the tenant, and leaves those of the provider.
    let mut consumed = queue.consume(3);
    consumed.sort_unstable();
    assert_eq!(consumed, ["both1", "one1", "one2"]);
    assert_eq!(queue.counts(), (3, 0));
    queue.ok(&["throttle", "delete", "fila:provider"]);
    assert_eq!(queue.consume(1), ["one3"]);
}

#[test]
fn runtime_config_is_set_listed_deleted_and_read_from_lua() {
    let queue = Queue::create("config", &[]);
    let source = "
        function on_publish(msg)
          return { headers = { plan = config.get('fila.plan') or 'none' } }
        end";
    assert!(queue.hook(source).status.success());
    queue.ok(&["kv", "set", "fila.plan", "gold"]);
    assert_eq!(queue.json(&["kv", "list", "fila."])[0]["key"], "fila.plan");
    queue.publish("x", &[]);
    assert!(queue.last_headers().contains("\"gold\""), "{}", queue.last_headers());
    queue.ok(&["kv", "delete", "fila.plan"]);
    queue.publish("y", &[]);
    assert!(queue.last_headers().contains("\"none\""), "{}", queue.last_headers());
}

#[test]
fn lua_limits_end_a_script_and_its_message_is_accepted() {
    let queue = Queue::create("lua-limits", &[]);
    for bomb in [
        "function on_publish(msg) while true do end end",
        "function on_publish(msg) return { refuse = ('a'):rep(9000):find('.-.-.-.-x') } end",
        "function on_publish(msg) local t = {} while true do t = { t, t } end end",
        "function on_publish(msg) io.open('/etc/passwd') end",
    ] {
        assert!(queue.hook(bomb).status.success());
        queue.publish("x", &[]);
    }
    assert_eq!(queue.consume(4).len(), 4);
}

#[test]
fn lua_circuit_breaker_opens_after_failures_in_a_row() {
    let queue = Queue::create("breaker", &[]);
    assert!(queue.hook("function on_publish(msg) error('broken') end").status.success());
    queue.broker().ok(&["publish", queue.name], &b"line\n".repeat(20));
    let cores = queue.json(&["hook", "status", queue.name]);
    let open = cores.iter().find(|core| core["state"] == "open").expect("it rests on a core");
    assert_eq!(open["failures"], 5);
    assert_eq!(queue.counts(), (20, 0));
}

#[test]
fn dead_letters_are_kept_with_their_reason_and_redriven_with_new_attempts() {
    let queue = Queue::create("redriven", &[]);
    queue.publish("x", &[]);
    let bury = ["--verdict", "dead-letter", "--reason", "no such customer"];
    queue.ok(&[&["consume", queue.name, "--count", "1"], &bury[..]].concat());
    let letters = || queue.json(&["dead-letters", queue.name, "count"]).remove(0);
    until("the message is a dead letter", || letters()["rows"][0]["name"] == "no such customer");
    assert_eq!(queue.json(&["dead-letters", queue.name, "redrive"])[0]["done"], 1);
    let again = queue.json(&["consume", queue.name, "--count", "1"]);
    assert_eq!((&again[0]["payload"], &again[0]["attempt"]), (&"x".into(), &1.into()));
}

#[test]
fn metrics_count_what_was_published_and_delivered() {
    let queue = Queue::create("metrics", &[]);
    queue.publish("x", &[]);
    queue.consume(1);
    let metrics = get(&queue.broker().http, "/metrics");
    for name in ["sennit_confirmed_messages_total", "sennit_delivered_messages_total"] {
        assert!(metrics.contains(name), "{name}");
    }
}

#[test]
fn trace_context_in_headers_comes_back_as_it_was_published() {
    let queue = Queue::create("headers", &[]);
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    within("the header comes back", async {
        let client = queue.client().await;
        let publisher = client.publisher(&queue.topic()).open().await.unwrap();
        let headers = vec![Header::text("traceparent", trace)];
        let message = Message { headers, ..Message::new("x") };
        publisher.publish(message).await.unwrap().await.unwrap();
        let mut consumer = queue.consumer(&client, 1).await;
        let delivery = consumer.next().await.unwrap().unwrap();
        let (name, _, value) = delivery.headers().next().unwrap().unwrap();
        assert_eq!((name, value), ("traceparent", trace.as_bytes()));
        delivery.ack();
        client.close().await;
    });
}
