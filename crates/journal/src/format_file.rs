//! The FORMAT file of a data directory as text: what is fixed when the directory is created, and which node of
//! which cluster it belongs to. It knows no disk.

use std::{fmt, path::Path};

use crate::{fault::Fault, format::BLOCK_BYTES};

/// The format of a directory that belongs to no cluster.
const FORMAT_ALONE: u32 = 1;
/// The format of a directory that belongs to a node of a cluster.
const FORMAT_NODE: u32 = 2;
/// The lines of a directory of the only node of a cluster.
const LINES_OF_NODE: usize = 8;
const FIRST_LINE: &str = "sennit data directory";
/// Room for a header, a frame and the next segment's start.
const SEGMENT_BYTES_MIN: u64 = 16 << 10;
/// Most shards. Each is a thread, and a lane with files.
pub const SHARDS_MAX: u32 = 1024;
/// The highest id of a node; the lowest is 1.
pub const NODE_ID_MAX: u16 = 4095;

/// The settings of a data directory. They are fixed when it is created, but for the node's start epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectorySettings {
    /// The number of shards; each has a lane.
    pub shards: u32,
    /// The length of a segment in bytes.
    pub segment_bytes: u64,
    /// A random number that distinguishes the files of this directory from those of others.
    pub incarnation: u64,
    /// The node to which the directory belongs. Without one it has format 1, and belongs to no
    /// cluster.
    pub node: Option<NodeIdentity>,
}

/// The node to which a data directory belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeIdentity {
    /// The random number of the cluster. All its nodes have the same.
    pub cluster: u64,
    /// The number that the operator has given to the node: 1 to [`NODE_ID_MAX`].
    pub id: u16,
    /// How many times a broker has begun to serve the directory.
    pub start_epoch: u64,
    /// How many other nodes the cluster has, as of the last start; 0 if this is the only one.
    pub peers: u16,
}

impl DirectorySettings {
    /// Parses the `text` of the FORMAT file of the directory at `path`.
    ///
    /// # Errors
    /// [`Fault::NewerFormat`] or [`Fault::NotADataDirectory`].
    pub fn parse(text: &str, path: &Path) -> Result<Self, Fault> {
        let not = |reason: String| Fault::NotADataDirectory { path: path.to_owned(), reason };
        let mut lines = text.lines();
        if lines.next() != Some(FIRST_LINE) {
            return Err(not(format!("its FORMAT file does not begin with {FIRST_LINE:?}")));
        }
        let mut field = |name: &str| -> Result<u64, Fault> {
            let line = lines.next().unwrap_or_default();
            let value = line.split_once(" = ").filter(|(key, _)| *key == name);
            let number = value.and_then(|(_, value)| value.parse().ok());
            number.ok_or_else(|| not(format!("its FORMAT file says {line:?} where {name} belongs")))
        };
        let format = u32::try_from(field("format")?).unwrap_or(u32::MAX);
        if format > FORMAT_NODE {
            let (path, known) = (path.to_owned(), FORMAT_NODE);
            return Err(Fault::NewerFormat { path, found: format, known });
        }
        let mut settings = Self {
            shards: u32::try_from(field("shards")?).unwrap_or(u32::MAX),
            segment_bytes: field("segment_bytes")?,
            incarnation: field("incarnation")?,
            node: match format {
                FORMAT_NODE => Some(NodeIdentity {
                    cluster: field("cluster")?,
                    id: u16::try_from(field("node")?).unwrap_or(u16::MAX),
                    start_epoch: field("start_epoch")?,
                    peers: 0,
                }),
                _ => None,
            },
        };
        if let Some(node) = settings.node.as_mut().filter(|_| text.lines().count() > LINES_OF_NODE)
        {
            node.peers = u16::try_from(field("peers")?).unwrap_or(u16::MAX);
        }
        settings.check().map_err(|reason| not(format!("its FORMAT file says {reason}")))?;
        Ok(settings)
    }

    /// Returns a text that names the setting with which no directory can be.
    pub(crate) fn check(&self) -> Result<(), String> {
        let Self { shards, segment_bytes, node, .. } = *self;
        if !(1..=SHARDS_MAX).contains(&shards) {
            return Err(format!("{shards} shards; 1 to {SHARDS_MAX} are possible"));
        }
        if segment_bytes < SEGMENT_BYTES_MIN || !segment_bytes.is_multiple_of(BLOCK_BYTES as u64) {
            return Err(format!(
                "segments of {segment_bytes} bytes; multiples of {BLOCK_BYTES} from \
                 {SEGMENT_BYTES_MIN} on are possible"
            ));
        }
        match node.filter(|node| !(1..=NODE_ID_MAX).contains(&node.id)) {
            Some(NodeIdentity { id, .. }) => {
                Err(format!("node {id}; 1 to {NODE_ID_MAX} are possible"))
            }
            None => Ok(()),
        }
    }
}

impl fmt::Display for DirectorySettings {
    /// The text of the FORMAT file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { shards, segment_bytes, incarnation, node } = self;
        let format = if node.is_some() { FORMAT_NODE } else { FORMAT_ALONE };
        write!(
            f,
            "{FIRST_LINE}\nformat = {format}\nshards = {shards}\n\
             segment_bytes = {segment_bytes}\nincarnation = {incarnation}\n"
        )?;
        match node {
            Some(NodeIdentity { cluster, id, start_epoch, peers }) => {
                write!(f, "cluster = {cluster}\nnode = {id}\nstart_epoch = {start_epoch}\n")?;
                if *peers > 0 { writeln!(f, "peers = {peers}") } else { Ok(()) }
            }
            None => Ok(()),
        }
    }
}
