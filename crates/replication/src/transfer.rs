//! A leader hands its leadership over. First all of its log is committed, and the heir has it: so nobody who waits at the
//! leader is left in doubt. Only then raft tells the heir to take over.

use raft::StateRole;

use crate::heir::Heir;
use crate::member::Member;
use crate::refusal::Refusal;
use crate::settings::ELECTION_TICKS;

impl Member {
    /// Hands leadership to another voter: nothing is taken any more, the lease ends, and once the whole log is committed
    /// and the other has it, that one is told to take over. If it could not be told within ten ticks, this replica leads
    /// on. If it was told and has not done so after ten more, this replica steps down, because the other may still take
    /// over without anybody having waited for a lease.
    ///
    /// # Errors
    /// A [`Refusal`] if this replica does not lead, is handing over, or the other has no vote.
    pub fn transfer(&mut self, to: u64) -> Result<(), Refusal> {
        self.check_leads()?;
        if to == self.settings.replica || !self.membership.voters.contains(&to) {
            return Err(Refusal::NotAVoter { replica: to });
        }
        self.heir = Some(Heir { replica: to, ticks_left: ELECTION_TICKS });
        self.stepped();
        Ok(())
    }

    /// Whether it has begun to hand leadership over.
    pub(crate) fn hands_over(&self) -> bool {
        self.heir.is_some() || self.node.raft.lead_transferee.is_some()
    }

    /// A tick has passed: the heir has less time.
    pub(crate) fn tick_heir(&mut self) {
        self.heir = self.heir.and_then(|Heir { replica, ticks_left }| {
            Some(Heir { replica, ticks_left: ticks_left.checked_sub(1)? })
        });
    }

    /// Tells the heir to take over if it can by now; whether it was told.
    pub(crate) fn tell_heir(&mut self) -> bool {
        let raft = &self.node.raft;
        let Some(Heir { replica: to, .. }) = self.heir else { return false };
        let last = raft.raft_log.last_index();
        let has_all = raft.prs().get(to).is_some_and(|progress| progress.matched == last);
        if raft.state != StateRole::Leader || raft.raft_log.committed != last || !has_all {
            return false;
        }
        self.heir = None;
        // A change of members may have been committed meanwhile.
        let may_lead = self.membership.voters.contains(&to);
        if may_lead {
            self.node.transfer_leader(to);
        }
        may_lead
    }
}
