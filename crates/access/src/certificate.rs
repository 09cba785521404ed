//! The principal of a client's certificate: decided by exactly one of its names, never by its subject.
//!
//! A mapping is a template of a URI or a DNS name. A placeholder stands for one whole part, or for the middle of one: `{name}`;
//! at the end of a URI `{name*}` stands for all that is left. So a name fits a template in one way or not at all.

use leasehold_core::Principal;

use crate::principal::{self, Use};
use crate::rule::RoleRef;

const PLACEHOLDERS_MAX: usize = 8;

/// A mapping from one kind of certificate name to a principal and its roles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateMapping {
    kind: Kind,
    name: Vec<Part>,
    principal: Text,
    roles: Vec<Text>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Uri,
    Dns,
}

/// One part of a name between two separators.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Literal(Box<str>),
    Placeholder {
        before: Box<str>,
        name: Box<str>,
        after: Box<str>,
    },
    /// This part and all that follow.
    Rest(Box<str>),
}

/// Text with placeholders that are put in.
type Text = Vec<Piece>;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Literal(Box<str>),
    Placeholder(Box<str>),
}

/// The principal of a certificate, and the roles that its mapping gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certified {
    pub principal: Principal,
    pub roles: Vec<RoleRef>,
}

/// The reason why a certificate stands for no principal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotCertified {
    NoName,
    TwoNames,
    /// The mapping's result is not a valid principal or role.
    Unusable,
}

impl NotCertified {
    pub const fn as_str(self) -> &'static str {
        match self {
            NotCertified::NoName => "no name in the certificate fits a mapping",
            NotCertified::TwoNames => "more than one name in the certificate fits a mapping",
            NotCertified::Unusable => "the mapping makes no principal of the name",
        }
    }
}

/// The reason why a mapping cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MappingError {
    #[error("a mapping has one of uri and dns")]
    OneName,
    #[error("{0:?}: a placeholder is {{name}}, once in a part; {{name*}} is the end of a uri")]
    Placeholder(String),
    #[error("{0:?}: there is no placeholder {{{1}}} in the name")]
    Unknown(String, String),
    #[error("{0:?} can never be a principal")]
    Principal(String),
    #[error("{0:?} can never be a role")]
    Role(String),
}

impl CertificateMapping {
    pub fn new(
        uri: Option<&str>,
        dns: Option<&str>,
        principal: &str,
        roles: &[String],
    ) -> Result<CertificateMapping, MappingError> {
        let (kind, name) = match (uri, dns) {
            (Some(uri), None) => (Kind::Uri, name(uri, Kind::Uri)?),
            (None, Some(dns)) => (Kind::Dns, name(&dns.to_ascii_lowercase(), Kind::Dns)?),
            (Some(_), Some(_)) | (None, None) => return Err(MappingError::OneName),
        };
        let known: Vec<&str> = name.iter().filter_map(Part::placeholder).collect();
        if known.len() > PLACEHOLDERS_MAX {
            return Err(MappingError::Placeholder(uri.or(dns).unwrap_or_default().into()));
        }
        let principal_text = text(principal, &known)?;
        let roles = roles.iter().map(|role| text(role, &known)).collect::<Result<Vec<_>, _>>()?;
        let sample: Vec<(&str, &str)> = known.iter().map(|name| (*name, "x")).collect();
        principal::parse(&filled(&principal_text, &sample), Use::Token)
            .map_err(|_| MappingError::Principal(principal.into()))?;
        for role in &roles {
            let role = filled(role, &sample);
            RoleRef::parse(&role).map_err(|_| MappingError::Role(role.clone()))?;
        }
        Ok(CertificateMapping { kind, name, principal: principal_text, roles })
    }

    /// The mapping where none is configured: what `leasehold cert issue` makes.
    pub fn own() -> CertificateMapping {
        let uri = Some("leasehold://principal/{name*}");
        CertificateMapping::new(uri, None, "{name}", &[]).expect("it can be used")
    }

