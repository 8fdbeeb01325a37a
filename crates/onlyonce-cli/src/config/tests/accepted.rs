//! What good files mean.

use onlyonce::key::KeySource;
use onlyonce::policy::{Absent, InFlight, KeyNeed, Mode, Recovery};
use onlyonce::scope::ScopePart;
use proptest::prelude::*;

use super::*;

#[test]
fn an_empty_file_is_the_default() {
    assert!(is_default(&good("")));
}

#[test]
fn the_default_text_is_the_default() {
    assert!(is_default(&good(Config::default_text())));
}

// Delete the first `# ` of what is commented out, and it is good as well; a filter needs a Postgres behind it.
#[test]
fn the_examples_in_the_default_text_are_good() {
    let uncommented = |line: &str| match line.strip_prefix("# ") {
        Some(rest) if rest.starts_with('[') || rest.contains(" = ") => {
            rest.replace("env:ONLYONCE_", "env:")
        }
        _ => line.to_owned(),
    };
    let lines: Vec<_> = Config::default_text().lines().map(uncommented).collect();
    let text = lines.join("\n").replace("env:ADMIN_TOKEN", "env:SECRET");
    let text = text.replace("env:READ_TOKEN", "another").replace("env:HOOK", "env:SECRET");
    let without = |start: &str| {
        let kept = text.lines().filter(|line| !line.starts_with(start));
        kept.collect::<Vec<_>>().join("\n")
    };
    assert!(good(&without("filter = ")).audit.is_some());
    let config = good(&text.replace("sqlite:onlyonce.db", "postgres://db/keys"));
    assert!(
        config.filter.is_some()
            && config.upstream.is_some()
            && config.secret.is_some()
            && config.admin.is_some()
    );
    assert_eq!(config.routes.len(), 1);
}

#[test]
fn the_top_of_the_file_is_taken_over() {
    let config = good(
        r#"
        listen = "[::1]:1"
        upstream = "h2c://127.0.0.1:2"
        store = "memory:"
        secret = "env:SECRET"
        sweep = "1m"
        sweep_rows = 7
        bodies_bytes_max = "1KiB"
        executing_max = 1_000
        [admin]
        token = "env:SECRET"
        listen = "0.0.0.0:3"
        "#,
    );
    assert_eq!(config.listen.to_string(), "[::1]:1");
    assert_eq!(config.upstream.as_ref().unwrap().scheme(), "h2c");
    assert_eq!(config.store, StoreUrl::Memory);
    assert!(config.secret.is_some());
    assert_eq!((config.sweep, config.sweep_rows), (Duration::from_secs(60), 7));
    assert_eq!((config.bodies_bytes_max, config.executing_max), (1024, 1000));
    let admin = config.admin.unwrap();
    assert_eq!(admin.token.unwrap().reveal(), "0123456789abcdef0123456789abcdef");
}

#[test]
fn a_value_stands_over_the_preset_and_the_preset_over_the_policy() {
    let config = good(
        r#"
        [[route]]
        match = "POST /plain"
        [[route]]
        match = "POST /preset"
        preset = "payments"
        [[route]]
        match = "POST /own"
        ttl = "3h"
        preset = "payments"
        [policy]
        ttl = "2h"
        lease = "7s"
        "#,
    );
    let of = |path| &config.route(&Method::POST, path).policy;
    let hours = |path| of(path).ttl().as_secs() / 3600;
    assert_eq!(["/plain", "/preset", "/own", "/other"].map(hours), [2, 24, 3, 2]);
    assert_eq!(of("/plain").key(), KeyNeed::Optional);
    assert_eq!(of("/preset").key(), KeyNeed::Required);
    assert_eq!(of("/own").key_rules().length, (16, 255));
    assert_eq!(of("/preset").lease(), Duration::from_secs(7));
}

// R20, R21
#[test]
fn a_route_guards_what_its_match_names_and_a_star_what_the_policy_says() {
    let config = good(
        r#"
        [policy]
        methods = ["POST", "PUT"]
        [[route]]
        match = "DELETE /a"
        [[route]]
        match = "* /a"
        "#,
    );
    let guards = |method, path| config.route(&method, path).guards(&method);
    assert!(
        guards(Method::DELETE, "/a") && guards(Method::POST, "/a") && guards(Method::PUT, "/b")
    );
    assert!(
        !guards(Method::PATCH, "/a") && !guards(Method::DELETE, "/b") && !guards(Method::GET, "/a")
    );
}

