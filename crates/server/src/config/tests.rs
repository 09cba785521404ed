//! Defaults, the file as it is documented, and settings that do not go together.

use super::*;

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(Path::new("leasehold.toml"), text)
}

#[test]
fn empty_file_is_the_defaults() {
    let config = parse("").unwrap();
    assert_eq!(config.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(config.store, Store::Sqlite("leasehold-data/leasehold.db".into()));
    assert_eq!(config.limits, Limits::default());
    config.check().unwrap();
}

#[test]
fn file_is_read_as_it_is_documented() {
    let text = "listen = \"127.0.0.1:9090\"\nstore = \"memory\"\nsimple_grace = \"1m30s\"\n\
        [connections]\nidle_timeout = 20\n[limits]\nttl_max = \"1h\"\n[grace]\nlength = \"10s\"\n";
    let config = parse(text).unwrap();
    assert_eq!(config.listen.to_string(), "127.0.0.1:9090");
    assert_eq!(config.store, Store::Memory);
    assert_eq!(config.simple_grace, Duration::from_secs(90));
    assert_eq!(config.idle_timeout, Duration::from_secs(20));
    assert_eq!(config.limits.lease_ttl_max, Duration::from_secs(3600));
    assert_eq!(config.grace.length, Some(Duration::from_secs(10)));
}

#[test]
fn unknown_key_is_refused_with_its_line() {
    let said = parse("listen = \"127.0.0.1:1\"\n\nlisten_port = 3\n").unwrap_err().to_string();
    assert!(said.starts_with("leasehold.toml, line 3: unknown field `listen_port`"), "{said}");
    let said = parse("[limits]\nttl = 3\n").unwrap_err().to_string();
    assert!(said.starts_with("leasehold.toml, line 2: unknown field `ttl`"), "{said}");
}

#[test]
fn wrong_value_is_refused_with_its_line() {
    for (text, line) in [
        ("threads = \"two\"", 1),
        ("\nsimple_grace = \"soon\"", 2),
        ("a = ", 1),
        ("[grace]\npolicy = \"none\"", 2),
    ] {
        let said = parse(text).unwrap_err().to_string();
        assert!(said.starts_with(&format!("leasehold.toml, line {line}: ")), "{said}");
    }
}

#[test]
fn settings_that_do_not_go_together_are_refused() {
    for text in [
        "listen = \"0.0.0.0:80\"",
        "[auth]\naccess_file = \"access.toml\"",
        "threads = 0",
        "threads = 9999999",
        "[cluster]\ngroups = 0",
        "[cluster]\ngroups = 2",
        "[cluster]\nleadership_ttl = \"100ms\"",
        "[cluster]\nadvertise = \"locks-1:8080\"",
        "[trace]\nendpoint = \"127.0.0.1:4317\"",
        "[limits]\nttl_min = \"2h\"\nttl_max = \"1h\"",
        "store = \"memory\"\n[grace]\npolicy = \"strict\"\nlength = \"1s\"",
        "store = \"memory\"\n[grace]\nlength = \"1s\"",
        "store = \"memory\"\n[grace]\npolicy = \"conflicting\"",
    ] {
        assert!(parse(text).unwrap().check().is_err(), "{text}");
    }
}

/// Attack 55.
#[test]
fn server_that_others_can_reach_needs_tls_and_authentication_or_says_otherwise() {
    const TLS: &str = "[tls]\ncert = \"a\"\nkey = \"b\"\n";
    const AUTH: &str = "[auth]\nenabled = true\n";
    let check = |settings: &str| {
        let text = format!("listen = \"0.0.0.0:80\"\n{settings}");
        parse(&text).unwrap().check().map_err(|error| error.to_string())
    };
    for (settings, missing) in [
        ("", "neither TLS nor authentication"),
        (TLS, "no authentication"),
        (AUTH, "no TLS"),
        ("insecure_http = true", "no authentication"),
        ("insecure_anonymous = true", "no TLS"),
        ("insecure = true\ninsecure_http = false", "no TLS"),
    ] {
        let said = check(settings).unwrap_err();
        assert!(said.starts_with("0.0.0.0:80 can be reached by others, and"), "{said}");
        assert!(said.contains(missing), "{settings}: {said}");
    }
    for settings in [
        &format!("{AUTH}{TLS}"),
        "insecure = true",
        "insecure_http = true\ninsecure_anonymous = true",
        &format!("insecure_http = true\n{AUTH}"),
        &format!("insecure_anonymous = true\n{TLS}"),
    ] {
        check(settings).unwrap();
    }
    parse("listen = \"unix:/run/socket\"").unwrap().check().unwrap();
}

#[test]
fn certificates_are_mapped_as_it_is_documented() {
    let text = "[auth]\nenabled = true\n[[auth.cert]]\nuri = \"spiffe://a/ns/{ns}/sa/{sa}\"\n\
        principal = \"spiffe/{ns}/{sa}\"\nroles = [\"client:{ns}\"]\n\
        [tls]\ncert = \"a\"\nkey = \"b\"\nclient_ca = \"c\"\n";
    let config = parse(text).unwrap();
    config.check().unwrap();
    assert_eq!(config.auth.cert.len(), 1);
    assert_eq!(config.tls.unwrap().client_auth, ClientAuth::Optional);
    let said = parse("[[auth.cert]]\nprincipal = \"a\"\n").unwrap_err().to_string();
    assert!(said.contains("line 1: a mapping has one of uri and dns"), "{said}");
    let said = parse("[tls]\ncert = \"a\"\n").unwrap_err().to_string();
    assert!(said.contains("missing field `key`"), "{said}");
    let unused = "[[auth.cert]]\nuri = \"a://{b}\"\nprincipal = \"{b}\"\n";
    assert!(parse(unused).unwrap().check().is_err());
}

#[test]
fn grace_that_is_set_is_strict_in_a_store_that_forgets() {
    let policy = |text: &str| {
        let config = parse(text).unwrap();
        config.check().unwrap();
        config.grace.policy(&config.store)
    };
    let memory = "store = \"memory\"\n[limits]\nttl_max = \"1m\"\n[grace]\n";
    assert_eq!(policy(&format!("{memory}length = \"1m\"")), GracePolicy::StrictUnknown);
    let strict = format!("{memory}length = \"1m\"\npolicy = \"strict\"");
    assert_eq!(policy(&strict), GracePolicy::StrictUnknown);
    assert_eq!(policy("store = \"memory\""), GracePolicy::Conflicting);
    assert_eq!(policy("[grace]\npolicy = \"strict\""), GracePolicy::Strict);
    assert_eq!(policy("[grace]\nlength = \"1s\""), GracePolicy::Conflicting);
}

#[test]
fn store_is_spelled_in_one_way() {
    assert_eq!(Store::parse("memory").unwrap(), Store::Memory);
    assert_eq!(Store::parse("sqlite:/var/x.db").unwrap(), Store::Sqlite("/var/x.db".into()));
    for text in ["", "sqlite", "sqlite:", "mysql://x", "Memory", "postgres://"] {
        assert!(Store::parse(text).is_err(), "{text}");
    }
}
