//! Numbers, names and ranges as bytes, and back.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    ByteRange, FencingToken, Key, LeaseId, Millis, NameError, Namespace, Owner, Principal, Scope,
    Timestamp,
};

use super::Fault;

/// Room for a vector is reserved up to so many items at a time: a count is only a claim until the items are there.
const RESERVED_MAX: usize = 64;

/// Writes one record, and remembers what the next value may be written in terms of.
#[derive(Debug, Default)]
pub(super) struct Encoder {
    bytes: Vec<u8>,
    namespace: Vec<u8>,
    owner: Vec<u8>,
    key: Vec<u8>,
    lease: Option<LeaseId>,
    fence: u64,
    moment: u64,
}

impl Encoder {
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(super) fn byte(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    #[inline]
    pub(super) fn varint(&mut self, value: u64) {
        varint(&mut self.bytes, value);
    }

    pub(super) fn count(&mut self, count: usize) {
        self.varint(count as u64);
    }

    pub(super) fn text(&mut self, text: &[u8]) {
        self.count(text.len());
        self.raw(text);
    }

    pub(super) fn namespace(&mut self, namespace: &Namespace) {
        name(&mut self.bytes, &mut self.namespace, namespace.text().as_bytes());
    }

    pub(super) fn owner(&mut self, owner: &Owner) {
        name(&mut self.bytes, &mut self.owner, owner.text().as_bytes());
    }

    pub(super) fn key(&mut self, key: &Key) {
        name(&mut self.bytes, &mut self.key, key.text().as_bytes());
    }

    pub(super) fn is_last_lease(&self, lease: LeaseId) -> bool {
        self.lease == Some(lease)
    }

    pub(super) fn lease(&mut self, lease: LeaseId) {
        self.lease = Some(lease);
        self.raw(&lease.as_u128().to_le_bytes());
    }

    pub(super) fn millis(&mut self, length: Millis) {
        self.varint(u64::from(length.get()));
    }

    pub(super) fn duration(&mut self, length: Duration) {
        self.varint(length.as_secs());
        self.varint(u64::from(length.subsec_nanos()));
    }

    pub(super) fn fence(&mut self, fence: FencingToken) {
        let last = mem::replace(&mut self.fence, fence.get());
        self.varint(zigzag(fence.get().wrapping_sub(last)));
    }

    pub(super) fn moment(&mut self, moment: Timestamp) {
        let last = mem::replace(&mut self.moment, moment.as_millis());
        self.varint(zigzag(moment.as_millis().wrapping_sub(last)));
    }

    /// The start, and how many bytes it is from there to the last one.
    pub(super) fn range(&mut self, range: ByteRange) {
        self.varint(range.start());
        self.varint(range.last() - range.start());
    }
}

/// Names are never empty, so an empty one can stand for the last. Another one is written as how long it is, how much of
/// its beginning is that of the last, and the rest.
#[inline]
fn name(bytes: &mut Vec<u8>, last: &mut Vec<u8>, text: &[u8]) {
    if last == text {
        bytes.push(0);
        return;
    }
    let shared = last.iter().zip(text).take_while(|(one, other)| one == other).count();
    varint(bytes, text.len() as u64);
    varint(bytes, shared as u64);
    bytes.extend_from_slice(&text[shared..]);
    last.truncate(shared);
    last.extend_from_slice(&text[shared..]);
}

#[inline]
fn varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(low_byte(value) | 0x80);
        value >>= 7;
    }
    bytes.push(low_byte(value));
}

/// Reads one record. Every length is checked against the bytes that are there.
#[derive(Debug)]
pub(super) struct Decoder<'a> {
    bytes: &'a [u8],
    at: usize,
    namespace: Last<Namespace>,
    owner: Last<Owner>,
    key: Last<Key>,
    lease: Option<LeaseId>,
    fence: u64,
    moment: u64,
}

/// The last name of its kind: what it was, and its bytes for the next.
#[derive(Debug)]
struct Last<T> {
    name: Option<T>,
    bytes: Vec<u8>,
}

impl<T> Default for Last<T> {
    fn default() -> Last<T> {
        Last { name: None, bytes: Vec::new() }
    }
}

impl<'a> Decoder<'a> {
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Decoder<'a> {
        Decoder {
            bytes,
            at,
            namespace: Last::default(),
            owner: Last::default(),
            key: Last::default(),
            lease: None,
            fence: 0,
            moment: 0,
        }
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// The error for a value that begins at `at` and makes no sense.
    pub(super) fn fault(&self, what: &'static str, at: usize) -> Fault {
        Fault::Value { what, at }
    }

    #[inline]
    pub(super) fn byte(&mut self, what: &'static str) -> Result<u8, Fault> {
        let byte = self.bytes.get(self.at).copied();
        self.at += 1;
        byte.ok_or(Fault::EndsEarly { what })
    }

    #[inline]
    pub(super) fn raw(&mut self, len: usize, what: &'static str) -> Result<&'a [u8], Fault> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let found = rest.get(..len).ok_or(Fault::EndsEarly { what })?;
        self.at += len;
        Ok(found)
    }

    pub(super) fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Fault> {
        let mut array = [0; N];
        array.copy_from_slice(self.raw(N, what)?);
        Ok(array)
    }

