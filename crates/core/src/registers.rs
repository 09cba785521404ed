//! Fence registers of all namespaces: the highest fencing token that each has accepted.
//!
//! They are kept apart from the namespaces, so that a register keeps no namespace in use.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

use crate::fencing_token::FencingToken;
use crate::id::{Namespace, RegisterName};
use crate::read::view::RegisterView;

#[derive(Clone, Debug, Default)]
pub(crate) struct Registers {
    /// No namespace here is without a register.
    by_namespace: BTreeMap<Namespace, BTreeMap<RegisterName, FencingToken>>,
    len: usize,
}

impl Registers {
    pub(crate) fn get(
        &self,
        namespace: &Namespace,
        register: &RegisterName,
    ) -> Option<FencingToken> {
        self.by_namespace.get(namespace)?.get(register).copied()
    }

    pub(crate) fn set(
        &mut self,
        namespace: &Namespace,
        register: RegisterName,
        fence: FencingToken,
    ) {
        let registers = self.by_namespace.entry(namespace.clone()).or_default();
        self.len += usize::from(registers.insert(register, fence).is_none());
    }

    pub(crate) fn remove(
        &mut self,
        namespace: &Namespace,
        register: &RegisterName,
    ) -> Option<FencingToken> {
        let registers = self.by_namespace.get_mut(namespace)?;
        let removed = registers.remove(register)?;
        if registers.is_empty() {
            self.by_namespace.remove(namespace);
        }
        self.len -= 1;
        Some(removed)
    }

    /// The number of registers in all namespaces.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn len_in(&self, namespace: &Namespace) -> usize {
        self.by_namespace.get(namespace).map_or(0, BTreeMap::len)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Namespace, &RegisterName, FencingToken)> {
        self.by_namespace.iter().flat_map(|(namespace, registers)| {
            registers.iter().map(move |(register, &fence)| (namespace, register, fence))
        })
    }

    /// At most `len_max` registers of a namespace by name, from the one after `after` on.
    pub(crate) fn page(
        &self,
        namespace: &Namespace,
        after: Option<&RegisterName>,
        len_max: usize,
    ) -> Vec<RegisterView> {
        let Some(registers) = self.by_namespace.get(namespace) else { return Vec::new() };
        let start = after.map_or(Unbounded, Excluded);
        let found = registers.range::<RegisterName, _>((start, Unbounded)).take(len_max);
        found.map(|(name, &high_water)| RegisterView { name: name.clone(), high_water }).collect()
    }
}
