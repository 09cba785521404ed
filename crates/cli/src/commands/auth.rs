//! `leasehold whoami`, `token` and `policy`

use std::io::Read;

use leasehold_access::{AccessFile, Token};
use leasehold_api::{
    CreateTokenRequest, CreatedToken, DeletedRole, RevokedToken, RoleInfo, RoleList,
    RotateTokenRequest, TestRightsRequest, TestedRights, TokenInfo, TokenList, WhoAmI,
};
use leasehold_client::Method;
use leasehold_server::Config;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::serve::store;
use super::{Answered, millis};
use crate::args::{Place, PolicyCommand, TokenCommand, TokenCreate, TokenHash, Ttl};
use crate::asking::Server;
use crate::failure::{EXIT_FAULT, EXIT_IO, EXIT_NOT_ALLOWED, EXIT_USAGE, Failure};
use crate::output::{Output, shown};

pub(super) async fn ask<T: DeserializeOwned>(
    server: &Server,
    method: Method,
    path: &str,
    body: Option<&impl Serialize>,
) -> Result<T, Failure> {
    let body = body.map(serde_json::to_vec).transpose();
    let body = body.map_err(|error| Failure::new(EXIT_FAULT, error.to_string()))?;
    let answered = server.ask(server.client.api().raw(method, path, body.as_deref())).await?;
    serde_json::from_slice(&answered)
        .map_err(|error| Failure::new(EXIT_FAULT, format!("the answer cannot be read: {error}")))
}

pub(super) const NOTHING: Option<&()> = None;

pub(crate) async fn whoami(server: &Server) -> Answered {
    let who: WhoAmI = ask(server, Method::GET, "/v1/auth/self", NOTHING).await?;
    server.out.answer(&who, |_| {
        let until = who.expires_at.as_deref().unwrap_or("no end");
        format!(
            "{} (by {}, until {until})\nroles: {}\nverbs: {}\n",
            who.principal,
            who.credential,
            listed(&who.roles),
            listed(&who.verbs)
        )
    });
    Ok(0)
}

pub(super) fn listed(words: &[String]) -> String {
    if words.is_empty() { "none".into() } else { words.join(", ") }
}

pub(crate) async fn token(server: &Server, command: &TokenCommand) -> Answered {
    match command {
        TokenCommand::Create(args) => {
            let request = wanted(server, args);
            let path = "/v1/auth/tokens";
            let made: CreatedToken = ask(server, Method::POST, path, Some(&request)).await?;
            created(server, &made);
        }
        TokenCommand::List => {
            let list: TokenList = ask(server, Method::GET, "/v1/auth/tokens", NOTHING).await?;
            let rows: Vec<Vec<String>> = list.tokens.iter().map(row).collect();
            let head = ["ID", "PRINCIPAL", "ROLES", "UNTIL", "NOTE"];
            server.out.answer(&list, |out| out.table(&head, &rows));
        }
        TokenCommand::Show(args) => {
            let token: TokenInfo = ask(server, Method::GET, &path_of(&args.id), NOTHING).await?;
            let head = ["ID", "PRINCIPAL", "ROLES", "UNTIL", "NOTE"];
            server.out.answer(&token, |out| out.table(&head, &[row(&token)]));
        }
        TokenCommand::Revoke(args) => {
            let path = forced(path_of(&args.id), args.force);
            let gone: RevokedToken = ask(server, Method::DELETE, &path, NOTHING).await?;
            server.out.answer(&gone, |_| format!("{} is revoked\n", gone.id));
        }
        TokenCommand::Rotate(args) => {
            let request = RotateTokenRequest { overlap_ms: Some(millis(args.overlap)) };
            let path = format!("{}/rotate", path_of(&args.id));
            let made: CreatedToken = ask(server, Method::POST, &path, Some(&request)).await?;
            created(server, &made);
        }
        TokenCommand::New(_) | TokenCommand::Hash(_) | TokenCommand::Bootstrap(_) => {
            unreachable!("these ask no server")
        }
    }
    Ok(0)
}

/// An id is letters and digits; anything else is refused by the server as none.
fn path_of(id: &str) -> String {
    let id: String = id.chars().filter(|c| c.is_ascii_alphanumeric()).collect();
    format!("/v1/auth/tokens/{id}")
}

fn forced(path: String, force: bool) -> String {
    if force { format!("{path}?force=true") } else { path }
}

fn wanted(server: &Server, args: &TokenCreate) -> CreateTokenRequest {
    let role = |role: &String| match role.as_str() {
        "client" => format!("client:{}", server.namespace()),
        role => role.into(),
    };
    let roles: Vec<String> = args.roles.iter().map(role).collect();
    CreateTokenRequest {
        principal: args.principal.clone(),
        roles: (!roles.is_empty()).then_some(roles),
        ttl_ms: match args.ttl {
            Some(Ttl::For(length)) => Some(millis(length)),
            Some(Ttl::Never) | None => None,
        },
        no_expiry: matches!(args.ttl, Some(Ttl::Never)),
        cidrs: (!args.cidrs.is_empty()).then(|| args.cidrs.clone()),
        note: args.note.clone(),
        rules: (!args.narrow.is_empty()).then(|| args.narrow.clone().into()),
    }
}

/// The token alone on stdout, so that it can be written to a file; who it is for goes to people.
fn created(server: &Server, made: &CreatedToken) {
    let record = &made.record;
    let until = record.expires_at.as_deref().unwrap_or("no end");
    server.out.say(&format!(
        "token {} of {} with {}, until {until}; it is not shown again",
        record.id,
        record.principal,
        listed(&record.roles)
    ));
    server.out.answer(made, |_| format!("{}\n", made.token));
}