#[test]
fn the_first_route_that_matches_wins() {
    let config = good(
        r#"
        [[route]]
        match = "POST /v1/charges"
        [[route]]
        match = "POST /v1/{*rest}"
        "#,
    );
    let name = |path| config.route(&Method::POST, path).policy.route().to_string();
    assert_eq!(name("/v1/charges"), "POST /v1/charges");
    assert_eq!(name("/v1/ch%61rges"), "POST /v1/charges");
    assert_eq!(name("/v1/charges/"), "POST /v1/{*rest}");
    assert_eq!(name("/v2"), "default");
    assert!(config.warnings.is_empty());
}

#[test]
fn a_route_says_what_only_the_gateway_needs() {
    let config = good(
        r#"
        upstream = "http://main"
        [[route]]
        match = "POST /a"
        principal = ["header:X-Account", "cookie:sid"]
        anonymous = "reject"
        forward_key = "derive"
        upstream = "http://other/api"
        upstream_idle = "0s"
        key_from = ["header:X-Key", "json:/id", "fingerprint"]
        in_flight = "wait"
        wait = "2s"
        mode = "observe"
        scope = ["principal", "path", "header:X-Tenant"]
        "#,
    );
    let route = &config.routes[0];
    let sources = vec![
        PrincipalSource::Header(http::HeaderName::from_static("x-account")),
        PrincipalSource::Cookie("sid".into()),
    ];
    assert_eq!(route.principal, PrincipalRule::Sources(sources));
    assert_eq!((route.anonymous, route.forward_key), (Anonymous::Reject, ForwardKey::Derive));
    assert_eq!(config.upstream_of(route).unwrap().to_string(), "http://other/api");
    assert_eq!((route.upstream_idle, config.fallback.upstream_idle.as_secs()), (Duration::ZERO, 1));
    assert_eq!(config.upstream_of(&config.fallback).unwrap().authority(), "main");
    assert_eq!(route.policy.key_from().last(), Some(&KeySource::Fingerprint));
    assert_eq!(route.policy.in_flight(), InFlight::Wait(Duration::from_secs(2)));
    assert_eq!(route.policy.mode(), Mode::Observe);
    let tenant = ScopePart::Header(http::HeaderName::from_static("x-tenant"));
    assert_eq!(route.policy.scope(), [ScopePart::Principal, ScopePart::Path, tenant]);
}

#[test]
fn each_recovery_has_its_details() {
    let config = good(
        r#"
        [policy]
        recovery = "redrive"
        [[route]]
        match = "POST /a"
        forward_key = "derive"
        recovery = "reconcile"
        reconcile = { ask = "GET /a?k={key}", found = "/0/id", absent = "release", quiet = "90s", auth = "env:SECRET" }
        [[route]]
        match = "POST /b"
        recovery = "fail"
        "#,
    );
    let (quiet, day) = (Duration::from_secs(90), Duration::from_secs(23 * 3600));
    assert_eq!(config.fallback.policy.recovery(), Recovery::Redrive { within: day });
    let absent = Absent::Release;
    assert_eq!(config.routes[0].policy.recovery(), Recovery::Reconcile { absent, quiet });
    let rule = config.routes[0].reconcile.as_ref().unwrap();
    assert_eq!(rule.found.to_string(), "/0/id");
    assert_eq!(rule.auth.as_ref().unwrap(), "0123456789abcdef0123456789abcdef");
    assert_eq!(config.routes[1].policy.recovery(), Recovery::Fail);
    assert!(config.routes[1].reconcile.is_none());
}

#[test]
fn what_is_confidential_may_be_in_a_file() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "whsec_of-a-file\r\n").unwrap();
    let path = file.path().display();
    let config = good(&format!("[admin]\ntoken = \"file:{path}\""));
    assert_eq!(config.admin.unwrap().token.unwrap().reveal(), "whsec_of-a-file");
    for (provider, secret) in [
        ("github", format!("file:{path}")),
        ("stripe", "whsec_written-here".to_owned()),
        ("linear", "lin_wh_written-here".to_owned()),
    ] {
        let webhook =
            format!("webhook = {{ provider = \"{provider}\", secrets = [\"{secret}\"] }}");
        good(&format!("[[route]]\nmatch = \"POST /a\"\n{webhook}"));
    }
}

#[test]
fn nothing_confidential_is_shown() {
    let text = r#"
        secret = "env:SECRET"
        admin = { token = "env:SECRET" }
        [policy]
        forward_key = "derive"
        recovery = "reconcile"
        reconcile = { ask = "GET /a?k={key}", found = "/0/id", auth = "env:SECRET" }
        "#;
    assert!(!format!("{:?}", good(text)).contains("0123456789abcdef"));
}

