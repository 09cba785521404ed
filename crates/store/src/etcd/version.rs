//! Versions of etcd with known bugs. None of them makes a journal wrong, since it rests on comparisons alone; but who
//! runs one should know.

/// The first versions in which all that is listed below is put right.
const GOOD: [(u32, u32, u32); 3] = [(3, 4, 44), (3, 5, 30), (3, 6, 11)];

/// The warning or error about a version, if any.
pub(super) fn warning(version: &str) -> Option<String> {
    let found = parse(version)?;
    let (major, minor, _) = found;
    let advice = "leases that outlive their revocation, reads that are out of date after a pause, \
        permissions that can be bypassed";
    if found < (3, 4, 0) {
        return Some(format!("etcd {version} is older than what Leasehold was tested with (3.4)"));
    }
    let end = if (major, minor) == (3, 4) { "; no more fixes come for 3.4" } else { "" };
    let good = GOOD.iter().find(|(a, b, _)| (*a, *b) == (major, minor))?;
    if found >= *good {
        return (!end.is_empty()).then(|| format!("etcd {version}: no more fixes come for 3.4"));
    }
    let worse = if found < (3, 5, 3) && (major, minor) == (3, 5) {
        ", and members that lose writes or disagree after a crash (3.5.0 to 3.5.2): do not use it"
    } else {
        ""
    };
    let (a, b, c) = *good;
    Some(format!(
        "etcd {version} has known bugs ({advice}{worse}), put right in {a}.{b}.{c}{end}; \
         Leasehold relies on none of what they touch"
    ))
}

fn parse(version: &str) -> Option<(u32, u32, u32)> {
    let plain = version.split(['-', '+']).next()?;
    let mut numbers = plain.split('.').map(str::parse);
    let mut next = || numbers.next()?.ok();
    Some((next()?, next()?, next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_with_known_bugs_are_warned_about() {
        for version in ["3.3.10", "3.4.23", "3.5.1", "3.5.29", "3.6.10", "3.4.44"] {
            assert!(warning(version).is_some(), "{version}");
        }
        assert!(warning("3.5.1").unwrap().contains("do not use it"));
    }

    #[test]
    fn versions_in_order_are_not() {
        for version in ["3.5.30", "3.6.11", "3.7.0", "4.0.0", "3.5.31-rc.1"] {
            assert_eq!(warning(version), None, "{version}");
        }
    }
}
