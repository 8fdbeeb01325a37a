//! What is said about bad files.

use super::*;

fn complaint(text: &str) -> String {
    let error = parse(text).expect_err(text).to_string();
    error.replace("onlyonce.toml:", "")
}

pub(super) const UNKNOWN: [(&str, &str); 8] = [
    ("lisen = \"x\"", "1:1: unknown name `lisen`; did you mean `listen`?"),
    ("[policy]\n  ttll = \"1h\"", "2:3: unknown name `ttll`; did you mean `ttl`?"),
    ("[policy]\ntimeout = \"1h\"", "2:1: unknown name `timeout`; did you mean `upstream_timeout`?"),
    ("[policy]\nmax_wait = \"1h\"", "2:1: unknown name `max_wait`; did you mean `wait`?"),
    ("[[routes]]", "1:3: unknown name `routes`; did you mean `route`?"),
    ("[admin]\ntokem = \"x\"", "2:1: unknown name `tokem`; did you mean `token`?"),
    ("flux_capacitor = 1", "1:1: unknown name `flux_capacitor`"),
    ("[policy]\nreconcile = { aks = 1 }", "2:15: unknown name `aks`; did you mean `ask`?"),
];

#[test]
fn an_unknown_name_is_told_with_its_place_and_the_nearest() {
    for (text, expected) in UNKNOWN {
        assert_eq!(complaint(text), expected);
    }
}

pub(super) const MISPLACED: [(&str, &str); 3] = [
    ("ttl = \"1h\"", "1:1: `ttl` does not belong here, but under [policy] or a [[route]]"),
    ("[policy]\nmatch = \"POST /\"", "2:1: `match` does not belong here, but under a [[route]]"),
    (
        "[admin]\nsecret = \"x\"",
        "2:1: `secret` does not belong here, but at the top of the file, before any [table]",
    ),
];

#[test]
fn a_name_in_the_wrong_table_is_told_where_it_belongs() {
    for (text, expected) in MISPLACED {
        assert_eq!(complaint(text), expected);
    }
}

/// The table, and a name in it.
pub(super) const NOT_BUILT: &[(&str, &str)] = &[("", "webhook")];

#[test]
fn what_is_not_built_yet_is_refused_by_name() {
    for (table, name) in NOT_BUILT {
        let expected = format!("2:1: `{name}` is not built yet; remove it");
        assert_eq!(complaint(&format!("{table}\n{name} = []")), expected);
    }
}

// Everybody could guess it.
#[test]
fn the_name_of_a_variable_is_no_secret() {
    let tables = [
        "secret = \"ONLYONCE_SECRET\"",
        "[admin]\ntoken = \"ADMIN_TOKEN\"",
        "[admin]\ntoken = \"env:SECRET\"\nread_token = \"READ_TOKEN_2\"",
        "store = \"DATABASE_URL\"",
    ];
    for text in tables {
        let said = complaint(text);
        assert!(said.contains("write \"env:\" before it"), "{text}: {said}");
        let name = text.rsplit('"').nth(1).unwrap();
        assert!(!said.contains(name), "it may be a secret for all that: {said}");
    }
}

