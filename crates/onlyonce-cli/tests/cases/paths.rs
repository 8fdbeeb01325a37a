//! One path in many spellings, before services that read them as nginx, Express, Spring and ASP.NET do.

use http::Method;

use crate::client::Ask;
use crate::profile::{D, Set};
use crate::subject::{Kind, Subject};
use crate::{B1, K1, on_both, on_gateway};

on_both! {
    a_key_in_every_spelling_executes_once, a_key_is_not_replayed_in_another_spelling,
    what_is_not_plain_is_refused_and_claims_nothing, without_a_key_a_path_passes_as_it_is,
}

on_gateway! {
    no_spelling_passes_by_the_guards_of_a_route, a_laxer_route_is_not_a_way_around_a_stricter_one,
    a_service_that_tells_spellings_apart_gets_them_all, what_is_not_guarded_passes_in_every_spelling,
    a_route_with_another_spelling_of_its_own_is_reached, ids_of_other_parts_are_not_mixed,
    a_method_that_the_query_or_a_form_names_is_judged, an_override_that_names_no_method_is_refused,
    a_header_with_an_underscore_is_refused,
}

const CHARGES: &str = "/v1/charges";
/// What some service takes for `CHARGES`, alone or behind a proxy.
const SPELLINGS: [&str; 36] = [
    "/v1/charges/",
    "/v1/Charges",
    "/V1/CHARGES/",
    "//v1/charges",
    "/v1//charges",
    "/v1/charges//",
    "/./v1/charges",
    "/v1/./charges",
    "/v1/charges/.",
    "/v1/x/../charges",
    "/x/..//v1/charges",
    "/v1%2Fcharges",
    "/v1%2fcharges",
    "/v1%252Fcharges",
    "/v1/charges%2F",
    "/v1\\charges",
    "/v1%5Ccharges",
    "/v1%5ccharges",
    "/v1/x%5C..%5Ccharges",
    "/v1/charges;a=b",
    "/v1;a=b/charges",
    "/v1/x/..;/charges",
    "/v1/charges.json",
    "/v1/charges.XML",
    "/v1/charges%20",
    "/v1/charges%09",
    "/v1/charges.",
    "/v1/charges%2E",
    "/v1/charges%00",
    "/v1/charges%2e%2e/charges",
    "/v1/%63harges",
    "/v1/%2563harges",
    "/v1/%2e%2e/v1/charges",
    "/v1/x/%252e%252e/charges",
    "/v1/charges%3Fa=b",
    "/v1/charges%23a",
];

// threat G12
async fn a_key_in_every_spelling_executes_once(on: Kind) {
    for profile in [D, &[Set::NoFingerprint]] {
        for first in [CHARGES, "/v1/Charges", "/v1/charges/", "/v1/charges;a=b", "/v1/charges.json"]
        {
            let t = on.start(profile).await;
            t.send(&charge(first)).await.fresh(201);
            for spelling in SPELLINGS.iter().chain(&[CHARGES]) {
                t.send(&charge(spelling)).await;
            }
            for reader in READERS {
                assert!(t.executed_by(reader) <= 1, "{first}: {:?}", t.targets());
            }
        }
    }
}

async fn a_key_is_not_replayed_in_another_spelling(on: Kind) {
    for profile in [D, &[Set::NoFingerprint], &[Set::Raw]] {
        let t = on.start(profile).await;
        let first = t.send(&charge(CHARGES)).await.fresh(201);
        for spelling in
            ["/v1/charges/", "/v1/Charges", "/v1/charges;a=b", "/v1/charges.json", "/v1/charges%20"]
        {
            let told = t.send(&charge(spelling)).await.problem(422, "idempotency_key_reused");
            assert_eq!(told["retry"], "never", "{spelling}");
        }
        t.send(&charge(CHARGES)).await.replays(&first);
        t.send(&charge("/v1/%63harges")).await.replays(&first);
        assert_eq!(t.u.total(), 1);
    }
    // And the other way round. Another body stays another request.
    let t = on.start(D).await;
    let first = t.send(&charge("/v1/Charges/")).await.fresh(201);
    t.send(&charge("/v1/Charges/")).await.replays(&first);
    let told = t.send(&charge(CHARGES)).await.problem(422, "idempotency_key_reused");
    assert_eq!(told["retry"], "never");
    let other = t.send(&charge("/v1/Charges/").saying("{}")).await;
    assert_eq!(other.problem(422, "idempotency_key_reused")["retry"], "new-key");
    assert_eq!(t.u.total(), 1);
}

