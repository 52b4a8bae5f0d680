//! Three nodes of which one finds a changed byte in its log when it starts: it never leads with it, and what was confirmed
//! is there.

use serde_json::Value;

use crate::{
    backup::get,
    bounds::until,
    broker::Broker,
    cluster_nodes::{own_address, three, until_caught_up, until_led},
    rotten::turn_over,
};

/// The group of the catalogue.
const CATALOGUE: usize = 0;

/// Three nodes, and a topic whose only partition lies in one group.
struct Cluster {
    folder: tempfile::TempDir,
    brokers: [Broker; 3],
    group: usize,
    topic: String,
    /// All that was confirmed.
    expected: Vec<String>,
}

impl Cluster {
    fn begin(group: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let addresses = std::array::from_fn(|_| own_address());
        let brokers = three(folder.path(), &addresses);
        until_led(&brokers.each_ref());
        // Topics take turns: the group follows from the number.
        let topic = (0..).map(|number| format!("t{number}")).find(|name| {
            brokers[0].ok(&["topic", "create", name, "--kind", "stream"], b"");
            let described = brokers[0].ok(&["topic", "describe", name, "--json"], b"");
            let described: Value = serde_json::from_slice(&described).unwrap();
            described["id"].as_u64().unwrap() as usize % 2 == group
        });
        Self { folder, brokers, group, topic: topic.unwrap(), expected: Vec::new() }
    }

    /// The indexes of the node that leads the group and of the two others, as these nodes know.
    fn led_by(&self, nodes: &[usize]) -> [usize; 3] {
        let brokers: Vec<_> = nodes.iter().map(|&node| &self.brokers[node]).collect();
        let leader = until_led(&brokers)[self.group] as usize - 1;
        [leader, (leader + 1) % 3, (leader + 2) % 3]
    }

    /// Publishes lines through a node.
    fn publish(&mut self, node: usize, prefix: &str) {
        let lines: Vec<_> = (0..5).map(|number| format!("{prefix} {number} of five")).collect();
        self.brokers[node].ok(&["publish", &self.topic], lines.join("\n").as_bytes());
        self.expected.extend(lines);
    }

    /// Changes a byte of this message in the log of a node that is not there.
    fn turn_over(&self, node: usize, message: &str) {
        turn_over(&self.folder.path().join((node + 1).to_string()), message);
    }

    /// Waits until a node says that its log is damaged. It says so before it lets anybody in.
    fn until_damaged(&self, node: usize) {
        until("the node says that its log is damaged", || {
            get(&self.brokers[node].http, "/readyz").contains("quarantined")
        });
    }

    /// Each node that lets callers in gives all that was confirmed, and this one leads nothing of the group. Without a
    /// catalogue it knows nobody, and lets nobody in.
    fn is_whole(&self, rotten: usize) {
        let serves = |node: &usize| *node != rotten || self.group != CATALOGUE;
        for broker in (0..3).filter(serves).map(|node| &self.brokers[node]) {
            until("the node lets callers in", || {
                broker.run(&["topic", "list"], b"").status.success()
            });
            let printed = broker.ok(&["read", &self.topic, "--from", "earliest"], b"");
            let lines = String::from_utf8(printed).unwrap();
            assert!(lines.lines().eq(&self.expected), "{lines}");
        }
        if self.group == CATALOGUE {
            let reason = "the replica of the catalogue is in quarantine";
            until("load balancers leave the node out, and learn why", || {
                let said: Value =
                    serde_json::from_str(&get(&self.brokers[rotten].http, "/readyz")).unwrap();
                let reasons = said["reasons"].as_array().unwrap();
                said["ready"] == false && reasons.iter().any(|one| one == reason)
            });
            return;
        }
        let metrics = get(&self.brokers[rotten].http, "/metrics");
        let own = format!("{{group=\"{}\"}}", self.group + 1);
        for (name, number) in [("quarantined", 1), ("elections_total", 0)] {
            let line = format!("sennit_replica_{name}{own} {number}");
            assert!(metrics.lines().any(|one| one == line), "not {line}: {metrics}");
        }
    }
}

#[test]
fn a_follower_with_a_changed_byte_never_leads_with_it() {
    for group in [0, 1] {
        let mut cluster = Cluster::begin(group);
        let [leader, rotten, other] = cluster.led_by(&[0, 1, 2]);
        cluster.publish(other, "before");
        // Behind what all have synced more lies: at its end a damaged log counts as one that was never whole.
        until_caught_up(&cluster.brokers[leader], group, &[rotten, other]);
        cluster.publish(leader, "behind");
        until_caught_up(&cluster.brokers[leader], group, &[rotten, other]);

        cluster.brokers[rotten].kill();
        cluster.turn_over(rotten, "before 2 of five");
        cluster.publish(other, "while it is away");
        cluster.brokers[rotten].start_again();
        cluster.until_damaged(rotten);
        cluster.is_whole(rotten);

        // It leads neither while the others are away in turn nor behind that.
        for round in 0..2 {
            let [leader, ..] = cluster.led_by(&[leader, other]);
            assert_ne!(leader, rotten, "round {round}");
            cluster.brokers[leader].kill();
            cluster.brokers[leader].start_again();
            cluster.publish(leader, &format!("round {round}"));
            cluster.is_whole(rotten);
        }
    }
}

#[test]
fn a_leader_with_a_changed_byte_never_leads_again_and_nobody_leads_by_its_vote() {
    for group in [0, 1] {
        let mut cluster = Cluster::begin(group);
        let [rotten, behind, other] = cluster.led_by(&[0, 1, 2]);
        cluster.publish(rotten, "before");
        // Of what comes now one node knows nothing.
        cluster.brokers[behind].kill();
        cluster.publish(other, "by two");
        until_caught_up(&cluster.brokers[rotten], group, &[other]);
        cluster.publish(rotten, "behind");
        until_caught_up(&cluster.brokers[rotten], group, &[other]);
        assert_eq!(cluster.led_by(&[rotten, other])[0], rotten);

        cluster.brokers[rotten].kill();
        cluster.turn_over(rotten, "by two 2 of five");
        cluster.brokers[other].kill();
        for node in [rotten, behind] {
            cluster.brokers[node].start_again();
        }
        cluster.until_damaged(rotten);
        cluster.brokers[other].start_again();
        let [leader, ..] = cluster.led_by(&[behind, other]);
        assert_eq!(leader, other, "only this one has all");
        cluster.publish(behind, "after");
        cluster.is_whole(rotten);
    }
}
