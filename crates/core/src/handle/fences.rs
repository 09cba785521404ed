//! Fence registers: a high-water mark that takes a fencing token only if it has seen no higher one.

use crate::command::{AcceptFence, DeleteFence};
use crate::effect::{Answer, Step};
use crate::quota::{QuotaKind, QuotaOf, Quotas, check};
use crate::refusal::{Invalid, Limit, Refusal};
use crate::table::LockTable;
use crate::transition::Transition;

impl LockTable {
    pub(super) fn accept_fence(
        &mut self,
        accept: AcceptFence,
        quotas: &Quotas,
        step: &mut Step,
    ) -> super::Handled {
        let presented = accept.fence;
        let high_water = self.registers.get(&accept.namespace, &accept.register);
        match high_water {
            Some(_) if planted!("register-accepts-stale-fence") => {}
            Some(high_water) if presented < high_water => {
                return Err(Refusal::StaleFence { presented, high_water });
            }
            Some(high_water) if presented == high_water => {
                return Ok(Answer::FenceAccepted { high_water });
            }
            Some(_) | None => {}
        }
        // A mark above what was issued would turn every rightful holder away.
        let last = self.fence;
        if presented > last && !planted!("register-accepts-unissued-token") {
            return Err(Refusal::Invalid(Invalid::FenceNotIssued { presented, last }));
        }
        if high_water.is_none() {
            self.check_register_room(&accept, quotas)?;
        }
        let AcceptFence { namespace, register, principal, fence } = accept;
        self.enact(Transition::FenceAccepted { namespace, register, principal, fence }, step);
        Ok(Answer::FenceAccepted { high_water: fence })
    }

    fn check_register_room(&self, accept: &AcceptFence, quotas: &Quotas) -> Result<(), Refusal> {
        self.check_register_quota(accept, quotas)?;
        let max = self.limits.registers_per_namespace_max;
        if self.registers.len_in(&accept.namespace) >= max {
            let namespace = accept.namespace.clone();
            return Err(Refusal::Limit(Limit::Registers { namespace, max }));
        }
        let max = self.limits.registers_max;
        if self.registers.len() >= max {
            return Err(Refusal::Limit(Limit::RegistersInAll { max }));
        }
        Ok(())
    }

    fn check_register_quota(&self, accept: &AcceptFence, quotas: &Quotas) -> Result<(), Refusal> {
        let (mine, each) = (&quotas.principal, &quotas.namespace);
        let here = self.registers.len_in(&accept.namespace) as u64 + 1;
        check(QuotaOf::Namespace, QuotaKind::Registers, here, each.registers)?;
        let made = self.registers.made_by(&accept.principal);
        let len = made.map_or(0, |made| made.len) as u64 + 1;
        check(QuotaOf::Principal, QuotaKind::Registers, len, mine.registers)?;
        let namespaces = made.map(|made| &made.by_namespace);
        if namespaces.is_some_and(|namespaces| namespaces.contains_key(&accept.namespace)) {
            return Ok(());
        }
        let len = namespaces.map_or(0, |namespaces| namespaces.len()) as u64 + 1;
        check(QuotaOf::Principal, QuotaKind::Namespaces, len, mine.namespaces)
    }

    pub(super) fn delete_fence(&mut self, delete: DeleteFence, step: &mut Step) -> super::Handled {
        let DeleteFence { namespace, register, reason } = delete;
        let Some(high_water) = self.registers.get(&namespace, &register) else {
            return Err(Refusal::RegisterNotFound(register));
        };
        self.enact(Transition::FenceDeleted { namespace, register, reason }, step);
        Ok(Answer::FenceDeleted { high_water })
    }
}