#[test]
fn a_seal_needs_keys_that_are_elsewhere_and_long_enough() {
    let cases = [
        ("[seal]", "1:1: `seal`: it needs `keys`, such as keys = [\"env:ONLYONCE_SEAL\"]"),
        (
            "[seal]\nkeys = [\"abababab\"]",
            "2:9: `keys` is a list of \"env:NAME\" and \"file:PATH\"",
        ),
        (
            "[seal]\nkeys = [\"env:SECRET\"]",
            "2:9: `keys`: a key of the seal is 32 bytes, in hexadecimal digits or base64",
        ),
        (
            "[seal]\nkeys = [\"env:NOWHERE\"]",
            "2:9: `keys`: the environment has no variable \"NOWHERE\"",
        ),
        (
            "[seal]\nkeys = [\"file:/nowhere/at/all\"]",
            "2:9: `keys`: the file \"/nowhere/at/all\" cannot be read: No such file or directory (os error 2)",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(complaint(text), expected);
    }
}

#[test]
fn a_filter_needs_a_postgres_behind_it_and_passwords_are_not_repeated() {
    let cases = [
        (
            "filter = \"redis://x\"",
            "1:10: `filter` stands in front of a postgres:// store, and `store` is another one",
        ),
        (
            "store = \"postgres://db\"\nfilter = \"http://hunter2\"",
            "2:10: `filter`: a Redis is redis://HOST:PORT, or rediss:// with TLS",
        ),
        (
            "store = \"postgres:hunter2\"",
            "1:9: `store`: a Postgres is postgres://USER:PASSWORD@HOST:PORT/DATABASE",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(complaint(text), expected);
    }
}

#[test]
fn all_problems_are_told_at_once_in_the_order_of_the_file() {
    let text = "sweep = 5\n[policy]\nttl = \"1y\"\nkey = \"no\"\n[[route]]\nttl = true\n";
    let lines = complaint(text);
    let places: Vec<_> = lines.lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(places, ["1:9:", "3:7:", "4:7:", "5:1:", "6:7:"]);
}

pub(super) const VALUES: [(&str, &str); 8] = [
    (
        "listen = \":80\"",
        "`listen`: the address is missing: write 127.0.0.1:PORT for this machine only, or 0.0.0.0:PORT for every network",
    ),
    ("sweep = \"0s\"", "`sweep` is a duration above zero, such as \"15m\""),
    ("sweep_rows = 0", "`sweep_rows` is a number from 1 to 10000000"),
    ("executing_max = -1", "`executing_max` is a number from 1 to 10000000"),
    ("bodies_bytes_max = \"0B\"", "`bodies_bytes_max` is a size above zero, such as \"256MiB\""),
    (
        "secret = 5",
        "`secret` is a text, \"env:NAME\" for what that variable holds, or \"file:PATH\" for what that file holds; this is a number",
    ),
    ("[route]", "`route` is a list of tables, each begun by [[route]]; this is a table"),
    ("route = [5]", "`route` is a list of tables, each begun by [[route]]; this is a number"),
];

#[test]
fn values_are_told_what_they_may_be() {
    for (text, expected) in VALUES {
        let complaint = complaint(text);
        assert_eq!(complaint.split_once(": ").unwrap().1, expected, "{text}");
    }
}

pub(super) const RULES: [(&str, &str); 14] = [
    (
        "policy.key = \"requierd\"",
        "`key` is \"optional\" or \"required\", not \"requierd\"; did you mean \"required\"?",
    ),
    (
        "policy.ttl = \"1 day\"",
        "`ttl`: a duration is a whole number and one of ms, s, m, h, d, such as \"90s\"",
    ),
    ("policy.lease = 30", "`lease` is a duration, such as \"30s\"; this is a number"),
    (
        "policy.request_bytes_max = \"1MB\"",
        "`request_bytes_max`: a size is a whole number and one of B, KiB, MiB, GiB, such as \"512KiB\"",
    ),
    ("policy.mismatch = 400", "`mismatch` is 422 or 409"),
    (
        "policy.not_executed = [429, 200]",
        "`not_executed` is a list of statuses from 400 to 599, and \"5xx\" for every server error, such as [401, 429]",
    ),
    (
        "policy.scope = [\"header:a b\"]",
        "`scope`: header: is followed by the name of a header, such as header:X-Tenant",
    ),
    ("policy.key_length = [1, 256]", "`key_length`: a key has at most 255 characters"),
    (
        "policy.key_from = [\"json:id\"]",
        "`key_from`: the key source has an invalid pointer: a JSON pointer begins with a slash",
    ),
    (
        "policy.trusted_peers = [\"10.0.0.1/8\"]",
        "`trusted_peers`: bits are set after the prefix; did you mean 10.0.0.0/8?",
    ),
    (
        "policy.authorize = \"POST /whoami\"",
        "`authorize`: the question is GET, a space and a path, such as \"GET /whoami\"",
    ),
    (
        "policy.authorize_for = \"6m\"",
        "`authorize_for` is a duration of at most 5m, such as \"5s\"; \"0s\" to ask each time",
    ),
    (
        "policy.principal = []",
        "`principal`: the list is empty; write \"none\" if all callers may share their keys",
    ),
    ("a.b = 1\na = 2", "this name is given twice"),
];

#[test]
fn rules_are_told_what_they_may_be() {
    for (text, expected) in RULES {
        let complaint = complaint(text);
        assert_eq!(complaint.split_once(": ").unwrap().1, expected, "{text}");
    }
}

#[test]
fn a_variable_that_is_missing_or_empty_is_named() {
    for text in ["secret = \"env:NOPE\"", "admin = { token = \"env:NOPE\" }"] {
        assert!(complaint(text).ends_with("the environment has no variable \"NOPE\""));
    }
    assert!(
        complaint("secret = \"env:EMPTY\"")
            .ends_with("`secret`: it is empty; leave it out, or give it a value")
    );
}

#[test]
fn every_bad_member_of_a_list_is_told() {
    let said = complaint("[policy]\nkey_from = [\"heder:X\", \"json:/a\", \"query:\"]");
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines.len(), 2, "{said}");
    assert!(lines[0].starts_with("2:13: `key_from`: a key source is header:NAME"), "{said}");
    assert!(lines[1].starts_with("2:35: `key_from`: the key source lacks a name"), "{said}");
    assert_eq!(complaint("[policy]\nprincipal = [\"x\", \"y\"]").lines().count(), 2);
}

#[test]
fn a_header_without_its_place_is_told_how_it_is_written() {
    let said = complaint("[policy]\nkey_from = [\"Idempotency-Key\"]");
    assert!(said.contains("did you mean \"header:Idempotency-Key\"?"), "{said}");
}

#[test]
fn a_variable_of_a_shell_is_told_how_it_is_written_here() {
    for text in ["${KEY}", "$KEY"] {
        let expected = "1:10: `secret`: $KEY is not replaced here; write \"env:KEY\"";
        assert_eq!(complaint(&format!("secret = \"{text}\"")), expected);
    }
    assert!(parse("secret = \"$a dollar and more text\"").is_ok());
}

#[test]
fn the_admin_listener_is_not_opened_to_everybody() {
    let expected = "1:1: anyone could reach the admin listener at 0.0.0.0:1; set `token` under [admin], or listen on 127.0.0.1";
    assert_eq!(complaint("[admin]\nlisten = \"0.0.0.0:1\""), expected);
    assert!(
        complaint("admin.listen = \"127.0.0.1:8080\"")
            .contains("`listen` and the admin listener have the same address")
    );
    assert!(parse("[admin]\nlisten = \"0.0.0.0:1\"\ntoken = \"env:SECRET\"").is_ok());
    assert!(complaint("[admin]\nread_token = \"a\"").contains("set `token` under [admin]"));
    assert!(complaint("[admin]\ntoken = \"a\"\nread_token = \"a\"").contains("let them differ"));
}

// A question about something else than was sent answers one caller with another's charge, or frees a used key.
#[test]
fn a_question_that_could_be_about_another_operation_is_refused() {
    let asks = |reconcile: &str, more: &str| {
        format!(
            "[policy]\nrecovery = \"reconcile\"\nreconcile = {{ ask = \"GET /c?key={{key}}\", found = \"/id\"{reconcile} }}\n{more}"
        )
    };
    let auth = ", auth = \"Bearer x\"";
    let release = ", absent = \"release\"";
    let no_principal = "scope = [\"host\", \"method\", \"path\"]";
    let cases = [
        ("", "forward_key = \"strip\"", "`forward_key` \"strip\" with `recovery` \"reconcile\""),
        (
            "",
            "key_from = [\"fingerprint\"]",
            "`key_from` \"fingerprint\" with `recovery` \"reconcile\"",
        ),
        ("", "key_from = [\"header:X\", \"fingerprint\"]", "`key_from` \"fingerprint\""),
        (auth, "", "`reconcile` with `auth` asks for all callers"),
        (
            "",
            "scope = [\"principal\", \"header:X-Tenant\"]",
            "`reconcile` does not send the headers and values of `scope`",
        ),
        (release, no_principal, "`absent` \"release\" without `auth`"),
        (release, "principal = \"none\"", "`absent` \"release\" without `auth`"),
    ];
    for (reconcile, more, expected) in cases {
        let said = complaint(&asks(reconcile, more));
        assert!(said.contains(expected), "{more}: {said}");
    }
    let good = [
        ("", ""),
        (release, ""),
        (auth, "forward_key = \"derive\""),
        (auth, no_principal),
        (auth, "principal = \"none\""),
    ];
    for (reconcile, more) in good {
        assert!(parse(&asks(reconcile, more)).is_ok(), "{reconcile} {more}");
    }
}

#[test]
fn a_question_has_the_places_of_its_route_and_no_others() {
    let route = |path: &str, ask: &str| {
        format!(
            "[[route]]\nmatch = \"POST {path}\"\nrecovery = \"reconcile\"\nreconcile = {{ ask = \"GET {ask}\", found = \"/id\" }}"
        )
    };
    assert!(parse(&route("/a/{a}/{*rest}", "/a/{a}?r={rest}&k={key}")).is_ok());
    let said = complaint(&route("/a/{a}", "/a/{b}?k={key}"));
    assert!(said.contains("`ask` has {b}, which is no place in the path of `match`"), "{said}");
    let said = complaint(&route("/a/{key}", "/a/{key}"));
    assert!(said.contains("`match` has a place called {key}"), "{said}");
}

// threat B14
#[test]
fn a_policy_that_contradicts_itself_is_refused() {
    let cases = [
        ("lease = \"0s\"", "lease must not be zero"),
        ("upstream_timeout = \"0ms\"", "upstream_timeout must not be zero"),
        (
            "upstream_idle = \"31s\"",
            "`upstream_idle`: an idle connection is closed after 30s; make it \"30s\" or less",
        ),
        ("ttl = \"0d\"", "ttl must not be zero"),
        ("hold_max = \"23h\"", "hold_max is shorter than ttl"),
        ("key_length = [9, 8]", "key_length [9, 8] admits no key"),
        ("key_length = [0, 8]", "key_length [0, 8] admits no key"),
        ("key_from = []", "key_from names no place to find the key"),
        ("redrive_for = \"0s\"", "`redrive_for` is a duration above zero, such as \"23h\""),
        ("recovery = \"reconcile\"", "`recovery` \"reconcile\" needs reconcile = "),
        (
            "forward_key = \"strip\"\nrecovery = \"redrive\"",
            "`forward_key` \"strip\" with `recovery` \"redrive\"",
        ),
        (
            "key_from = [\"fingerprint\"]\nfingerprint = \"none\"",
            "`key_from` has the fingerprint as a key",
        ),
        (
            "anonymous = \"reject\"\nprincipal = \"none\"",
            "`principal` \"none\" makes every caller anonymous",
        ),
        (
            "reconcile = { ask = \"GET /{key}\", found = \"\", quiet = \"89s\" }\nrecovery = \"reconcile\"",
            "quiet is shorter than twice upstream_timeout and a lease; make it 90s or more",
        ),
    ];
    for (rules, expected) in cases {
        for table in ["[policy]", "[[route]]\nmatch = \"POST /a\""] {
            let complaint = complaint(&format!("{table}\n{rules}"));
            let (place, message) = complaint.split_once(": ").unwrap();
            assert!(message.starts_with(expected), "{rules}: {complaint}");
            assert_eq!(place.split(':').next(), Some(if table == "[policy]" { "2" } else { "3" }));
        }
    }
}

#[test]
fn tokens_need_a_secret() {
    let text = "[policy]\ntokens = \"optional\"";
    let expected = "`tokens` needs `secret`, which the gateway signs tokens with; set `secret` at the top of the file";
    assert_eq!(complaint(text), format!("2:1: {expected}"));
    let text = "[[route]]\nmatch = \"POST /a\"\ntokens = \"required\"";
    assert_eq!(complaint(text), format!("3:1: {expected}"));
    assert!(parse(&format!("secret = \"0123456789abcdef\"\n{text}")).is_ok());
    // One route has turned off what the others have.
    let text = "[policy]\ntokens = \"off\"";
    assert!(parse(text).is_ok());
}

#[test]
fn tokens_need_keys_that_can_be_tokens() {
    let cases = [
        ("key_format = \"uuid\"", "`key_format` \"uuid\" refuses every token"),
        (
            "key_length = [1, 84]",
            "`key_length` [1, 84] refuses every token: a token has 85 characters",
        ),
        ("key_length = [86, 255]", "`key_length` [86, 255] refuses every token"),
        (
            "key_from = [\"header:Idempotency-Key\", \"fingerprint\"]",
            "`key_from` \"fingerprint\" with `tokens`",
        ),
    ];
    for (rule, expected) in cases {
        let text =
            format!("secret = \"0123456789abcdef\"\n[policy]\n{rule}\ntokens = \"required\"");
        let complaint = complaint(&text);
        assert!(complaint.starts_with(&format!("4:1: {expected}")), "{complaint}");
    }
    let text = "secret = \"0123456789abcdef\"\n[policy]\ntokens = \"required\"\nkey_from = [\"json:/token\"]";
    assert!(parse(text).is_ok());
}

#[test]
fn a_contradiction_is_told_where_the_route_makes_it() {
    let text = "[policy]\nhold_max = \"2d\"\n[[route]]\nmatch = \"POST /a\"\npreset = \"webhook\"";
    assert_eq!(complaint(text), "5:1: hold_max is shorter than ttl");
    let text = "[policy]\nlease = \"0s\"\n[[route]]\nmatch = \"POST /a\"";
    assert_eq!(complaint(text), "2:1: lease must not be zero");
}

#[test]
fn a_route_has_a_match_that_agrees_with_its_methods() {
    assert!(complaint("[[route]]\nttl = \"1h\"").starts_with("1:1: a [[route]] needs `match`"));
    let text = "[[route]]\nmatch = \"POST /a\"\nmethods = [\"PUT\"]";
    assert!(complaint(text).starts_with("3:11: `methods`: `match` names the methods already"));
    assert!(parse(&text.replace("POST", "*")).is_ok());
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let error = Config::load(Path::new("/does/not/exist.toml")).unwrap_err();
    assert_eq!(error.to_string(), "/does/not/exist.toml: the file cannot be read");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("long.toml");
    std::fs::write(&file, vec![b'#'; 1 + FILE_BYTES_MAX as usize]).unwrap();
    assert!(matches!(Config::load(&file), Err(ConfigError::TooLong { .. })));
}

#[test]
fn a_webhook_that_verifies_nothing_is_refused() {
    let cases = [
        ("{}", "3:11: `webhook`: it needs `provider`, such as \"standard\""),
        (
            "{ provider = \"githup\" }",
            "3:24: `provider` is \"standard\", \"stripe\", \"github\", \"gitlab\", \"twilio\", \"shopify\", \"linear\" or \"cloudevents\", not \"githup\"; did you mean \"github\"?",
        ),
        (
            "{ provider = \"github\" }",
            "3:11: `webhook`: this provider signs its deliveries, and there is no secret to verify them with",
        ),
        (
            "{ provider = \"github\", secrets = [\"env:NOT_SET\"] }",
            "3:45: `secrets`: the environment has no variable \"NOT_SET\"",
        ),
        (
            "{ provider = \"github\", secrets = [\"env:EMPTY\"] }",
            "3:45: `secrets`: it is empty; leave it out, or give it a value",
        ),
        (
            "{ provider = \"standard\", secrets = [\"env:SECRET\", \"hunter2\"] }",
            "3:11: `webhook`: a secret of Standard Webhooks is whsec_ and the base64 of 24 to 64 bytes",
        ),
        (
            "{ provider = \"stripe\", secret = \"env:SECRET\" }",
            "3:34: unknown name `secret`; did you mean `secrets`? `secret` belongs at the top of the file, before any [table], and is something else",
        ),
        (
            "{ provider = \"stripe\", secrets = [\"STRIPE_WHSEC\"] }",
            "3:45: `secrets`: it has the form of the name of a variable, and would itself be the value; write \"env:\" before it",
        ),
        (
            "{ provider = \"stripe\", secrets = [\"env:SECRET\", \"hunter2\"] }",
            "3:59: `secrets`: it is no secret of this provider, which begins with whsec_; write \"env:NAME\" for what a variable holds, or \"file:PATH\" for what a file holds",
        ),
        (
            "{ provider = \"github\", secrets = [\"hunter2\"] }",
            "3:45: `secrets`: a secret of this provider may be any text, so that a name would be taken for one; write \"env:NAME\" for what a variable holds, or \"file:PATH\" for what a file holds",
        ),
        (
            "{ provider = \"cloudevents\", secrets = [\"env:SECRET\"] }",
            "3:11: `webhook`: this provider does not sign its deliveries, so there is nothing to verify with a secret",
        ),
        (
            "{ provider = \"github\", secrets = [\"env:SECRET\"], tolerance = \"2h\" }",
            "3:72: `tolerance` is a duration above zero and of at most an hour, such as \"5m\"",
        ),
        (
            "{ provider = \"twilio\", secrets = [\"env:SECRET\"] }",
            "3:11: `webhook`: Twilio signs the URL that it calls; give its beginning as `url`, such as \"https://hooks.example.com\"",
        ),
        (
            "{ provider = \"twilio\", secrets = [\"env:SECRET\"], url = \"https://a/hooks\" }",
            "3:11: `webhook`: the URL is http:// or https:// and a host, without a path, such as \"https://hooks.example.com\"",
        ),
        (
            "{ provider = \"github\", secrets = [\"env:SECRET\"], url = \"https://a\" }",
            "3:11: `webhook`: `url` is for \"twilio\" alone; remove it",
        ),
        (
            "{ provider = \"github\", secrets = [\"env:SECRET\"] }\nkey = \"optional\"",
            "4:1: `key` \"optional\" with `webhook`: a delivery without an id would be neither verified nor guarded; remove `key`",
        ),
    ];
    for (table, expected) in cases {
        let said = complaint(&format!("[[route]]\nmatch = \"POST /hooks\"\nwebhook = {table}\n"));
        assert_eq!(said, expected, "{table}");
        assert!(!said.contains("hunter2"));
    }
}

#[test]
fn everything_that_is_wrong_with_velocity_is_told() {
    let text =
        "[policy]\nvelocity = [{ per = [\"card\"], limit = \"5/year\" }, { limit = \"5/min\" }]";
    let told = complaint(text);
    for expected in [
        "2:22: `per`: a part is principal, header:NAME, json:/pointer or form:name",
        "2:39: `limit`: a limit is a number, a slash and s, min, h or d, such as 5/min or 3/10min",
        "2:51: `velocity`: a rule has `per` and `limit`",
    ] {
        assert!(told.contains(expected), "{told}");
    }
}

#[test]
fn a_webhook_that_would_let_deliveries_through_twice_is_refused() {
    let github = "{ provider = \"github\", secrets = [\"env:SECRET\"] }";
    let observed = "`mode` \"observe\" with `webhook`: each delivery of an event would be executed; set `mode` to \"enforce\", or remove `webhook`";
    let route = format!("[[route]]\nmatch = \"POST /hooks\"\nwebhook = {github}\n");
    assert_eq!(complaint(&format!("{route}mode = \"observe\"")), format!("4:1: {observed}"));
    // What [policy] says holds for the route too.
    let text = format!("[policy]\nmode = \"observe\"\n{route}");
    assert_eq!(complaint(&text), format!("2:1: {observed}"));
}

#[test]
fn a_webhook_whose_signatures_outlive_their_keys_is_refused() {
    let route = |provider: &str, more: &str| {
        format!(
            "[[route]]\nmatch = \"POST /hooks\"\nwebhook = {{ provider = \"{provider}\", secrets = [\"env:HOOK\"]{more} }}\n"
        )
    };
    let expected = |least: &str| {
        format!(
            "4:1: `ttl` is shorter than the time for which a signature is valid, so that a recorded delivery could be run again; make it {least} or more, or `tolerance` shorter"
        )
    };
    for provider in ["standard", "stripe", "linear"] {
        let text = route(provider, "") + "ttl = \"9m\"";
        assert_eq!(complaint(&text), expected("600s"));
        let text = route(provider, ", tolerance = \"20m\"") + "ttl = \"39m\"";
        assert_eq!(complaint(&text), expected("2400s"));
        good(&(route(provider, "") + "ttl = \"10m\""));
    }
    // Nothing of it is timed, so that no ttl is long enough.
    good(&(route("github", "") + "ttl = \"1m\""));
}

#[test]
fn a_webhook_at_many_paths_is_refused_where_the_path_is_not_signed() {
    let route = |path: &str, provider: &str, more: &str| {
        format!(
            "[[route]]\nmatch = \"POST {path}\"\nwebhook = {{ provider = \"{provider}\"{more} }}\n"
        )
    };
    let secrets = ", secrets = [\"env:HOOK\"]";
    let expected = "3:1: `match` has places, and this provider does not sign the path: a recorded delivery could be run again under another path; write a route for each path, or set `scope` yourself";
    for path in ["/hooks/{tenant}", "/hooks/{*rest}"] {
        for provider in ["standard", "stripe", "github", "gitlab", "shopify", "linear"] {
            let text = route(path, provider, secrets);
            assert_eq!(complaint(&text), expected, "{provider}");
            good(&(text + "scope = [\"path\"]"));
        }
        good(&route(path, "twilio", ", secrets = [\"env:HOOK\"], url = \"https://a\""));
        good(&route(path, "cloudevents", ""));
    }
    // The scope of [policy] is not that of the route: the provider's stands over it.
    let text = "[policy]\nscope = [\"path\"]\n".to_owned() + &route("/{a}", "github", secrets);
    assert!(complaint(&text).starts_with("5:1: `match` has places"), "{}", complaint(&text));
}

#[test]
fn tls_needs_a_certificate_with_its_key_and_mtls_needs_client_ca() {
    let cases = [
        ("[tls]", "`tls`: it needs `cert`, the file of a certificate"),
        ("tls.cert = \"a\"", "`tls`: it needs `key`, the file of the private key of `cert`"),
        ("tls.cert = \"\"\ntls.key = \"b\"", "`tls`: it needs `cert`, the file of a certificate"),
        (
            "[tls]\ncert = [\"a\", \"b\"]\nkey = \"a\"",
            "`tls`: `cert` and `key` are lists of the same length, each key in the place of its certificate",
        ),
        (
            "[upstream_tls]\ncert = \"a\"",
            "`upstream_tls`: `cert` and `key` belong together; give both or neither",
        ),
        (
            "[admin]\ntls = { cert = \"a\" }",
            "`tls`: it needs `key`, the file of the private key of `cert`",
        ),
        (
            "policy.principal = [\"jwt:sub\", \"mtls\"]\njwt.keys = \"k\"",
            "`principal` \"mtls\" needs [tls] with `client_ca`, which verifies the certificates of clients",
        ),
        (
            "policy.principal = \"mtls:spki\"\ntls = { cert = \"a\", key = \"b\" }",
            "`principal` \"mtls\" needs [tls] with `client_ca`, which verifies the certificates of clients",
        ),
        (
            "policy.principal = \"mtls\"\npolicy.authorize = \"GET /whoami\"\ntls = { cert = \"a\", key = \"b\", client_ca = \"c\" }",
            "`authorize` asks with the credentials of the caller, and the gateway cannot show the service a client's certificate; remove one of `authorize` and \"mtls\"",
        ),
        (
            "policy.principal = \"mtls:sub\"",
            "`principal`: who asks is \"auto\", \"none\", header:NAME, cookie:NAME, jwt:CLAIM, mtls, mtls:spki or a list, such as [\"jwt:sub\", \"header:X-Account\"]",
        ),
    ];
    for (text, expected) in cases {
        let complaint = complaint(text);
        assert_eq!(complaint.split_once(": ").unwrap().1, expected, "{text}");
    }
}
