//! The labels of entries, as the shard keeps them and as the group does.

use sennit_replication::{Body, Content, Label, Membership};
use sennit_shard::{EntryContent, EntryId, EntrySize, Labels};

/// The group's label of the entry at `index`, if the shard has one.
pub(crate) fn of_shard(labels: &Labels, index: u64) -> Option<Label> {
    let label = labels.get(index)?;
    let content = match (label.content, labels.membership(index)) {
        (EntryContent::Membership, Some(membership)) => {
            Content::Membership(Box::new(members_of_shard(membership)))
        }
        (EntryContent::TermBegan, _) => Content::TermBegan,
        _ => {
            let (length, checksum, records) =
                (label.body.bytes, label.body.checksum, label.body.records);
            Content::Records(Body { length, checksum, records })
        }
    };
    let id = sennit_replication::EntryId { term: label.term, index };
    Some(Label { id, content })
}

/// The members, as the group names them.
pub(crate) fn members_of_shard(membership: &sennit_shard::Membership) -> Membership {
    let sennit_shard::Membership { voters, outgoing, learners, next_learners } = membership.clone();
    Membership { voters, outgoing, learners, next_learners }
}

/// The members, as the shard keeps them.
pub(crate) fn members_of_group(membership: &Membership) -> sennit_shard::Membership {
    let Membership { voters, outgoing, learners, next_learners } = membership.clone();
    sennit_shard::Membership { voters, outgoing, learners, next_learners }
}

/// The name of an entry, as the shard names it.
pub(crate) fn id_of_group(id: sennit_replication::EntryId) -> EntryId {
    EntryId { term: id.term, index: id.index }
}

/// The size of an entry's body, as the shard names it.
pub(crate) fn size_of_group(body: Body) -> EntrySize {
    EntrySize { bytes: body.length, checksum: body.checksum, records: body.records }
}
