//! Schedules on three nodes: any node takes requests about them, one looks after them, and for each tick there is one message whoever is
//! killed.

use rustix::process::Signal;

use crate::{
    auth::{text, with_key},
    bounds::until,
    broker::Broker,
    cluster_nodes::{cluster, leader_of_catalogue, living},
    schedules::{shown, ticks},
};

/// What a node says when it refuses something about schedules.
fn refused(broker: &Broker, arguments: &[&str]) -> String {
    let output = broker.run(&[&["schedule"], arguments].concat(), b"");
    assert!(!output.status.success(), "{arguments:?}");
    text(&output.stderr)
}

#[test]
fn schedules_are_made_shown_changed_and_deleted_through_any_node() {
    let folder = tempfile::tempdir().unwrap();
    let brokers = cluster(folder.path(), &[]);
    brokers[0].ok(&["topic", "create", "jobs"], b"");
    for at in 0..3 {
        let node = |more: usize| &brokers[(at + more) % 3];
        let name = format!("leap-{at}");
        let options = ["--topic", "jobs", "--cron", "0 0 29 2 *", "--payload", "x"];
        let create = [&["schedule", "create", &name], &options[..]].concat();
        node(0).ok(&create, b"");
        node(1).ok(&create, b"");
        let made = shown(node(0), &name);
        for broker in &brokers {
            assert_eq!(shown(broker, &name), made);
        }
        let other = ["create", &name, "--topic", "jobs", "--cron", "0 0 28 2 *"];
        let said = refused(node(2), &other);
        assert!(said.contains("exists with cron 0 0 29 2 *, not 0 0 28 2 *"), "{said}");
        let said = refused(node(2), &["create", "s", "--topic", "jobs", "--cron", "0 25 * * *"]);
        assert!(said.contains("is no hour"), "{said}");
        let said = refused(node(2), &["create", "s", "--topic", "none", "--cron", "0 2 * * *"]);
        assert!(said.contains("there is no topic \"none\""), "{said}");

        node(1).ok(&["schedule", "pause", &name], b"");
        let listed = text(&node(2).ok(&["schedule", "list"], b""));
        assert!(listed.contains("paused") && listed.lines().count() == 1, "{listed}");
        node(2).ok(&["schedule", "resume", &name], b"");
        node(0).ok(&["schedule", "run-now", &name], b"");
        assert_eq!(shown(node(1), &name)["published"], 1);
        assert_eq!(node(2).ok(&["consume", "jobs", "-n", "1"], b""), b"x\n");
        node(1).ok(&["schedule", "delete", &name], b"");
        for broker in &brokers {
            let said = refused(broker, &["show", &name]);
            assert!(said.contains(&format!("there is no schedule \"{name}\"")), "{said}");
        }
    }
}

#[test]
fn for_each_tick_there_is_one_message_though_the_node_that_looks_after_them_is_killed_again_and_again()
 {
    let folder = tempfile::tempdir().unwrap();
    let mut brokers = cluster(folder.path(), &[]);
    brokers[0].ok(&["topic", "create", "jobs"], b"");
    let options = ["--topic", "jobs", "--cron", "* * * * * *", "--catch-up", "all"];
    brokers[1].ok(&[&["schedule", "create", "each"], &options[..]].concat(), b"");
    let mut seen = 0;
    for round in 0..4 {
        let killed = leader_of_catalogue(&brokers);
        until("the schedule ticks", || {
            let count = ticks(&brokers[killed]).len();
            let has_more = count > seen;
            seen = seen.max(count);
            has_more
        });
        // As soon as a message is there: its note may not be.
        brokers[killed].kill();
        {
            let living = living(&brokers, killed);
            until("another node ticks", || ticks(living[0]).len() > seen);
            // A change that was made through any node is in force wherever it ticks next.
            let name = format!("beside-{round}");
            let beside = ["--topic", "jobs", "--cron", "0 0 29 2 *"];
            living[1].ok(&[&["schedule", "create", &name], &beside[..]].concat(), b"");
        }
        brokers[killed].start_again();
    }
    let leader = leader_of_catalogue(&brokers);
    brokers[leader].ok(&["schedule", "pause", "each"], b"");
    let ticks = ticks(&brokers[leader]);
    let expected: Vec<u64> = (0..ticks.len() as u64).map(|n| ticks[0] + 1000 * n).collect();
    assert_eq!(ticks, expected);
    let listed = text(&brokers[leader].ok(&["schedule", "list"], b""));
    assert_eq!(listed.lines().count(), 5, "{listed}");
}