    #[inline]
    pub(super) fn varint(&mut self, what: &'static str) -> Result<u64, Fault> {
        let start = self.at;
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte(what)?;
            // The tenth byte has room for the highest bit only.
            if shift == 63 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.fault(what, start))
    }

    pub(super) fn varint_u32(&mut self, what: &'static str) -> Result<u32, Fault> {
        let start = self.at;
        let value = self.varint(what)?;
        u32::try_from(value).map_err(|_| self.fault(what, start))
    }

    fn len(&mut self, what: &'static str) -> Result<usize, Fault> {
        let start = self.at;
        let value = self.varint(what)?;
        usize::try_from(value).map_err(|_| self.fault(what, start))
    }

    /// That many items, each of which takes at least a byte.
    pub(super) fn list<T>(
        &mut self,
        what: &'static str,
        mut item: impl FnMut(&mut Self) -> Result<T, Fault>,
    ) -> Result<Vec<T>, Fault> {
        let count = self.len(what)?;
        if count > self.bytes.len().saturating_sub(self.at) {
            return Err(Fault::EndsEarly { what });
        }
        let mut items = Vec::with_capacity(count.min(RESERVED_MAX));
        for _ in 0..count {
            items.push(item(self)?);
        }
        Ok(items)
    }

    pub(super) fn text(&mut self, what: &'static str) -> Result<&'a str, Fault> {
        let start = self.at;
        let len = self.len(what)?;
        let bytes = self.raw(len, what)?;
        std::str::from_utf8(bytes).map_err(|_| self.fault(what, start))
    }

    pub(super) fn shared_text(&mut self, what: &'static str) -> Result<Arc<str>, Fault> {
        self.text(what).map(Arc::from)
    }

    /// A name, by the function that checks one.
    pub(super) fn name<T>(
        &mut self,
        what: &'static str,
        new: fn(&str) -> Result<T, NameError>,
    ) -> Result<T, Fault> {
        let start = self.at;
        let text = self.text(what)?;
        new(text).map_err(|_| self.fault(what, start))
    }

    /// A principal that has a name.
    pub(super) fn principal(&mut self) -> Result<Principal, Fault> {
        let start = self.at;
        let principal = Principal::new(self.text("principal")?).ok();
        let named = principal.filter(|principal| !principal.is_anonymous());
        named.ok_or_else(|| self.fault("principal", start))
    }

    pub(super) fn namespace(&mut self) -> Result<Namespace, Fault> {
        let mut last = mem::take(&mut self.namespace);
        let name = self.name_after(&mut last, "namespace", |text| Namespace::stored(text).ok());
        self.namespace = last;
        name
    }

    pub(super) fn owner(&mut self) -> Result<Owner, Fault> {
        let mut last = mem::take(&mut self.owner);
        let name = self.name_after(&mut last, "owner", Owner::stored);
        self.owner = last;
        name
    }

    /// A name, path or subtree in its canonical text, and no other.
    pub(super) fn key(&mut self) -> Result<Key, Fault> {
        let mut last = mem::take(&mut self.key);
        let name = self.name_after(&mut last, "scope", |text| match Scope::stored(text) {
            Ok(Scope::Key(key)) if key.as_str() == text => Some(key),
            Ok(_) | Err(_) => None,
        });
        self.key = last;
        name
    }

    /// See [`name`].
    fn name_after<T: Clone>(
        &mut self,
        last: &mut Last<T>,
        what: &'static str,
        new: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, Fault> {
        let start = self.at;
        let len = self.len(what)?;
        if len == 0 {
            return last.name.clone().ok_or_else(|| self.fault(what, start));
        }
        let shared = self.len(what)?;
        if shared > len.min(last.bytes.len()) {
            return Err(self.fault(what, start));
        }
        let rest = self.raw(len - shared, what)?;
        last.bytes.truncate(shared);
        last.bytes.extend_from_slice(rest);
        let name = std::str::from_utf8(&last.bytes).ok().and_then(new);
        last.name.clone_from(&name);
        name.ok_or_else(|| self.fault(what, start))
    }

    pub(super) fn lease(&mut self) -> Result<LeaseId, Fault> {
        let bytes = self.array("lease id")?;
        let lease = LeaseId::from_u128(u128::from_le_bytes(bytes));
        self.lease = Some(lease);
        Ok(lease)
    }

    pub(super) fn last_lease(&self) -> Option<LeaseId> {
        self.lease
    }

    pub(super) fn millis(&mut self) -> Result<Millis, Fault> {
        self.varint_u32("length of time").map(Millis::new)
    }

    pub(super) fn duration(&mut self) -> Result<Duration, Fault> {
        let secs = self.varint("length of time")?;
        let start = self.at;
        match self.varint_u32("length of time")? {
            nanos @ 0..1_000_000_000 => Ok(Duration::new(secs, nanos)),
            1_000_000_000.. => Err(self.fault("length of time", start)),
        }
    }

    pub(super) fn fence(&mut self) -> Result<FencingToken, Fault> {
        let start = self.at;
        let step = unzigzag(self.varint("fence")?);
        self.fence = self.fence.wrapping_add(step);
        FencingToken::new(self.fence).ok_or_else(|| self.fault("fence", start))
    }

    pub(super) fn moment(&mut self) -> Result<Timestamp, Fault> {
        let step = unzigzag(self.varint("moment")?);
        self.moment = self.moment.wrapping_add(step);
        Ok(Timestamp::from_millis(self.moment))
    }

    pub(super) fn range(&mut self) -> Result<ByteRange, Fault> {
        let at = self.at;
        let start = self.varint("byte range")?;
        let reach = self.varint("byte range")?;
        start
            .checked_add(reach)
            .and_then(|last| ByteRange::inclusive(start, last))
            .ok_or_else(|| self.fault("byte range", at))
    }
}

fn low_byte(value: u64) -> u8 {
    value.to_le_bytes()[0]
}

/// A step up or down as a number that is small when the step is.
fn zigzag(step: u64) -> u64 {
    let step = step.cast_signed();
    ((step << 1) ^ (step >> 63)).cast_unsigned()
}

fn unzigzag(value: u64) -> u64 {
    (value >> 1) ^ (value & 1).wrapping_neg()
}