    /// The values of the placeholders by name; `None` if `name` does not match the template.
    fn fit<'a>(&'a self, kind: Kind, name: &'a str) -> Option<Vec<(&'a str, &'a str)>> {
        let separator = kind.separator();
        let mut rest = (kind == self.kind).then_some(name);
        let mut values = Vec::new();
        for part in &self.name {
            let left = rest?;
            if let Part::Rest(of) = part {
                values.push((&**of, is_value(left, true).then_some(left)?));
                rest = None;
                break;
            }
            let (own, after) = match left.split_once(separator) {
                None => (left, None),
                Some((own, after)) => (own, Some(after)),
            };
            rest = after;
            match part {
                Part::Literal(literal) if **literal == *own => {}
                Part::Placeholder { before, name, after } => {
                    let value = own.strip_prefix(&**before)?.strip_suffix(&**after)?;
                    values.push((&**name, is_value(value, false).then_some(value)?));
                }
                Part::Literal(_) | Part::Rest(_) => return None,
            }
        }
        rest.is_none().then_some(values)
    }
}

/// The principal that a certificate with these names stands for.
pub fn certified<'a>(
    mappings: &[CertificateMapping],
    uris: impl IntoIterator<Item = &'a str>,
    dns_names: impl IntoIterator<Item = &'a str>,
) -> Result<Certified, NotCertified> {
    let uris = uris.into_iter().map(|uri| (Kind::Uri, uri.to_owned()));
    let dns_names = dns_names.into_iter().map(|name| (Kind::Dns, name.to_ascii_lowercase()));
    let mut found = None;
    for (kind, name) in uris.chain(dns_names) {
        for mapping in mappings {
            let Some(values) = mapping.fit(kind, &name) else { continue };
            let principal = filled(&mapping.principal, &values);
            let roles = mapping.roles.iter().map(|role| RoleRef::parse(&filled(role, &values)));
            let principal = principal::parse(&principal, Use::Token);
            let one = principal.ok().zip(roles.collect::<Result<Vec<_>, _>>().ok());
            if found.replace(one).is_some() {
                return Err(NotCertified::TwoNames);
            }
        }
    }
    let (principal, roles) = found.ok_or(NotCertified::NoName)?.ok_or(NotCertified::Unusable)?;
    Ok(Certified { principal, roles })
}

/// A serial number as the access documents name it: hexadecimal digits, without zeros in front. However it was written.
pub fn serial(text: &str) -> Option<String> {
    let digits: String = text.chars().filter(|&c| c != ':').collect();
    let is_serial =
        (1..=64).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit());
    let digits = digits.trim_start_matches('0').to_ascii_lowercase();
    is_serial.then(|| if digits.is_empty() { "0".into() } else { digits })
}

impl Kind {
    const fn separator(self) -> char {
        match self {
            Kind::Uri => '/',
            Kind::Dns => '.',
        }
    }
}

impl Part {
    fn placeholder(&self) -> Option<&str> {
        match self {
            Part::Literal(_) => None,
            Part::Placeholder { name, .. } | Part::Rest(name) => Some(name),
        }
    }
}

/// Tests whether `text` is allowed as the value of a placeholder.
fn is_value(text: &str, with_slashes: bool) -> bool {
    let is_allowed = |b: u8| b.is_ascii_alphanumeric() || b"._:@-".contains(&b);
    !text.is_empty() && text.bytes().all(|b| is_allowed(b) || (with_slashes && b == b'/'))
}

