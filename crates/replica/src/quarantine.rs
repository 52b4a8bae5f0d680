//! Quarantine, as the group names it and as the lane keeps it.

use sennit_replication::Quarantine;

/// The quarantine, as the lane keeps it.
pub(crate) fn of_group(quarantine: Quarantine) -> sennit_shard::Quarantine {
    use sennit_shard::Quarantine as Kept;
    match quarantine {
        Quarantine::Damaged { position } => Kept::Damaged { position },
        Quarantine::Forgotten { committed, last } => Kept::Forgotten { committed, last },
        Quarantine::Contradicted { index, own, leaders } => {
            Kept::Contradicted { index, own, leaders }
        }
        Quarantine::Members { index } => Kept::Members { index },
    }
}

/// The quarantine, as the group names it.
pub(crate) fn of_shard(quarantine: sennit_shard::Quarantine) -> Quarantine {
    use sennit_shard::Quarantine as Kept;
    match quarantine {
        Kept::Damaged { position } => Quarantine::Damaged { position },
        Kept::Forgotten { committed, last } => Quarantine::Forgotten { committed, last },
        Kept::Contradicted { index, own, leaders } => {
            Quarantine::Contradicted { index, own, leaders }
        }
        Kept::Members { index } => Quarantine::Members { index },
    }
}
