//! Quotas as they are configured: what a principal may have if its roles do not say, and what a namespace may have.

use leasehold_core::{Quota, Quotas};
use serde::Deserialize;
use std::time::Duration;

const MIB: u64 = 1024 * 1024;

/// The quotas of principals and namespaces. They bind while authentication is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaConfig {
    pub principal: Quota,
    pub namespace: Quota,
    pub watches_per_principal: usize,
    pub watches_per_namespace: usize,
    /// Requests over HTTP and unary calls of one principal; 0: any number.
    pub requests_per_second: u32,
    pub requests_burst: u32,
}

impl Default for QuotaConfig {
    fn default() -> QuotaConfig {
        QuotaConfig {
            principal: Quota {
                locks: 100_000,
                bytes: 64 * MIB,
                waiters: 10_000,
                waiter_bytes: 32 * MIB,
                sessions: 1000,
                registers: 10_000,
                namespaces: 100,
            },
            namespace: Quota {
                locks: 1_000_000,
                bytes: 512 * MIB,
                waiters: 50_000,
                sessions: 10_000,
                registers: 100_000,
                ..Quota::UNLIMITED
            },
            watches_per_principal: 100,
            watches_per_namespace: 2000,
            requests_per_second: 0,
            requests_burst: 40_000,
        }
    }
}

impl QuotaConfig {
    /// The quotas of a principal: what its roles say goes before what is configured for all.
    pub(crate) fn of(&self, roles: &leasehold_access::Quota) -> Quotas {
        let usual = &self.principal;
        Quotas {
            principal: Quota {
                locks: roles.locks.unwrap_or(usual.locks),
                bytes: roles.bytes.unwrap_or(usual.bytes),
                waiters: roles.waiters.unwrap_or(usual.waiters),
                waiter_bytes: roles.waiter_bytes.unwrap_or(usual.waiter_bytes),
                sessions: roles.sessions.unwrap_or(usual.sessions),
                registers: roles.registers.unwrap_or(usual.registers),
                namespaces: roles.namespaces.unwrap_or(usual.namespaces),
            },
            namespace: self.namespace,
            ttl_max: roles.ttl_max.unwrap_or(Duration::MAX),
            reclaim_max: roles.reclaim_max.unwrap_or(Duration::MAX),
            wait_max: roles.wait_max.unwrap_or(Duration::MAX),
        }
    }
}

/// The section `[quota]` of the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct QuotaFile {
    principal: PrincipalFile,
    namespace: NamespaceFile,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct PrincipalFile {
    locks: Option<u64>,
    bytes: Option<u64>,
    waiters: Option<u64>,
    waiter_bytes: Option<u64>,
    sessions: Option<u64>,
    registers: Option<u64>,
    namespaces: Option<u64>,
    watches: Option<usize>,
    requests_per_second: Option<u32>,
    requests_burst: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct NamespaceFile {
    locks: Option<u64>,
    bytes: Option<u64>,
    waiters: Option<u64>,
    sessions: Option<u64>,
    registers: Option<u64>,
    watches: Option<usize>,
}

impl QuotaFile {
    pub(crate) fn lay_over(self, config: &mut QuotaConfig) {
        let (said, quota) = (self.principal, &mut config.principal);
        set(&mut quota.locks, said.locks);
        set(&mut quota.bytes, said.bytes);
        set(&mut quota.waiters, said.waiters);
        set(&mut quota.waiter_bytes, said.waiter_bytes);
        set(&mut quota.sessions, said.sessions);
        set(&mut quota.registers, said.registers);
        set(&mut quota.namespaces, said.namespaces);
        set(&mut config.watches_per_principal, said.watches);
        set(&mut config.requests_per_second, said.requests_per_second);
        set(&mut config.requests_burst, said.requests_burst);
        let (said, quota) = (self.namespace, &mut config.namespace);
        set(&mut quota.locks, said.locks);
        set(&mut quota.bytes, said.bytes);
        set(&mut quota.waiters, said.waiters);
        set(&mut quota.sessions, said.sessions);
        set(&mut quota.registers, said.registers);
        set(&mut config.watches_per_namespace, said.watches);
    }
}

fn set<T>(setting: &mut T, said: Option<T>) {
    if let Some(said) = said {
        *setting = said;
    }
}
