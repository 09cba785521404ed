//! Until when the certificates in a file are valid.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use leasehold_server::{Validity, certificate_validity};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::Finding;

const CHECK: &str = "certificate";
const DAY: u64 = 24 * 3600;
/// A certificate is to be renewed when less than a third of its time is left; two weeks are enough for any.
const LEFT_WANTED: u64 = 14 * DAY;

/// The one that ends first decides.
pub(super) fn of_file(file: &Path) -> Finding {
    let name = file.display();
    let wrong = |why: String| {
        let advice = "name a file with certificates in PEM that can be read";
        Finding::bad(CHECK, format!("{name}: {why}"), advice)
    };
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certificates = match read {
        Ok(certificates) => certificates,
        Err(error) => return wrong(error.to_string()),
    };
    let dates: Option<Vec<_>> = certificates.iter().map(|one| certificate_validity(one)).collect();
    match dates.as_deref() {
        None => wrong("not everything in it is a certificate".into()),
        Some([]) => wrong("there is no certificate in it".into()),
        Some(dates) => judged(&name.to_string(), dates, SystemTime::now()),
    }
}

fn judged(name: &str, dates: &[Validity], now: SystemTime) -> Finding {
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let begin = dates.iter().map(|validity| validity.not_before).max().unwrap_or_default();
    let end = dates.iter().map(|validity| validity.not_after).min().unwrap_or_default();
    let renew = "renew it (`leasehold cert renew`, or whoever issued it); a server takes the new file over while it runs";
    if now < begin {
        let detail = format!("{name} becomes valid in {} days only", (begin - now).div_ceil(DAY));
        return Finding::bad(CHECK, detail, "look at the clocks, here and where it was issued");
    }
    let Some(left) = end.checked_sub(now) else {
        let detail = format!("{name} ended {} days ago", (now - end) / DAY);
        return Finding::bad(CHECK, detail, renew);
    };
    let detail = match left {
        0..DAY => format!("{name} is valid for {} hours", left / 3600),
        _ => format!("{name} is valid for {} days", left / DAY),
    };
    if left < LEFT_WANTED.min((end - begin) / 3) {
        return Finding::warning(CHECK, detail, renew);
    }
    Finding::ok(CHECK, detail)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::Verdict;
    use super::*;

    #[test]
    fn dates_are_judged() {
        let at = |day: u64| UNIX_EPOCH + Duration::from_secs(day * DAY);
        let dates = [(10, 110), (20, 100)]
            .map(|(begin, end)| Validity { not_before: begin * DAY, not_after: end * DAY });
        for (day, verdict) in
            [(15, Verdict::Bad), (20, Verdict::Ok), (90, Verdict::Warning), (101, Verdict::Bad)]
        {
            assert_eq!(judged("a.pem", &dates, at(day)).verdict, verdict, "{day}");
        }
    }

    #[test]
    fn one_that_is_renewed_each_day_is_well_while_a_third_is_left() {
        let dates = [Validity { not_before: 0, not_after: DAY }];
        for (hour, verdict) in [(15, Verdict::Ok), (17, Verdict::Warning)] {
            let at = UNIX_EPOCH + Duration::from_secs(hour * 3600);
            assert_eq!(judged("a.pem", &dates, at).verdict, verdict, "{hour}");
        }
    }
}