fn name(text: &str, kind: Kind) -> Result<Vec<Part>, MappingError> {
    let fault = || MappingError::Placeholder(text.into());
    let count = text.split(kind.separator()).count();
    let mut parts = Vec::new();
    for (at, part) in text.split(kind.separator()).enumerate() {
        let Some((before, rest)) = part.split_once('{') else {
            if part.contains('}') {
                return Err(fault());
            }
            parts.push(Part::Literal(part.into()));
            continue;
        };
        let (name, after) = rest.split_once('}').ok_or_else(fault)?;
        let is_rest = name.ends_with('*');
        let name = name.strip_suffix('*').unwrap_or(name);
        let is_name =
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        let is_twice = parts.iter().any(|part: &Part| part.placeholder() == Some(name));
        if !is_name || is_twice || after.contains(['{', '}']) || before.contains('}') {
            return Err(fault());
        }
        parts.push(match is_rest {
            true if kind == Kind::Uri
                && at + 1 == count
                && before.is_empty()
                && after.is_empty() =>
            {
                Part::Rest(name.into())
            }
            true => return Err(fault()),
            false => {
                Part::Placeholder { before: before.into(), name: name.into(), after: after.into() }
            }
        });
    }
    Ok(parts)
}

fn text(given: &str, known: &[&str]) -> Result<Text, MappingError> {
    let mut pieces = Vec::new();
    let mut rest = given;
    while let Some((literal, after)) = rest.split_once('{') {
        let fault = || MappingError::Placeholder(given.into());
        let (name, after) = after.split_once('}').ok_or_else(fault)?;
        if !known.contains(&name) {
            return Err(MappingError::Unknown(given.into(), name.into()));
        }
        pieces.push(Piece::Literal(literal.into()));
        pieces.push(Piece::Placeholder(name.into()));
        rest = after;
    }
    pieces.push(Piece::Literal(rest.into()));
    Ok(pieces)
}