#[test]
fn for_each_tick_there_is_one_message_though_the_node_that_looks_after_them_is_stopped_and_goes_on()
{
    let folder = tempfile::tempdir().unwrap();
    let brokers = cluster(folder.path(), &[]);
    brokers[0].ok(&["topic", "create", "jobs"], b"");
    let options = ["--topic", "jobs", "--cron", "* * * * * *", "--catch-up", "all"];
    brokers[1].ok(&[&["schedule", "create", "each"], &options[..]].concat(), b"");
    let until_more = |broker: &Broker| {
        let before = ticks(broker).len();
        until("the schedule ticks", || ticks(broker).len() > before + 1);
    };
    for _ in 0..3 {
        let stopped = leader_of_catalogue(&brokers);
        until_more(&brokers[stopped]);
        brokers[stopped].signal(Signal::STOP);
        until_more(living(&brokers, stopped)[0]);
        // Another node has made the ticks that are due by its clock.
        brokers[stopped].signal(Signal::CONT);
        until_more(&brokers[stopped]);
    }
    let leader = leader_of_catalogue(&brokers);
    brokers[leader].ok(&["schedule", "pause", "each"], b"");
    let ticks = ticks(&brokers[leader]);
    let expected: Vec<u64> = (0..ticks.len() as u64).map(|n| ticks[0] + 1000 * n).collect();
    assert_eq!(ticks, expected);
    assert_eq!(shown(&brokers[leader], "each")["published"], ticks.len());
}

#[test]
fn who_may_not_publish_to_the_topic_of_a_schedule_changes_none_through_any_node() {
    let folder = tempfile::tempdir().unwrap();
    let brokers = cluster(folder.path(), &[]);
    for topic in ["jobs", "mine"] {
        brokers[0].ok(&["topic", "create", topic], b"");
    }
    let options = ["--topic", "jobs", "--cron", "0 0 29 2 *"];
    brokers[0].ok(&[&["schedule", "create", "leap"], &options[..]].concat(), b"");
    let mut admin = String::new();
    until("the nodes have their keys", || {
        let output = brokers[1].run(&["auth", "key", "create", "first", "--role", "admin"], b"");
        admin = text(&output.stdout);
        output.status.success()
    });
    let create = ["auth", "key", "create", "limited", "--right", "publish mine", "--right"];
    let create = [&create[..], &["describe mine"]].concat();
    // A node that knows of no key takes any.
    until("the nodes let nobody in without a key", || {
        brokers.iter().all(|broker| !broker.run(&["topic", "list"], b"").status.success())
    });
    let made = with_key(&brokers[2], &admin, &create, "");
    assert!(made.status.success(), "{}", text(&made.stderr));
    let limited = text(&made.stdout);
    for (at, broker) in brokers.iter().enumerate() {
        let of = |arguments: &[&str]| {
            with_key(broker, &limited, &[&["schedule"], arguments].concat(), "")
        };
        until("the node knows the key", || of(&["list"]).status.success());
        assert_eq!(text(&of(&["list"]).stdout).lines().count(), at);
        for arguments in [
            &["pause", "leap"][..],
            &["delete", "leap"],
            &["show", "leap"],
            &["run-now", "leap"],
            &["create", "leap", "--topic", "mine", "--cron", "0 0 29 2 *"],
            &["create", "new", "--topic", "jobs", "--cron", "0 0 29 2 *"],
            &["show", "nothing"],
        ] {
            let output = of(arguments);
            let said = text(&output.stderr);
            assert!(!output.status.success() && said.contains("missing right"), "{said}");
        }
        let own = format!("own-{at}");
        let output = of(&["create", &own, "--topic", "mine", "--cron", "0 0 29 2 *"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let output = of(&["pause", &own]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(text(&of(&["list"]).stdout).lines().count(), at + 1);
    }
    let listed = with_key(&brokers[0], &admin, &["schedule", "list"], "");
    assert_eq!(text(&listed.stdout).lines().count(), 4);
}
