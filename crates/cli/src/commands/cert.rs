//! `leasehold cert`

use leasehold_access::principal;
use leasehold_api::{RevokeCertificateRequest, RevokedCertificate};
use leasehold_client::Method;
use serde::Serialize;

use super::Answered;
use super::auth::ask;
use super::init::Layout;
use crate::args::{CaCommand, CertCommand, CertDir, CertIssue, CertRenew};
use crate::asking::Server;
use crate::failure::{EXIT_USAGE, Failure};
use crate::output::Output;
use crate::setup::pki::{Authority, Paths, Record, Request, Subject};
use crate::setup::private::{self, PUBLIC};

#[derive(Debug, Serialize)]
struct Issued<'a> {
    file: String,
    #[serde(flatten)]
    record: &'a Record,
}

/// Those that ask no server.
pub(crate) fn offline(out: &Output, command: &CertCommand) -> Option<Answered> {
    match command {
        CertCommand::Issue(args) => Some(issue(out, args)),
        CertCommand::Renew(args) => Some(renew(out, args)),
        CertCommand::Ca(CaCommand::Show(args)) => Some(show(out, args)),
        CertCommand::Revoke(_) => None,
    }
}

pub(crate) async fn run(server: &Server, command: &CertCommand) -> Answered {
    let CertCommand::Revoke(args) = command else { unreachable!("the others ask no server") };
    let request =
        RevokeCertificateRequest { certificate: args.serial.clone(), note: String::new() };
    let path = "/v1/auth/revocations";
    let gone: RevokedCertificate = ask(server, Method::POST, path, Some(&request)).await?;
    server.out.answer(&gone, |_| format!("certificate {} is revoked\n", gone.certificate));
    Ok(0)
}

fn show(out: &Output, args: &CertDir) -> Answered {
    let pem = private::read(&Authority::files(&args.dir).0)
        .map_err(|failure| failure.next("--dir names the directory of `leasehold init`"))?;
    out.text(&pem);
    Ok(0)
}

fn issue(out: &Output, args: &CertIssue) -> Answered {
    principal::parse(&args.principal, principal::Use::Token)
        .map_err(|error| Failure::new(EXIT_USAGE, error.to_string()))?;
    let authority = Authority::read(&args.of.dir)?;
    private::directory(&args.out)?;
    let paths = Paths::of(&args.out.join("client.pem"));
    if private::is_there(&paths.certificate) {
        let said = format!("{} is there already", paths.certificate.display());
        return Err(Failure::new(EXIT_USAGE, said).next("`leasehold cert renew` replaces it"));
    }
    let subject = Subject::Principal(args.principal.clone());
    let record = authority.sign(&paths, &Request { subject, days: args.ttl })?;
    private::write(&args.out.join("ca.pem"), authority.pem(), PUBLIC)?;
    tell(out, &paths, &record);
    Ok(0)
}

fn renew(out: &Output, args: &CertRenew) -> Answered {
    let paths = match &args.certificate {
        Some(certificate) => Paths::of(certificate),
        None => Layout::of(&args.of.dir).certificate(),
    };
    let record = Record::read(&paths)?;
    let record = Authority::read(&args.of.dir)?.sign(&paths, &record.request)?;
    tell(out, &paths, &record);
    Ok(0)
}

fn tell(out: &Output, paths: &Paths, record: &Record) {
    let file = paths.certificate.display().to_string();
    let issued = Issued { file, record };
    out.answer(&issued, |_| {
        let whose = match &record.request.subject {
            Subject::Server { name, .. } => format!("server {name}"),
            Subject::Principal(name) => format!("principal {name}"),
        };
        let days = record.request.days;
        format!("{}: {whose}, for {days} days, serial {}\n", issued.file, record.serial)
    });
}