async fn what_is_not_plain_is_refused_and_claims_nothing(on: Kind) {
    let t = on.start(D).await;
    let odd = [
        "//v1",
        "/v1//c",
        "/v1/./c",
        "/v1/../c",
        "/v1%2Fc",
        "/v1%252Fc",
        "/v1\\c",
        "/v1%5Cc",
        "/v1/c%00",
        "/v1/c%0A",
    ];
    for path in odd {
        let told = t.send(&charge(path)).await.problem(400, "request_ambiguous");
        assert_eq!(told["retry"], "never");
    }
    assert_eq!(t.u.total(), 0);
}

async fn without_a_key_a_path_passes_as_it_is(on: Kind) {
    let t = on.start(D).await;
    for path in ["//v1", "/v1/../c", "/v1%2Fc", "/v1/c%00"] {
        t.send(&Ask::post(B1).to(path)).await.fresh(201);
        assert_eq!(t.u.count(path), 1);
    }
}

// threat G24
async fn no_spelling_passes_by_the_guards_of_a_route(on: Kind) {
    let guards = [
        "key = \"required\"",
        "anonymous = \"reject\"",
        "velocity = [{ per = [], limit = \"1/d\" }]",
        "key_format = \"uuid\"",
        "principal = \"header:X-User\"",
        "webhook = { provider = \"standard\", secrets = [\"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"] }\nscope = [\"principal\", \"path\"]",
    ];
    for matching in ["POST /v1/charges", "POST /v1/{name}", "POST /v1/{*rest}", "POST /V1/Charges/"]
    {
        for guard in guards {
            let routes = format!("\n[[route]]\nmatch = {matching:?}\n{guard}\n");
            let t = on.start(&[Set::Toml(routes.leak())]).await;
            for spelling in SPELLINGS
                .iter()
                .filter(|spelling| !matching_of(matching).matches(&Method::POST, spelling))
            {
                for ask in [Ask::post(B1).to(spelling), charge(spelling)] {
                    let answer = t.send(&ask).await;
                    let is_read = READERS.iter().any(|read| read(spelling) == CHARGES);
                    assert!(
                        answer.status == 400 || !is_read,
                        "{matching} {guard} {spelling}: {answer:?}"
                    );
                }
            }
            for reader in READERS {
                assert_eq!(t.executed_by(reader), 0, "{matching} {guard}: {:?}", t.targets());
            }
        }
    }
}

// threat G24
async fn a_laxer_route_is_not_a_way_around_a_stricter_one(on: Kind) {
    let routes =
        "key = \"required\"\n[[route]]\nmatch = \"POST /public/{*rest}\"\nkey = \"optional\"\n";
    let t = on.start(&[Set::Toml(routes)]).await;
    for path in ["/public/../v1", "/public/..%2Fv1", "/public/%2e%2e/v1", "/public/..;/v1"] {
        t.send(&Ask::post(B1).to(path)).await.problem(400, "request_ambiguous");
    }
    // This one has no segment `public`, and goes by the rules of [policy].
    let backslashes = Ask::post(B1).to("/public\\..\\v1");
    t.send(&backslashes).await.problem(400, "idempotency_key_missing");
    t.send(&backslashes.key(K1)).await.problem(400, "request_ambiguous");
    assert_eq!(t.u.total(), 0);
    for path in ["/public/a", "/public//a", "/public/A.json", "/public/a/../b"] {
        t.send(&Ask::post(B1).to(path)).await.fresh(201);
    }
}

async fn a_service_that_tells_spellings_apart_gets_them_all(on: Kind) {
    let routes = "\n[[route]]\nmatch = \"POST /v1/{*rest}\"\npaths = \"literal\"\n";
    let t = on.start(&[Set::Toml(routes)]).await;
    for path in ["/v1/a", "/v1/A", "/v1/a/", "/v1/a//b", "/v1/a%2Fb", "/v1/a;b", "/v1/a.json"] {
        let first = t.send(&charge(path)).await.fresh(201);
        t.send(&charge(path)).await.replays(&first);
        assert_eq!(t.u.count(path), 1, "{path}");
    }
}

