//! The control's requests and answers as frames of the first core's links. It knows no request.

use bytes::Bytes;
use sennit_protocol::peer::Content;

use super::group_links::{ControlListener, GroupLinks};
use crate::broker::control_peers::{ControlLinks, ControlPeers, PeerTopic};

impl ControlLinks for GroupLinks {
    fn send_request(&self, node: u16, number: u64, about: PeerTopic, body: Bytes) -> bool {
        self.send_control(node, number, Content::Request { sort: about.number(), body })
    }

    fn send_answer(&self, node: u16, number: u64, about: PeerTopic, body: Bytes) -> bool {
        self.send_control(node, number, Content::Answer { sort: about.number(), body })
    }
}

impl ControlListener for ControlPeers {
    fn on_request(&self, peer: u16, number: u64, sort: u32, body: Bytes) {
        match PeerTopic::of_number(sort) {
            Some(about) => self.take_request(peer, number, about, body),
            None => tracing::warn!(peer, sort, "a request of another node is not known here"),
        }
    }

    fn on_answer(&self, peer: u16, number: u64, _sort: u32, body: Bytes) {
        self.take_answer(peer, number, body);
    }

    fn on_link(&self, peer: u16, is_up: bool) {
        if !is_up {
            self.lose(peer);
        }
    }
}
