//! Small tables for the tests of views.

use std::time::Duration;

use crate::command::{Acquire, Claim, Command, KeepAlive, Under, Wait};
use crate::effect::Step;
use crate::id::{CallId, LeaseId, Namespace, Owner, Principal};
use crate::limits::Limits;
use crate::mode::Mode;
use crate::read::view::TreeQuery;
use crate::scope::Scope;
use crate::table::LockTable;
use crate::time::Timestamp;

/// A table in which these are held, each by an owner of its own.
pub(crate) fn holding(scopes: &[&str]) -> LockTable {
    let mut table = LockTable::new(Limits::default(), 1);
    for scope in scopes {
        acquire(&mut table, 0, scope, 10_000, 0);
    }
    table
}

/// Every request has an owner and a lease of its own.
pub(crate) fn acquire(table: &mut LockTable, at: u64, scope: &str, ttl: u64, wait: u64) {
    let number = table.fence().get() + table.stats().waiters as u64 + 1;
    let command = Command::Acquire(Acquire {
        call: CallId(number),
        namespace: Namespace::default(),
        owner: Owner::new(&format!("owner-{number}")).unwrap(),
        claims: vec![Claim { scope: Scope::parse(scope).unwrap(), mode: Mode::Exclusive }],
        under: Under::NewLease { id: lease(number), ttl: Duration::from_millis(ttl) },
        wait: if wait == 0 { Wait::Never } else { Wait::UpTo(Duration::from_millis(wait)) },
        keep_place: false,
        ticket: None,
        request_id: None,
        reclaim_window: Duration::ZERO,
        reclaim: false,
        metadata: None,
    });
    table.handle(Timestamp::from_millis(at), command, &mut Step::new());
}

/// Renews the lease under which the scope is held.
pub(crate) fn renew_all(table: &mut LockTable, at: u64, scope: &str) {
    let view = table.get(&Namespace::default(), &Scope::parse(scope).unwrap());
    for holder in view.holders {
        let session = lease(holder.fence.get());
        let keep = KeepAlive {
            namespace: Namespace::default(),
            principal: Principal::ANONYMOUS,
            session,
            ttl: None,
        };
        table.handle(Timestamp::from_millis(at), Command::KeepAlive(keep), &mut Step::new());
    }
}

fn lease(number: u64) -> LeaseId {
    LeaseId::from_u128(u128::from(number))
}

pub(crate) fn query(
    prefix: &str,
    after: Option<&str>,
    len_max: usize,
    counted: usize,
) -> TreeQuery {
    TreeQuery {
        namespace: Namespace::default(),
        prefix: prefix.into(),
        after: after.map(Into::into),
        len_max,
        looked_at_max: counted,
    }
}