async fn what_is_not_guarded_passes_in_every_spelling(on: Kind) {
    let routes = "\n[[route]]\nmatch = \"POST /v1/charges\"\nkey = \"required\"\n";
    let t = on.start(&[Set::Toml(routes)]).await;
    for spelling in SPELLINGS {
        t.send(&Ask::bare("GET", spelling).key(K1)).await.fresh(200);
        assert_eq!(t.u.count(spelling), 1, "{spelling}");
    }
    let before = t.u.total();
    for path in ["/assets//a.css", "/v2/Charges", "/a/../b", "/v1/charges/1"] {
        t.send(&Ask::post(B1).to(path)).await.fresh(201);
    }
    assert_eq!(t.u.total(), before + 4);
}

// Whoever lists a spelling means it.
async fn a_route_with_another_spelling_of_its_own_is_reached(on: Kind) {
    let routes = "\n[[route]]\nmatch = \"POST /API/Orders.json\"\nkey = \"required\"\n[[route]]\nmatch = \"POST /hooks/\"\nkey = \"required\"\n";
    let t = on.start(&[Set::Toml(routes)]).await;
    for path in ["/API/Orders.json", "/hooks/"] {
        let first = t.send(&charge(path)).await.fresh(201);
        t.send(&charge(path)).await.replays(&first);
    }
    for path in ["/api/orders.json", "/API/Orders", "/hooks", "/Hooks/"] {
        t.send(&Ask::post(B1).to(path)).await.problem(400, "request_ambiguous");
    }
    assert_eq!(t.u.total(), 2);
}

async fn ids_of_other_parts_are_not_mixed(on: Kind) {
    let routes =
        "\n[[route]]\nmatch = \"POST /v1/charges\"\nkey_from = [\"header:X-Payment-Key\"]\n";
    let t = on.start(&[Set::Toml(routes)]).await;
    t.send(&charge("/v1/Charges")).await.problem(400, "request_ambiguous");
    assert_eq!(t.u.total(), 0);
}

// threat G25
async fn a_method_that_the_query_or_a_form_names_is_judged(on: Kind) {
    let routes = "\n[[route]]\nmatch = \"DELETE /v1/charges\"\nkey = \"required\"\n";
    let t = on.start(&[Set::Toml(routes)]).await;
    let form = "application/x-www-form-urlencoded";
    let parts =
        "--b\r\nContent-Disposition: form-data; name=\"_method\"\r\n\r\nDELETE\r\n--b--\r\n";
    let overriding = [
        Ask::post(B1).to("/v1/charges?_method=DELETE"),
        Ask::post(B1).to("/v1/charges?a=1&_method=delete&_method=x"),
        Ask::post(B1).to("/v1/charges?%5Fmethod=%44ELETE"),
        Ask::bare("GET", "/v1/charges?_method=DELETE"),
        Ask::post(B1).to("/v1//charges?_method=DELETE"),
        Ask::post("_method=DELETE").media(form).to(CHARGES),
        Ask::post("a=1&_method=delete").media(form).to(CHARGES),
        Ask::post("_method=DELETE").media(form).to("/v1/Charges/"),
        Ask::post(parts).media("multipart/form-data; boundary=b").to(CHARGES),
    ];
    for ask in overriding {
        t.send(&ask).await.problem(400, "request_ambiguous");
        t.send(&ask.key(K1)).await.problem(400, "request_ambiguous");
    }
    assert_eq!(t.u.total(), 0);
    for (n, other) in [
        Ask::post("a=1&_method=PUT").media(form).to(CHARGES),
        Ask::post("a=1").media(form).to(CHARGES),
        Ask::post("_method=DELETE").media(form).to("/v1/other"),
        Ask::post("_method=DELETE").media("text/csv").to(CHARGES),
    ]
    .into_iter()
    .enumerate()
    {
        t.send(&other.key(format!("key-{n}"))).await.fresh(201);
    }
    let seen = t.u.seen();
    assert_eq!(
        (seen.len(), &seen[0].body[..]),
        (4, &b"a=1&_method=PUT"[..]),
        "it is passed on whole"
    );
}

