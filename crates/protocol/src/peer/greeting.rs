//! The greeting of a link: which node of which cluster speaks, and whether the other one accepts it.

use bytes::Bytes;
use prost::Message;

use super::{error::PeerError, schema};

/// The version of the protocol between nodes that this program speaks, oldest and newest.
pub const PEER_PROTOCOL: (u32, u32) = (1, 1);

/// Most names of features in a greeting, and the longest of them in bytes.
const FEATURES_MAX: usize = 64;
const FEATURE_BYTES_MAX: usize = 32;
/// Longest reason of a refusal in bytes.
const REASON_BYTES_MAX: usize = 512;
/// The highest id of a node.
const NODE_MAX: u32 = 4095;
/// Most cores of a node.
const CORES_MAX: u32 = 1024;
/// Most shards of a node.
const SHARDS_MAX: u32 = 1024;

/// A node introduces itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// The random number of the cluster.
    pub cluster: u64,
    /// The id of the node, 1 to 4095.
    pub node: u16,
    /// The random number of its data directory.
    pub incarnation: u64,
    /// How many times a broker has begun to serve that directory.
    pub start_epoch: u64,
    /// The oldest and the newest version of this protocol that it speaks.
    pub protocol: (u32, u32),
    /// Names of what it can do beyond that; at most 64 of 32 bytes.
    pub features: Vec<String>,
    /// The level of the cluster: what may enter a log or a link.
    pub level: u32,
    /// Its wall clock, in ms since 1970.
    pub clock_ms: u64,
    /// How many cores it has, 1 to 1024.
    pub cores: u32,
    /// The number of the link: that of the core which has it on both nodes.
    pub link: u32,
    /// How many shards it has, 1 to 1024.
    pub shards: u32,
}

/// The answer to a greeting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GreetingAnswer {
    /// The node that answers. `link` is that of the greeting.
    pub greeting: Greeting,
    /// The version of the protocol that both speak from now on; or the reason why the link is refused, and that in words,
    /// at most 512 bytes.
    pub outcome: Result<u32, (Refusal, String)>,
}

macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident = $number:literal;)*) => {
        /// The reason for which a node refuses a link.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum Refusal {
            $($(#[$doc])* $name = $number,)*
        }

        impl Refusal {
            /// All reasons, by number.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];
        }
    };
}

refusals! {
    /// The other node belongs to another cluster.
    OtherCluster = 1;
    /// The other node is none of the peers.
    UnknownNode = 2;
    /// Another data directory had the other node's id before.
    OtherDirectory = 3;
    /// The other node's process has been replaced by a later one of the same directory.
    OldStart = 4;
    /// No version of the protocol is common to both.
    Protocol = 5;
    /// The levels differ.
    Level = 6;
    /// There is no link of this number.
    Link = 7;
    /// The other node is to be dialled, and does not dial.
    Direction = 8;
    /// A reason that this version does not know.
    Unknown = 9;
    /// The numbers of shards or of cores differ.
    Layout = 10;
}

impl Greeting {
    pub(super) fn encode(&self) -> Vec<u8> {
        self.to_schema().encode_to_vec()
    }

    pub(super) fn decode(bytes: Bytes) -> Result<Self, PeerError> {
        Self::of_schema(schema::Greeting::decode(bytes)?)
    }

    fn to_schema(&self) -> schema::Greeting {
        schema::Greeting {
            cluster: self.cluster,
            node: u32::from(self.node),
            incarnation: self.incarnation,
            start_epoch: self.start_epoch,
            protocol_min: self.protocol.0,
            protocol_max: self.protocol.1,
            features: self.features.clone(),
            level: self.level,
            clock_ms: self.clock_ms,
            cores: self.cores,
            link: self.link,
            shards: self.shards,
        }
    }

    fn of_schema(greeting: schema::Greeting) -> Result<Self, PeerError> {
        let within = |field, least: u32, value: u32, most: u32| match value {
            value if (least..=most).contains(&value) => Ok(value),
            value => Err(PeerError::Field { field, value: value.into() }),
        };
        let node = within("node", 1, greeting.node, NODE_MAX)?;
        let newest = within("protocol_max", 1, greeting.protocol_max, u32::MAX)?;
        let oldest = within("protocol_min", 1, greeting.protocol_min, newest)?;
        let cores = within("cores", 1, greeting.cores, CORES_MAX)?;
        let link = within("link", 0, greeting.link, CORES_MAX - 1)?;
        let shards = within("shards", 1, greeting.shards, SHARDS_MAX)?;
        let features = greeting.features;
        let longest = features.iter().map(String::len).max().unwrap_or_default();
        for (field, value, most) in [
            ("number of features", features.len(), FEATURES_MAX),
            ("length of a feature", longest, FEATURE_BYTES_MAX),
        ] {
            if value > most {
                return Err(PeerError::Field { field, value: value as u64 });
            }
        }
        Ok(Self {
            cluster: greeting.cluster,
            node: node as u16,
            incarnation: greeting.incarnation,
            start_epoch: greeting.start_epoch,
            protocol: (oldest, newest),
            features,
            level: greeting.level,
            clock_ms: greeting.clock_ms,
            cores,
            link,
            shards,
        })
    }
}

impl GreetingAnswer {
    pub(super) fn encode(&self) -> Vec<u8> {
        let greeting = Some(self.greeting.to_schema());
        let answer = match &self.outcome {
            Ok(protocol) => schema::GreetingAnswer {
                greeting,
                protocol: *protocol,
                ..schema::GreetingAnswer::default()
            },
            Err((refusal, reason)) => {
                let refusal = *refusal as u32;
                let reason = reason[..reason.floor_char_boundary(REASON_BYTES_MAX)].to_owned();
                schema::GreetingAnswer { greeting, protocol: 0, refusal, reason }
            }
        };
        answer.encode_to_vec()
    }

    pub(super) fn decode(bytes: Bytes) -> Result<Self, PeerError> {
        let answer = schema::GreetingAnswer::decode(bytes)?;
        let missing = PeerError::Field { field: "greeting", value: 0 };
        let greeting = Greeting::of_schema(answer.greeting.ok_or(missing)?)?;
        let length = answer.reason.len();
        if length > REASON_BYTES_MAX {
            return Err(PeerError::Field { field: "length of the reason", value: length as u64 });
        }
        let outcome = match (answer.protocol, answer.refusal) {
            (0, 0) => return Err(PeerError::Field { field: "refusal", value: 0 }),
            (0, number) => {
                let known = Refusal::ALL.iter().find(|refusal| **refusal as u32 == number);
                Err((known.copied().unwrap_or(Refusal::Unknown), answer.reason))
            }
            (protocol, _) => Ok(protocol),
        };
        Ok(Self { greeting, outcome })
    }
}
