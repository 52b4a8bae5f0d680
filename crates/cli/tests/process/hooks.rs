//! Hooks of a broker that runs: what a script decides is what consumers get; a script that fails, loops or is none harms
//! nobody else.

use std::time::Instant;

use serde_json::Value;
use tempfile::TempDir;

use crate::{bounds::until, broker::Broker};

const FIELDS: &str = "
function on_publish(msg)
  if msg.headers.blocked then return { refuse = 'tenant is blocked' } end
  return {
    fair_key = msg.headers.tenant,
    weight = config.get('weight.' .. msg.headers.tenant),
    headers = { seen = msg.payload() },
  }
end";

/// A broker with a topic for jobs, and scripts in files.
struct World {
    folder: TempDir,
    broker: Broker,
}

impl World {
    fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let broker = Broker::start(folder.path());
        let topic = ["topic", "create", "jobs", "--fair-key", "fair", "--weight", "share"];
        broker.ok(&topic, b"");
        Self { folder, broker }
    }

    fn script(&self, source: &str) -> String {
        let path = self.folder.path().join("script.lua");
        std::fs::write(&path, source).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn set(&self, source: &str, more: &[&str]) {
        let path = self.script(source);
        self.broker.ok(&[&["hook", "set", "jobs", &path], more].concat(), b"");
    }

    /// The exit code of a command, and what it says.
    fn run(&self, arguments: &[&str], input: &[u8]) -> (i32, String) {
        let output = self.broker.run(arguments, input);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code().unwrap(), said)
    }

    fn lines(&self, arguments: &[&str]) -> Vec<String> {
        let out = self.broker.ok(arguments, b"");
        String::from_utf8(out).unwrap().lines().map(str::to_owned).collect()
    }

    fn json(&self, arguments: &[&str]) -> Vec<Value> {
        let lines = self.lines(arguments);
        lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The sum of a number over all cores.
    fn status(&self, field: &str) -> u64 {
        let cores = self.json(&["hook", "status", "jobs", "--json"]);
        cores.iter().map(|core| core[field].as_u64().unwrap()).sum()
    }
}

#[test]
fn what_a_hook_takes_from_headers_is_what_consumers_are_scheduled_by() {
    let world = World::start();
    world.broker.ok(&["kv", "set", "weight.b", "3"], b"");
    world.set(FIELDS, &["--note", "by plan"]);
    for tenant in ["a", "b"] {
        let lines: String = (0..400).map(|n| format!("{tenant}{n}\n")).collect();
        let header = format!("tenant={tenant}");
        world.broker.ok(&["publish", "jobs", "--header", &header], lines.as_bytes());
    }
    let consumed = world.lines(&["consume", "jobs", "--count", "200"]);
    let of_b = consumed.iter().filter(|line| line.starts_with('b')).count();
    assert!(of_b.abs_diff(150) <= 4, "{of_b} of 200 messages are of b, whose weight is 3");
    let read = world.json(&["read", "jobs", "--count", "1", "--json"]);
    assert!(read[0]["headers"].to_string().contains("\"a0\""), "{}", read[0]);
    let (code, said) = world.run(&["publish", "jobs", "x", "--header", "blocked=1"], b"");
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("tenant is blocked"), "{said}");
    assert_eq!((world.status("messages"), world.status("refused")), (801, 1));
}

#[test]
fn a_script_that_is_none_is_refused_with_its_line_and_changes_nothing() {
    let world = World::start();
    let bad = world.script("function on_publish(msg)\n  return {\nend");
    for verb in [&["hook", "check", &bad][..], &["hook", "set", "jobs", &bad]] {
        let (code, said) = world.run(verb, b"");
        assert_eq!(code, 1, "{said}");
        assert!(said.contains("line 3: unexpected symbol near 'end'"), "{said}");
    }
    assert_eq!(world.run(&["hook", "get", "jobs"], b"").0, 3);
    assert_eq!(world.run(&["hook", "set", "nowhere", &world.script(FIELDS)], b"").0, 3);
    let (code, said) = world.run(&["kv", "set", "hook.1", "x"], b"");
    assert_eq!(code, 2, "{said}");
    world.broker.ok(&["publish", "jobs", "goes through"], b"");
}

