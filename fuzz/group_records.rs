//! Seeds of the target `group_record`: one record of each kind that a group has.

use sennit_model::Timestamp;
use sennit_shard::{Entry, EntryContent, EntryId, GroupRecord, Here, Membership, Stands};

use crate::write;

/// Writes the seeds.
pub(crate) fn write_all() {
    let last = EntryId { term: 3, index: 9 };
    let membership = Membership { learners: [4].into(), ..Membership::of_one(2) };
    let content = EntryContent::TermBegan;
    let stands = Stands {
        group: 1,
        replica: 2,
        last,
        time: Timestamp(1_800_000_000_000),
        membership: membership.clone(),
    };
    let records = [
        ("entry", GroupRecord::Entry(Entry { id: last, commit: 7, content })),
        ("here", GroupRecord::Here(Here { term: 3, vote: 2, commit: 8 })),
        ("stands", GroupRecord::Stands(stands)),
        ("membership", GroupRecord::Membership(membership)),
    ];
    for (name, record) in records {
        write("group_record", name, &[&[record.kind()], &record.encode()[..]].concat());
    }
}