fn filled(text: &Text, values: &[(&str, &str)]) -> String {
    let piece = |piece: &Piece| match piece {
        Piece::Literal(literal) => literal.to_string(),
        Piece::Placeholder(name) => {
            let value = values.iter().find(|(known, _)| *known == &**name);
            value.map_or_else(String::new, |(_, value)| (*value).to_owned())
        }
    };
    text.iter().map(piece).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(name: &str, principal: &str, roles: &[&str]) -> CertificateMapping {
        let roles: Vec<String> = roles.iter().map(|role| (*role).into()).collect();
        CertificateMapping::new(Some(name), None, principal, &roles).unwrap()
    }

    fn dns(name: &str, principal: &str) -> CertificateMapping {
        CertificateMapping::new(None, Some(name), principal, &[]).unwrap()
    }

    fn of(
        mappings: &[CertificateMapping],
        uris: &[&str],
        names: &[&str],
    ) -> Result<String, NotCertified> {
        let names = names.iter().copied();
        certified(mappings, uris.iter().copied(), names).map(|found| found.principal.to_string())
    }

    #[test]
    fn one_name_that_fits_makes_the_principal_and_its_roles() {
        let spiffe = uri(
            "spiffe://prod.example/ns/{ns}/sa/{sa}",
            "spiffe/{ns}/{sa}",
            &["client:{ns}", "reader"],
        );
        let found = certified(&[spiffe], ["spiffe://prod.example/ns/pay/sa/worker"], []).unwrap();
        assert_eq!(found.principal.as_str(), "spiffe/pay/worker");
        let roles: Vec<String> = found.roles.iter().map(ToString::to_string).collect();
        assert_eq!(roles, ["client:pay", "reader"]);
        let own = [CertificateMapping::own()];
        assert_eq!(
            of(&own, &["leasehold://principal/k8s/prod/worker"], &[]),
            Ok("k8s/prod/worker".into())
        );
        let workers = [dns("w-{name}.Workers.example", "{name}")];
        assert_eq!(of(&workers, &[], &["W-7.workers.example"]), Ok("7".into()));
    }

    #[test]
    fn no_name_or_two_make_no_principal() {
        let own = [CertificateMapping::own(), dns("{name}.workers.example", "{name}")];
        let one = "leasehold://principal/a";
        assert_eq!(of(&own, &[], &[]), Err(NotCertified::NoName));
        assert_eq!(
            of(&own, &["https://a.example/", "spiffe://x"], &["a.example"]),
            Err(NotCertified::NoName)
        );
        assert_eq!(of(&own, &[one, "leasehold://principal/b"], &[]), Err(NotCertified::TwoNames));
        assert_eq!(of(&own, &[one, one], &[]), Err(NotCertified::TwoNames));
        assert_eq!(of(&own, &[one], &["a.workers.example"]), Err(NotCertified::TwoNames));
        let both =
            [CertificateMapping::own(), uri("leasehold://principal/{name}", "x/{name}", &[])];
        assert_eq!(of(&both, &[one], &[]), Err(NotCertified::TwoNames));
    }

    #[test]
    fn placeholder_stands_for_one_part_and_for_nothing_strange() {
        let one = [uri("leasehold://principal/{name}", "{name}", &[])];
        for other in [
            "leasehold://principal/",
            "leasehold://principal/a/b",
            "leasehold://principal/a/",
            "leasehold://principal/a%2Fb",
            "leasehold://principal/a b",
            "leasehold://principal/\u{e9}",
            "leasehold://principal",
            "LEASEHOLD://principal/a",
            "xleasehold://principal/a",
        ] {
            assert_eq!(of(&one, &[other], &[]), Err(NotCertified::NoName), "{other}");
        }
        let own = [CertificateMapping::own()];
        for reserved in ["server/a", "uid/0", "anonymous", "a//b", "/a", "a/"] {
            let uri = format!("leasehold://principal/{reserved}");
            assert_eq!(of(&own, &[&uri], &[]), Err(NotCertified::Unusable), "{reserved}");
        }
        let names = [dns("{name}.workers.example", "{name}")];
        for other in
            ["*.workers.example", "a.b.workers.example", "workers.example", ".workers.example"]
        {
            assert_eq!(of(&names, &[], &[other]), Err(NotCertified::NoName), "{other}");
        }
    }

    #[test]
    fn mapping_that_could_never_be_right_is_refused() {
        let refused = |uri: Option<&str>, dns: Option<&str>, principal: &str, role: &str| {
            CertificateMapping::new(uri, dns, principal, &[role.to_owned()]).unwrap_err()
        };
        let one = Some("x://{a}");
        assert_eq!(refused(None, None, "a", "admin"), MappingError::OneName);
        assert_eq!(refused(one, Some("b"), "a", "admin"), MappingError::OneName);
        for wrong in [
            "x://{a",
            "x://a}",
            "x://{}",
            "x://{a}{b}",
            "x://{a}/{a}",
            "x://{a*}/b",
            "x://y{a*}",
            "x://{a.b}",
        ] {
            assert!(
                matches!(refused(Some(wrong), None, "a", "admin"), MappingError::Placeholder(_)),
                "{wrong}"
            );
        }
        assert!(matches!(refused(None, Some("{a*}"), "a", "admin"), MappingError::Placeholder(_)));
        assert!(matches!(refused(one, None, "{b}", "admin"), MappingError::Unknown(..)));
        assert!(matches!(refused(one, None, "server/{a}", "admin"), MappingError::Principal(_)));
        assert!(matches!(refused(one, None, "{a} {a}", "admin"), MappingError::Principal(_)));
        assert!(matches!(refused(one, None, "{a}", "a b"), MappingError::Role(_)));
    }

    #[test]
    fn serial_is_one_text_however_it_is_written() {
        for text in ["1FA0", "01:fa:0", "001fa0"] {
            assert_eq!(serial(text).as_deref(), Some("1fa0"), "{text}");
        }
        assert_eq!(serial("00").as_deref(), Some("0"));
        for text in ["", ":", "xyz", "1 2"] {
            assert_eq!(serial(text), None, "{text}");
        }
    }
}
