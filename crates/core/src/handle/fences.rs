//! Fence registers: a high-water mark that takes a fence only if it has seen no higher one.

use crate::command::AcceptFence;
use crate::effect::{Answer, Step};
use crate::refusal::{Limit, Refusal};
use crate::table::LockTable;
use crate::transition::Transition;

impl LockTable {
    pub(super) fn accept_fence(&mut self, accept: AcceptFence, step: &mut Step) -> super::Handled {
        let space = self.space_to_fill(&accept.namespace)?;
        let registers = &self.space(space).registers;
        let (presented, max) = (accept.fence, self.limits.registers_per_namespace_max);
        match registers.get(&accept.register) {
            Some(_) if planted!("register-accepts-stale-fence") => {}
            Some(&high_water) if presented < high_water => {
                return Err(Refusal::StaleFence { presented, high_water });
            }
            Some(&high_water) if presented == high_water => {
                return Ok(Answer::FenceAccepted { high_water });
            }
            None if registers.len() >= max => {
                let namespace = accept.namespace;
                return Err(Refusal::Limit(Limit::Registers { namespace, max }));
            }
            Some(_) | None => {}
        }
        let AcceptFence { namespace, register, fence } = accept;
        self.enact(Transition::FenceAccepted { namespace, register, fence }, step);
        Ok(Answer::FenceAccepted { high_water: fence })
    }
}
