//! `leasehold version`

use leasehold_api::Version;

use super::Answered;
use crate::output::Output;

/// In the shape in which a server tells its own.
pub(crate) fn run(out: &Output) -> Answered {
    let version = Version {
        name: "leasehold".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        api: vec!["v1".into()],
    };
    out.answer(&version, |_| format!("{} {}\n", version.name, version.version));
    Ok(0)
}