fn row(token: &TokenInfo) -> Vec<String> {
    vec![
        token.id.clone(),
        token.principal.clone(),
        token.roles.join(","),
        token.expires_at.clone().unwrap_or_else(|| "no end".into()),
        shown(&token.note),
    ]
}

/// Those of `token` that ask no server.
pub(crate) fn offline(out: &Output, command: &TokenCommand) -> Option<Answered> {
    match command {
        TokenCommand::New(_) => Some(new().map(|token| {
            out.text(&format!("{}\n", token.reveal()));
            0
        })),
        TokenCommand::Hash(args) => Some(hash(out, args)),
        TokenCommand::Bootstrap(place) => Some(bootstrap(out, place)),
        TokenCommand::Create(_)
        | TokenCommand::List
        | TokenCommand::Show(_)
        | TokenCommand::Revoke(_)
        | TokenCommand::Rotate(_) => None,
    }
}

pub(super) fn new() -> Result<Token, Failure> {
    let mut random = [0; Token::RANDOM_BYTES];
    let no_randomness = |_| Failure::new(EXIT_FAULT, "the operating system has no randomness");
    getrandom::fill(&mut random).map_err(no_randomness)?;
    Ok(Token::mint(&random))
}

fn hash(out: &Output, args: &TokenHash) -> Answered {
    let mut text = String::new();
    std::io::stdin().take(8192).read_to_string(&mut text)?;
    let token: Token = text.trim().parse().map_err(|_| {
        Failure::new(EXIT_USAGE, "what stdin has is not a token")
            .next("`leasehold token new --offline` makes one")
    })?;
    let lines = token_lines(&token, &args.principal, &args.roles);
    AccessFile::parse(&lines).map_err(|fault| Failure::new(EXIT_USAGE, fault.to_string()))?;
    out.text(&lines);
    Ok(0)
}

/// The lines of a token for access.toml.
pub(super) fn token_lines(token: &Token, principal: &str, roles: &[String]) -> String {
    let roles: Vec<String> = roles.iter().map(|role| format!("{role:?}")).collect();
    format!(
        "[[token]]\nid = \"{}\"\nprincipal = {principal:?}\nroles = [{}]\nsha256 = \"{}\"\n",
        token.id(),
        roles.join(", "),
        token.hash()
    )
}

fn bootstrap(out: &Output, place: &Place) -> Answered {
    let (_, store) = store(place).map_err(|error| Failure::from_chain(EXIT_USAGE, &error))?;
    let store = store.unwrap_or_else(|| Config::default().store);
    let token = new()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let written = runtime.block_on(leasehold_server::bootstrap(&store, &token));
    written.map_err(|said| Failure::new(EXIT_IO, said).next("is the server stopped?"))?;
    out.say("a new token of root with admin; a running server takes it within a second");
    out.text(&format!("{}\n", token.reveal()));
    Ok(0)
}

pub(crate) async fn policy(server: &Server, command: &PolicyCommand) -> Answered {
    match command {
        PolicyCommand::List => {
            let list: RoleList = ask(server, Method::GET, "/v1/auth/roles", NOTHING).await?;
            let row = |role: &RoleInfo| {
                let rules = role.rules.as_array().map_or(0, Vec::len);
                vec![role.name.clone(), role.source.clone(), rules.to_string()]
            };
            let rows: Vec<Vec<String>> = list.roles.iter().map(row).collect();
            server.out.answer(&list, |out| out.table(&["ROLE", "SOURCE", "RULES"], &rows));
        }
        PolicyCommand::Show(args) => {
            let role: RoleInfo = ask(server, Method::GET, &role_path(&args.name), NOTHING).await?;
            let body = serde_json::json!({ "rules": role.rules, "quota": role.quota });
            server.out.answer(&role, |_| format!("{body:#}\n"));
        }
        PolicyCommand::Put(args) => {
            let text = std::fs::read(&args.file).map_err(|error| {
                Failure::new(EXIT_IO, format!("{}: {error}", args.file.display()))
            })?;
            let body: serde_json::Value = serde_json::from_slice(&text).map_err(|error| {
                Failure::new(EXIT_USAGE, format!("{}: {error}", args.file.display()))
            })?;
            let path = forced(role_path(&args.name), args.force);
            let role: RoleInfo = ask(server, Method::PUT, &path, Some(&body)).await?;
            server.out.answer(&role, |_| format!("role {} is as the file says\n", role.name));
        }
        PolicyCommand::Delete(args) => {
            let path = forced(role_path(&args.name), args.force);
            let gone: DeletedRole = ask(server, Method::DELETE, &path, NOTHING).await?;
            server.out.answer(&gone, |_| format!("role {} is gone\n", gone.name));
        }
        PolicyCommand::Test(args) => {
            let request = TestRightsRequest {
                principal: args.principal.clone(),
                verb: args.verb.clone(),
                namespace: args.in_namespace.clone(),
                lock: args.lock.clone(),
            };
            let path = "/v1/auth/test";
            let tested: TestedRights = ask(server, Method::POST, path, Some(&request)).await?;
            server.out.answer(&tested, |_| match &tested.by {
                Some(by) => format!("allowed by {by}\n"),
                None => "not allowed\n".into(),
            });
            return Ok(if tested.allowed { 0 } else { EXIT_NOT_ALLOWED });
        }
    }
    Ok(0)
}

fn role_path(name: &str) -> String {
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || "._-".contains(*c);
    let name: String = name.chars().filter(is_plain).collect();
    format!("/v1/auth/roles/{name}")
}