#[test]
fn what_is_probably_not_meant_is_a_warning() {
    let cases = [
        ("secret = \"short\"", "1:10: warning: `secret`: it is shorter than 16 bytes"),
        (
            "[[route]]\nmatch = \"* /{*r}\"\n[[route]]\nmatch = \"POST /a\"",
            "3:1: warning: \"POST /a\" is never reached: \"* /{*r}\" above it takes its requests; move \"POST /a\" before it",
        ),
        (
            "[[route]]\nmatch = \"POST /a\"\n[[route]]\nmatch = \"PUT /a\"\n[[route]]\nmatch = \"POST,PUT /a\"",
            "5:1: warning: \"POST,PUT /a\" is never reached: \"POST /a\" above it",
        ),
        (
            "[[route]]\nmatch = \"POST /a\"\nwait = \"1s\"",
            "3:1: warning: `wait` has no effect unless `in_flight` is \"wait\"",
        ),
        (
            "[[route]]\nmatch = \"POTS /a\"",
            "1:1: warning: \"POTS /a\" guards POTS, which is none of POST, PUT",
        ),
        (
            "[[route]]\nmatch = \"POST /t/{id}\"\nrecovery = \"reconcile\"\nreconcile = { ask = \"GET /t?k={key}\", found = \"/0\" }",
            "1:1: warning: `ask` does not name {id}",
        ),
        (
            "[[route]]\nmatch = \"POST /v1/API-Keys\"",
            "1:1: warning: the path ends in or has \"api-keys\": if its answers hold secrets",
        ),
    ];
    for (text, warning) in cases {
        let warnings = good(text).warnings;
        let line = warnings[0].as_warning();
        assert!(line.starts_with(&format!("onlyonce.toml:{warning}")), "{line}");
        assert_eq!(warnings.len(), 1, "{text}");
    }
}

// R14, R19
#[test]
fn a_key_that_is_none_is_a_warning_where_it_is_said() {
    let instead = "; take it from what the client makes once for each operation, such as header:Idempotency-Key";
    let cases = [
        ("json:/order_number", "which people write and use again"),
        ("form:email", "which people write and use again"),
        ("json:/created_at", "which a clock or a counter makes"),
        ("header:X-Request-Id", "which clients and proxies make anew for each attempt"),
        ("header:Authorization", "which is the same in all requests of a client"),
    ];
    for (source, why) in cases {
        for (table, of) in
            [("[policy]", "[policy]"), ("[[route]]\nmatch = \"POST /a\"", "\"POST /a\"")]
        {
            // A route that inherits it says nothing of it.
            let text = format!(
                "{table}\nkey_from = [\"header:X-Key\", {source:?}]\n[[route]]\nmatch = \"POST /b\""
            );
            let warnings = good(&text).warnings;
            assert_eq!(warnings.len(), 1, "{warnings:?}");
            let source = source.to_lowercase();
            let message = &warnings[0].message;
            assert!(
                message.starts_with(&format!("{of} takes its key from {source}, {why}")),
                "{message}"
            );
            assert!(message.ends_with(instead), "{message}");
            assert_eq!(warnings[0].line, table.lines().count() + 1);
        }
    }
}

// R107
#[test]
fn a_key_that_is_forgotten_while_clients_retry_is_a_warning() {
    let deadline = onlyonce::client::Retries::DEADLINE.as_secs();
    let route = |rules: &str| format!("[[route]]\nmatch = \"POST /a\"\n{rules}");
    let cases = [
        (
            route(&format!("ttl = \"{}s\"", deadline - 1)),
            "\"POST /a\" keeps answers for 59s, and clients retry for longer (the one of onlyonce for 60s): a late retry would be executed again; make `ttl` \"60s\" or more",
        ),
        (
            "[policy]\nttl = \"5s\"\n[[route]]\nmatch = \"POST /b\"".to_owned(),
            "[policy] keeps answers for 5s, and clients",
        ),
        (
            route("recovery = \"redrive\"\nredrive_for = \"25h\""),
            "\"POST /a\" expects retries for 90000s (`redrive_for`), and keeps answers for 86400s (`ttl`)",
        ),
        (
            route("recovery = \"redrive\"\nttl = \"1h\"\nhold_max = \"2h\""),
            "\"POST /a\" would send an unknown outcome again for 82800s (`redrive_for`), and makes it a final 502 after 7200s",
        ),
    ];
    for (text, expected) in cases {
        let warnings = good(&text).warnings;
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].message.starts_with(expected), "{}", warnings[0].message);
    }
    let fine =
        [format!("ttl = \"{deadline}s\""), "recovery = \"redrive\"\nttl = \"1h\"".to_owned()];
    for rules in fine {
        assert_eq!(good(&route(&rules)).warnings, [], "{rules}");
    }
}

