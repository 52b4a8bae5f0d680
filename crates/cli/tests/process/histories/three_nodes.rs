//! Three brokers of one cluster. Each link between two of them, and each between clients and one of them, can be
//! troubled.

use std::path::Path;

use super::{
    nemesis::{End, Line, Nemesis},
    proxy::{Flow, Network},
};
use crate::{
    cluster_nodes::{CLUSTER, flags, own_address, start},
    node_links::until_heard,
};

const NODES: usize = 3;

/// Nodes 1 to 3, of the indexes 0 to 2, with their data in `folder`.
pub fn three(network: &Network, folder: &Path) -> Nemesis {
    let own: [String; NODES] = std::array::from_fn(|_| own_address());
    let pairs = (0..NODES).flat_map(|from| (0..NODES).map(move |to| (from, to)));
    let pairs = pairs.filter(|(from, to)| from != to);
    let between = pairs.map(|(from, to)| {
        let link = network.link(&own[to]);
        Line { from: End::Node(from), to, link }
    });
    let mut lines: Vec<_> = between.collect();
    let brokers = (0..NODES).map(|index| {
        let peers = lines.iter().filter(|line| line.from == End::Node(index));
        let peers: Vec<_> =
            peers.map(|line| format!("{}={}", line.to + 1, line.link.address)).collect();
        let node = (index + 1).to_string();
        // Segments of the usual length: who is away for long falls behind a log of short ones for good.
        start(&folder.join(&node), &flags(&node, &own[index], &peers.join(","), CLUSTER))
    });
    let brokers: Vec<_> = brokers.collect();
    lines.extend(brokers.iter().enumerate().map(|(to, broker)| {
        let link = network.link(&broker.listen);
        Line { from: End::Clients, to, link }
    }));
    Nemesis::new(brokers, lines)
}

#[test]
fn nodes_do_not_hear_each_other_over_a_line_that_holds_one_direction_and_do_once_it_is_open() {
    let folder = tempfile::tempdir().unwrap();
    let network = Network::new();
    let Nemesis { brokers, lines, .. } = three(&network, folder.path());
    let [one, two, three] = &brokers[..] else { panic!("there are three") };
    let all_hear = || {
        until_heard(one, &[2, 3]);
        until_heard(two, &[1, 3]);
        until_heard(three, &[1, 2]);
    };
    all_hear();
    let line = lines.iter().find(|line| (line.from, line.to) == (End::Node(0), 2));
    let link = &line.expect("the first dials the third").link;
    for flows in [[Flow::Held, Flow::Open], [Flow::Open, Flow::Held]] {
        link.set(flows);
        until_heard(one, &[2]);
        until_heard(three, &[2]);
        link.set([Flow::Open; 2]);
        all_hear();
    }
    link.break_all();
    all_hear();
}
