//! On whose behalf calls come in.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, LazyLock};

use leasehold_core::{Principal, Quotas};

/// A principal as the engine knows it: whom its calls are queued with, and under which quotas they are carried out.
#[derive(Clone, Debug)]
pub struct Account {
    /// A digest of the principal's name. Two that have the same share a queue, and nothing else.
    number: u64,
    pub(crate) quotas: Quotas,
}

impl Account {
    /// Everybody, while there are no credentials: one account without quotas.
    pub fn anonymous() -> Arc<Account> {
        static ANONYMOUS: LazyLock<Arc<Account>> =
            LazyLock::new(|| Arc::new(Account { number: 0, quotas: Quotas::UNLIMITED }));
        ANONYMOUS.clone()
    }

    pub fn of(principal: &Principal, quotas: Quotas) -> Arc<Account> {
        let mut hasher = DefaultHasher::new();
        principal.hash(&mut hasher);
        Arc::new(Account { number: hasher.finish().max(1), quotas })
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn is_anonymous(&self) -> bool {
        self.number == 0
    }
}