#[test]
fn versions_are_kept_over_a_kill_and_an_earlier_one_can_be_run_again() {
    let mut world = World::start();
    let source =
        |n: u32| format!("function on_publish() return {{ headers = {{ v = '{n}' }} }} end");
    for n in 1..=3 {
        world.set(&source(n), &[]);
    }
    world.broker.ok(&["hook", "rollback", "jobs", "2"], b"");
    world.broker.kill();
    world.broker.start_again();
    assert_eq!(world.lines(&["hook", "get", "jobs"]), [source(2)]);
    assert_eq!(world.lines(&["hook", "get", "jobs", "3"]), [source(3)]);
    let in_use: Vec<_> = world
        .json(&["hook", "versions", "jobs", "--json"])
        .iter()
        .map(|version| (version["version"].as_u64().unwrap(), version["in_use"] == true))
        .collect();
    assert_eq!(in_use, [(1, false), (2, true), (3, false)]);
    world.broker.ok(&["publish", "jobs", "x"], b"");
    let read = world.json(&["read", "jobs", "--json"]);
    assert!(read[0]["headers"].to_string().contains("\"2\""), "{}", read[0]);
    assert_eq!(world.run(&["hook", "rollback", "jobs", "9"], b"").0, 1);
    world.broker.ok(&["hook", "delete", "jobs"], b"");
    assert!(world.lines(&["hook", "list"]).is_empty());
    world.broker.ok(&["publish", "jobs", "plain"], b"");
    let read = world.json(&["read", "jobs", "--from", "-1", "--json"]);
    assert!(!read[0].to_string().contains("\"2\""), "{}", read[0]);
}

#[test]
fn the_breaker_opens_after_failures_and_messages_pass_or_are_refused_as_the_hook_wants() {
    let world = World::start();
    world.set("function on_publish(msg) error('broken') end", &[]);
    world.broker.ok(&["publish", "jobs"], &b"line\n".repeat(50));
    assert_eq!((world.status("failures"), world.status("messages")), (5, 0));
    let status = world.json(&["hook", "status", "jobs", "--json"]);
    let open = status.iter().find(|core| core["state"] == "open").expect("it rests on a core");
    assert_eq!(open["last_failure"], "line 1: broken");
    let refusing = "function on_publish(msg) if msg.key == 'bad' then error('bad') end end";
    world.set(refusing, &["--on-error", "refuse"]);
    let (code, said) = world.run(&["publish", "jobs", "x", "--key", "good"], b"");
    assert_eq!(code, 0, "{said}");
    assert_eq!(world.status("messages"), 1);
}

#[test]
fn scripts_that_take_too_much_do_not_hold_up_another_topic() {
    let world = World::start();
    world.broker.ok(&["topic", "create", "other"], b"");
    for bomb in [
        "function on_publish(msg) while true do end end",
        "function on_publish(msg) return { refuse = ('a'):rep(9000):find('.-.-.-.-x') } end",
        "function on_publish(msg) local t = {} while true do t = { t, t } end end",
        "function on_publish(msg) for i = 1, 9000 do local x = i end end",
    ] {
        world.set(bomb, &[]);
        let noisy = world.broker.command(&["publish", "jobs"]);
        let input = b"line\n".repeat(20_000);
        let noise = std::thread::spawn(move || crate::broker::run(noisy, &input));
        let begun = Instant::now();
        let mut published = 0;
        until("the other topic goes on", || {
            world.broker.ok(&["publish", "other", "x"], b"");
            published += 1;
            published == 5
        });
        assert!(begun.elapsed().as_secs() < 60, "{bomb}: {:?}", begun.elapsed());
        assert!(noise.join().unwrap().status.success(), "{bomb}");
    }
}

#[test]
fn a_dry_run_tells_what_a_script_would_do_and_changes_nothing() {
    let world = World::start();
    world.broker.ok(&["publish", "jobs", "first", "--header", "tenant=a"], b"");
    world.broker.ok(&["publish", "jobs", "second", "--header", "blocked=1"], b"");
    let good = world.script(FIELDS);
    let tried = world.json(&["hook", "check", &good, "--against", "jobs", "--json"]);
    assert_eq!(
        (&tried[0]["fair_key"], &tried[0]["headers"]["seen"]),
        (&"a".into(), &"first".into())
    );
    assert_eq!(tried[1]["refuse"], "tenant is blocked");
    let shown = world.lines(&["hook", "check", &good, "--against", "jobs", "--last", "1"]);
    assert_eq!(shown, ["0\t1\t\trefused\ttenant is blocked"]);
    let failing = world.script("function on_publish(msg) return { cost = 2 } end");
    let (code, said) = world.run(&["hook", "check", &failing, "--against", "jobs"], b"");
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("fails on 2 of 2 messages"), "{said}");
    assert_eq!(world.run(&["hook", "status", "jobs"], b"").0, 3);
}

#[test]
fn a_hook_decides_about_what_an_atomic_step_publishes_too() {
    let world = World::start();
    let seen = "function on_publish(msg) return { headers = { seen = msg.payload() } } end";
    world.set(seen, &[]);
    world.broker.ok(&["topic", "create", "intake", "--beside", "jobs"], b"");
    world.broker.ok(&["publish", "intake", "good"], b"");
    let step = ["consume", "intake", "--count", "1", "--exec", "cat", "--publish-to", "jobs"];
    world.broker.ok(&step, b"");
    let read = world.json(&["read", "jobs", "--count", "1", "--json"]);
    assert!(read[0]["headers"].to_string().contains("\"good\""), "{}", read[0]);
    assert_eq!(world.status("messages"), 1);
}