#[test]
fn the_default_text_and_a_preset_deserve_no_warning() {
    assert_eq!(good(Config::default_text()).warnings, []);
    for (preset, _) in preset::Preset::ALL {
        let text = format!("[[route]]\nmatch = \"POST /a\"\npreset = {preset:?}");
        assert_eq!(good(&text).warnings, [], "{preset}");
    }
}

// R14
#[test]
fn denied_keys_are_taken_over() {
    let config = good(
        "[[route]]\nmatch = \"POST /a\"\nkey_deny = [\"null\", \"test\"]\nkey_length = [4, 9]",
    );
    let rules = config.routes[0].policy.key_rules();
    assert_eq!(rules.denied, ["null", "test"].map(Box::from));
    assert_eq!(rules.length, (4, 9), "the other rules are kept");
    assert!(config.fallback.policy.key_rules().denied.is_empty());
    let many = vec!["k"; 65];
    assert!(parse(&format!("[policy]\nkey_deny = {many:?}")).is_err());
}

// R185
#[test]
fn a_route_that_says_what_it_keeps_is_no_warning() {
    for said in ["keep = \"status\"", "keep = \"all\"", "redact = [\"/key\"]"] {
        let text = format!("[[route]]\nmatch = \"POST /tokens\"\n{said}");
        assert!(good(&text).warnings.is_empty(), "{said}");
    }
    assert!(good("[[route]]\nmatch = \"POST /tokenizers\"").warnings.is_empty());
}

// R184
#[test]
fn the_keys_of_a_seal_are_read_in_their_order_and_never_shown() {
    use onlyonce::store::sealed::SealKey;

    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "cd".repeat(32) + "\n").unwrap();
    let text = format!("[seal]\nkeys = [\"env:SEAL\", \"file:{}\"]", file.path().display());
    let config = good(&text);
    assert_eq!(config.seal, [SealKey::new([0xab; 32]), SealKey::new([0xcd; 32])]);
    let shown = format!("{config:?}");
    assert!(!shown.contains("abab") && !shown.contains("cdcd"), "{shown}");
    assert!(good("").seal.is_empty());
}

#[test]
fn routes_that_are_reached_are_no_warning() {
    let text = "[[route]]\nmatch = \"POST /{*r}\"\n[[route]]\nmatch = \"* /a\"\n[[route]]\nmatch = \"POST,PUT /b\"";
    assert!(good(text).warnings.is_empty());
}

proptest! {
    #[test]
    fn arbitrary_text_is_read_without_a_panic(text in any::<String>()) {
        let _ = parse(&text);
    }

    #[test]
    fn arbitrary_values_under_known_names_are_read_without_a_panic(
        table in prop::sample::select(vec!["", "[policy]", "[admin]", "[[route]]\nmatch = \"POST /a\""]),
        name in prop::sample::select(names()),
        value in values(),
    ) {
        let _ = parse(&format!("{table}\n{name} = {value}")).map_err(|error| error.to_string());
    }
}

fn names() -> Vec<&'static str> {
    let sections = [TOP, ADMIN, AUDIT, ROUTE, RECONCILE];
    sections.iter().flat_map(|section| section.names().map(|name| name.name)).collect()
}

fn values() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        any::<String>().prop_map(|text| format!("{text:?}")),
        "\"[a-zA-Z0-9:/{}*., ]{0,12}\"",
        "[-+]?[0-9]{1,25}",
        "(true|0x[0-9a-f]{1,20}|1979-05-27|nan|\\{\\})",
    ];
    let list = prop::collection::vec(word, 1..4);
    list.prop_flat_map(|words| {
        prop_oneof![
            Just(words[0].clone()),
            Just(format!("[{}]", words.join(","))),
            Just(format!("{{ ask = {} }}", words[0])),
        ]
    })
}

#[test]
fn a_webhook_sets_what_its_provider_needs_and_the_route_may_say_otherwise() {
    let route = |more: &str| {
        let text = format!(
            "[policy]\nanonymous = \"reject\"\n[[route]]\nmatch = \"POST /hooks\"\n{more}\n\
             webhook = {{ provider = \"github\", secrets = [\"env:SECRET\"] }}\n"
        );
        good(&text).routes.remove(0)
    };
    let plain = route("");
    assert_eq!(plain.policy.key_from(), [KeySource::Body { without: None }]);
    assert_eq!(plain.policy.scope(), [ScopePart::Path]);
    assert_eq!(plain.principal, PrincipalRule::None);
    assert_eq!(plain.anonymous, Anonymous::Allow);
    assert!(!format!("{plain:?}").contains("0123456789abcdef"), "no secret is shown");
    let own = route("key_from = [\"header:X-GitHub-Delivery\"]\nscope = [\"path\", \"host\"]");
    assert_eq!(own.policy.key_from()[0].to_string(), "header:x-github-delivery");
    assert_eq!(own.policy.scope(), [ScopePart::Path, ScopePart::Host]);
}

