//! What becomes of live connections that read slowly, by the settings of their topics, over real sockets.

use sennit_model::{LiveSettings, TopicConfig, WhenBehind};
use sennit_protocol::{Reply, Request as NativeRequest, control};

use crate::{
    live_client::LiveClient,
    world::{Broker, Peer},
};

/// The settings of a topic.
fn settings(peer: &mut Peer, name: &str) -> TopicConfig {
    let describe = control::DescribeTopic { name: name.into() };
    match peer.ask(&NativeRequest::DescribeTopic(describe)) {
        Reply::TopicDescription(topic) => TopicConfig::try_from(&topic.config.unwrap()).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_channel_that_a_client_creates_has_presence_and_a_topic_what_it_was_told() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = broker.greeted();
    let mut client = LiveClient::of(&broker);
    client.subscribe("lobby");
    let recover = WhenBehind::Recover;
    assert_eq!(
        settings(&mut peer, "lobby").live,
        LiveSettings { presence: true, when_behind: recover }
    );
    client.publish("said", "hello").unwrap();
    assert!(settings(&mut peer, "said").live.presence);
    peer.create_topic("orders", 1);
    assert_eq!(settings(&mut peer, "orders").live, LiveSettings::default());
    broker.stop();
}
