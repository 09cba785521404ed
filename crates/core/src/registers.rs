//! Fence registers of all namespaces: the highest fencing token that each has accepted.
//!
//! They are kept apart from the namespaces, so that a register keeps no namespace in use.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

use crate::fencing_token::FencingToken;
use crate::id::{Namespace, Principal, RegisterName};
use crate::read::view::RegisterView;

#[derive(Clone, Debug, Default)]
pub(crate) struct Registers {
    /// No namespace here is without a register.
    by_namespace: BTreeMap<Namespace, BTreeMap<RegisterName, Register>>,
    /// The number that each principal has made, by namespace. None is without any.
    by_principal: BTreeMap<Principal, Made>,
    len: usize,
}

/// One register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Register {
    /// The principal that made it.
    pub(crate) principal: Principal,
    pub(crate) high_water: FencingToken,
}

/// The registers that one principal has made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Made {
    pub(crate) len: usize,
    pub(crate) by_namespace: BTreeMap<Namespace, usize>,
}

impl Registers {
    pub(crate) fn find(&self, namespace: &Namespace, register: &RegisterName) -> Option<&Register> {
        self.by_namespace.get(namespace)?.get(register)
    }

    pub(crate) fn get(
        &self,
        namespace: &Namespace,
        register: &RegisterName,
    ) -> Option<FencingToken> {
        self.find(namespace, register).map(|register| register.high_water)
    }

    /// Raises a register. A new one is the principal's.
    pub(crate) fn set(
        &mut self,
        namespace: &Namespace,
        register: RegisterName,
        principal: &Principal,
        fence: FencingToken,
    ) {
        let registers = self.by_namespace.entry(namespace.clone()).or_default();
        if let Some(known) = registers.get_mut(&register) {
            known.high_water = fence;
            return;
        }
        let made = Register { principal: principal.clone(), high_water: fence };
        registers.insert(register, made);
        self.len += 1;
        let made = self.by_principal.entry(principal.clone()).or_default();
        made.len += 1;
        *made.by_namespace.entry(namespace.clone()).or_insert(0) += 1;
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
        self.uncount(&removed.principal, namespace);
        Some(removed.high_water)
    }

    fn uncount(&mut self, principal: &Principal, namespace: &Namespace) {
        let Some(made) = self.by_principal.get_mut(principal) else { return };
        made.len -= 1;
        if let Some(here) = made.by_namespace.get_mut(namespace) {
            *here -= 1;
            if *here == 0 {
                made.by_namespace.remove(namespace);
            }
        }
        if made.len == 0 {
            self.by_principal.remove(principal);
        }
    }

    /// The number of registers in all namespaces.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn len_in(&self, namespace: &Namespace) -> usize {
        self.by_namespace.get(namespace).map_or(0, BTreeMap::len)
    }

    /// The registers that a principal has made; `None` if there are none.
    pub(crate) fn made_by(&self, principal: &Principal) -> Option<&Made> {
        self.by_principal.get(principal)
    }

    /// The registers that each principal has made.
    #[cfg(any(test, feature = "invariants"))]
    pub(crate) fn made(&self) -> &BTreeMap<Principal, Made> {
        &self.by_principal
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Namespace, &RegisterName, &Register)> {
        self.by_namespace.iter().flat_map(|(namespace, registers)| {
            registers.iter().map(move |(name, register)| (namespace, name, register))
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
        let view = |(name, register): (&RegisterName, &Register)| RegisterView {
            name: name.clone(),
            high_water: register.high_water,
        };
        found.map(view).collect()
    }
}