// threat G25
async fn an_override_that_names_no_method_is_refused(on: Kind) {
    let routes = "\n[[route]]\nmatch = \"DELETE /t\"\nkey = \"required\"\n";
    let t = on.start(&[Set::Toml(routes)]).await;
    let names =
        ["X-HTTP-Method-Override", "X_HTTP_Method_Override", "X-Method-Override", "X_HTTP_Method"];
    for name in names {
        for value in ["DELETE", "delete", "DELETE, x", "DELETE;q=1", "\"DELETE\"", "DELETE\tx", ""]
        {
            for method in ["GET", "POST", "PUT"] {
                let ask = Ask::bare(method, "/t").header(name, value);
                t.send(&ask.clone().key(K1)).await.problem(400, "request_ambiguous");
                // The route needs a key, so that one without is no way around it.
                t.send(&ask).await.problem(400, "request_ambiguous");
            }
        }
    }
    assert_eq!(t.u.total(), 0);
}

// CGI and WSGI make one name of both.
async fn a_header_with_an_underscore_is_refused(on: Kind) {
    let t = on.start(D).await;
    for name in ["Idempotency_Key", "idempotency_key", "Content_Type", "X_Api_Key", "x-api_key"] {
        t.send(&Ask::post(B1).header(name, "a")).await.problem(400, "request_ambiguous");
        t.send(&Ask::post(B1).key(K1).header(name, "a")).await.problem(400, "request_ambiguous");
        t.send(&Ask::bare("GET", "/t").header(name, "a")).await.fresh(200);
    }
    assert_eq!(t.u.seen().iter().filter(|seen| seen.method == "POST").count(), 0);
    t.send(&Ask::post(B1).key(K1).header("x_trace_id", "a")).await.fresh(201);
}

fn charge(path: &str) -> Ask {
    Ask::post(B1).key(K1).to(path)
}

fn matching_of(text: &str) -> onlyonce_cli::config::Match {
    text.parse().unwrap()
}

impl Subject {
    fn targets(&self) -> Vec<String> {
        self.u.seen().into_iter().map(|seen| seen.target).collect()
    }

    /// How often a service that reads paths in this way has charged.
    fn executed_by(&self, read: Reader) -> usize {
        let paths = self.targets();
        paths.iter().filter(|target| read(target.split('?').next().unwrap()) == CHARGES).count()
    }
}

/// The path that a service sees of the one that was sent.
type Reader = fn(&str) -> String;

const READERS: [Reader; 6] =
    [exact, nginx, express, spring, asp_net, |path| spring(&express(&nginx(&nginx(path))))];

fn exact(path: &str) -> String {
    path.to_owned()
}

/// Decodes, merges slashes, resolves dot segments.
fn nginx(path: &str) -> String {
    let decoded = decoded(path);
    let mut kept: Vec<&str> = Vec::new();
    let ends_open = decoded.ends_with('/');
    for segment in decoded.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(kept.pop()),
            segment => kept.push(segment),
        }
    }
    let end = if ends_open && !kept.is_empty() { "/" } else { "" };
    format!("/{}{end}", kept.join("/"))
}

/// Neither letter case nor a final slash counts; a parameter of a route is decoded.
fn express(path: &str) -> String {
    let path = decoded(path).to_ascii_lowercase();
    path.strip_suffix('/').filter(|path| !path.is_empty()).unwrap_or(&path).to_owned()
}

/// Cuts parameters and, as it once did, an extension and a final slash; resolves what is left.
fn spring(path: &str) -> String {
    let cut: Vec<&str> = path.split('/').map(|part| part.split(';').next().unwrap()).collect();
    let path = nginx(&cut.join("/"));
    let path = path.strip_suffix('/').filter(|path| !path.is_empty()).unwrap_or(&path);
    match path.rsplit_once('.') {
        Some((stem, end)) if !end.contains('/') && !stem.ends_with('/') => stem.to_owned(),
        _ => path.to_owned(),
    }
}

/// A backslash is a slash; case, and dots and white space at an end, do not count; NUL ends the path.
fn asp_net(path: &str) -> String {
    let path = decoded(path).replace('\\', "/").to_ascii_lowercase();
    let path = path.split('\0').next().unwrap().to_owned();
    let path = nginx(&path);
    let trimmed = path.trim_end_matches(['.', ' ', '\t', '/']);
    if trimmed.is_empty() { "/".to_owned() } else { trimmed.to_owned() }
}

fn decoded(path: &str) -> String {
    let bytes = path.as_bytes();
    let (mut text, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let escape = path.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        let byte = escape.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        text.push(byte.unwrap_or(bytes[at]));
        at += if byte.is_some() { 3 } else { 1 };
    }
    String::from_utf8(text).unwrap()
}
