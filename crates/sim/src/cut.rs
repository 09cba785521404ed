//! What is left out of a world, and how that is spelled: `until=5000000,fault=2-7,client=1,action=0.3-90`.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::RangeInclusive;

use anyhow::Context;

use crate::time::Micros;

/// What the shrinker leaves out of a world.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    pub until: Option<Micros>,
    /// Faults, by their number in the plan.
    pub faults: BTreeSet<usize>,
    /// Clients that do nothing.
    pub clients: BTreeSet<usize>,
    /// Single actions of clients.
    pub actions: BTreeSet<(usize, u64)>,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        parts.extend(self.until.map(|until| format!("until={until}")));
        for (name, places) in [("fault", &self.faults), ("client", &self.clients)] {
            let numbers = places.iter().map(|&place| place as u64);
            parts.extend(rows(numbers).map(|row| format!("{name}={row}")));
        }
        let clients: BTreeSet<usize> = self.actions.iter().map(|&(client, _)| client).collect();
        for client in clients {
            let actions =
                self.actions.range((client, 0)..=(client, u64::MAX)).map(|&(_, action)| action);
            parts.extend(rows(actions).map(|row| format!("action={client}.{row}")));
        }
        f.write_str(&parts.join(","))
    }
}

/// Rising numbers as `3`, or `3-7` for those that follow each other.
fn rows(numbers: impl Iterator<Item = u64>) -> impl Iterator<Item = String> {
    let mut rows: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match rows.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            Some(_) | None => rows.push((number, number)),
        }
    }
    let shown = |(first, last)| match first == last {
        true => format!("{first}"),
        false => format!("{first}-{last}"),
    };
    rows.into_iter().map(shown)
}

impl std::str::FromStr for Cut {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Cut> {
        let mut cut = Cut::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            match part.split_once('=') {
                Some(("until", until)) => cut.until = Some(until.parse()?),
                Some(("fault", faults)) => cut.faults.extend(places(faults)?),
                Some(("client", clients)) => cut.clients.extend(places(clients)?),
                Some(("action", actions)) => {
                    let (client, actions) = actions.split_once('.').with_context(|| {
                        format!("{part:?} is not action=CLIENT.NUMBER or action=CLIENT.FIRST-LAST")
                    })?;
                    let client: usize = client.parse()?;
                    cut.actions.extend(row(actions)?.map(|action| (client, action)));
                }
                Some(_) | None => anyhow::bail!("{part:?} is none of until, fault, client, action"),
            }
        }
        Ok(cut)
    }
}

/// `3`, or `3-7`.
fn row(text: &str) -> anyhow::Result<RangeInclusive<u64>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last): (u64, u64) = (first.parse()?, last.parse()?);
    // Longer than any world: a slip of the pen must not fill the memory.
    anyhow::ensure!(last.saturating_sub(first) < 10_000_000, "{text:?} is too long");
    Ok(first..=last)
}

fn places(text: &str) -> anyhow::Result<Vec<usize>> {
    row(text)?.map(|number| Ok(usize::try_from(number)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_each_other_is_spelled_as_a_row() {
        let cut = Cut {
            until: Some(5_000_000),
            faults: [0, 2, 3, 4, 9].into(),
            clients: [1].into(),
            actions: [(0, 3), (0, 4), (1, 5), (1, 7)].into(),
        };
        let text =
            "until=5000000,fault=0,fault=2-4,fault=9,client=1,action=0.3-4,action=1.5,action=1.7";
        assert_eq!(cut.to_string(), text);
        assert_eq!(text.parse::<Cut>().unwrap(), cut);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "fault",
            "fault=x",
            "fault=1-",
            "action=3",
            "action=0.1-x",
            "none=1",
            "fault=0-99999999",
        ] {
            assert!(text.parse::<Cut>().is_err(), "{text}");
        }
        assert_eq!("".parse::<Cut>().unwrap(), Cut::default());
    }
}