// R26
#[test]
fn a_header_that_everybody_may_send_is_told_of() {
    let told = |text: &str| -> Vec<_> {
        let warnings = good(text).warnings.into_iter();
        warnings.map(|note| (note.line, note.message)).collect()
    };
    let message = "`principal`: whoever connects can send the header x-user and pass for another caller; name the proxies that set it in `trusted_peers`";
    let open = "[policy]\nprincipal = \"header:X-User\"\n[[route]]\nmatch = \"POST /a\"\n";
    assert_eq!(told(open), [(2, message.to_owned())], "and not again for the route");
    let named = "[policy]\nprincipal = [\"jwt:sub\", \"header:X-User\"]\ntrusted_peers = [\"::1\"]\n[jwt]\nkeys = \"k.json\"";
    for good in [
        named,
        "policy.principal = \"header:Authorization\"",
        "policy.principal = \"header:X-Api-Key\"",
    ] {
        assert_eq!(told(good), [], "{good}");
    }
    let by_token = "policy.principal = \"jwt:sub\"";
    let keys = |address: &str| told(&format!("{by_token}\n[jwt]\nkeys = \"{address}\"\n")).len();
    assert_eq!((keys("http://id.test/keys"), keys("https://id.test/keys")), (1, 0));
    assert_eq!(keys("http://127.0.0.1:9/keys"), 0);
}

// R26
#[test]
fn what_tells_nobody_apart_is_told_of() {
    let told = |text: &str| -> Vec<_> {
        let warnings = good(text).warnings.into_iter();
        warnings.map(|note| (note.line, note.message)).collect()
    };
    let peers = "trusted_peers = [\"10.0.0.0/8\"]\n";
    let by_user = "principal = \"header:X-User\"\n";
    let unread = |text: &str, line: usize, name: &str| {
        let [(at, message)] = &told(text)[..] else { panic!("{text}: {:?}", told(text)) };
        assert_eq!(
            (*at, message.starts_with(&format!("{name} has no effect: "))),
            (line, true),
            "{message}"
        );
    };
    unread(&format!("[policy]\n{peers}"), 2, "`trusted_peers`");
    unread(&format!("[policy]\n{peers}principal = \"header:X-Api-Key\"\n"), 2, "`trusted_peers`");
    let route = "[[route]]\nmatch = \"POST /a\"\n";
    unread(&format!("{route}{peers}"), 3, "`trusted_peers`");
    unread("[policy]\nkey = \"required\"\n[jwt]\nkeys = \"k.json\"\n", 3, "[jwt]");
    for good in [
        format!("[policy]\n{peers}{by_user}"),
        format!("[policy]\n{peers}{route}{by_user}"),
        format!("[policy]\n{by_user}trusted_peers = [\"::1\"]\n{route}{peers}"),
        format!("{route}principal = \"jwt:sub\"\n[jwt]\nkeys = \"k.json\"\n"),
    ] {
        assert_eq!(told(&good), [], "{good}");
    }
}

#[test]
fn certificates_are_files_and_callers_may_be_told_by_them() {
    let config = good(
        r#"
        [tls]
        cert = ["a.pem", "b.pem"]
        key = ["a.key", "b.key"]
        client_ca = "clients.pem"
        [admin]
        tls = { cert = "admin.pem", key = "admin.key", client_ca = "" }
        [upstream_tls]
        ca = "services.pem"
        cert = ""
        [policy]
        principal = ["mtls", "mtls:spki", "header:X-Account"]
        "#,
    );
    let tls = config.tls.unwrap();
    assert_eq!(tls.certificates[1].key, Path::new("b.key"));
    assert_eq!(tls.client_ca.as_deref(), Some(Path::new("clients.pem")));
    assert_eq!(config.admin.unwrap().tls.unwrap().client_ca, None);
    let upstream = config.upstream_tls.unwrap();
    assert_eq!((upstream.ca.as_deref(), upstream.own), (Some(Path::new("services.pem")), None));
    let PrincipalRule::Sources(sources) = config.fallback.principal else { panic!() };
    let told: Vec<_> = sources.iter().map(ToString::to_string).collect();
    assert_eq!(told, ["mtls", "mtls:spki", "header:x-account"]);
}
