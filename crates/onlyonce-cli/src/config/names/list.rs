//! The names themselves, each with what it may be, its default and what it decides.

use super::{Name, Section};

/// The top of the file.
pub const TOP: Section = Section {
    place: "at the top of the file, before any [table]",
    names: &[&[
        Name::new(
            "listen",
            "an address and a port, such as \"127.0.0.1:8080\"",
            "\"127.0.0.1:8080\"",
            "where clients connect",
        ),
        Name::new(
            "upstream",
            "an address such as \"http://127.0.0.1:9000\" (or h2c://, https://), with a path prefix or without one",
            "",
            "the service behind the gateway; here, in `[policy]`, in a route or by `--upstream`",
        ),
        Name::new(
            "store",
            "\"sqlite:FILE\", \"postgres://…\", \"redis://…\", \"dynamodb:TABLE\", \"memory:\", \"env:NAME\" for what that variable holds, or \"file:PATH\" for what that file holds",
            "\"sqlite:onlyonce.db\"",
            "where operations are recorded: a file for one process, Postgres for many; DynamoDB in a build with that feature. Redis alone is best effort unless it syncs every write; `memory:` loses everything at exit and needs `--ephemeral`",
        ),
        Name::new(
            "filter",
            "\"redis://HOST:PORT\" (or rediss://), \"env:NAME\" for what that variable holds, or \"file:PATH\" for what that file holds",
            "",
            "a Redis cache in front of a Postgres store: it answers retries of completed operations, and never lets one execute",
        ),
        Name::new(
            "secret",
            "a text, \"env:NAME\" for what that variable holds, or \"file:PATH\" for what that file holds",
            "",
            "keys the ids of operations and the digests of callers and requests: without it nobody can compute them, or link two deployments by them. Keys and answers are stored in clear, unless they are sealed ([seal]). With another secret every live key would be a new one, so that `serve` refuses to start (docs/stores.md)",
        ),
        Name::new(
            "sweep",
            "a duration above zero, such as \"15m\"",
            "\"15m\"",
            "how often expired records are deleted",
        ),
        Name::new(
            "sweep_rows",
            "a number from 1 to 10000000",
            "5000",
            "how many records are deleted at a time",
        ),
        Name::new(
            "bodies_bytes_max",
            "a size above zero, such as \"256MiB\"",
            "\"256MiB\"",
            "the request bodies that are held at once; more are answered 503",
        ),
        Name::new(
            "executing_max",
            "a number from 1 to 10000000",
            "10000",
            "the operations in progress at once; more are answered 503",
        ),
        Name::new(
            "admin",
            "a table, [admin]",
            "",
            "the listener for operators; without the table there is none",
        ),
        Name::new(
            "otlp",
            "a table, [otlp]",
            "",
            "where traces are sent; without the table there are none",
        ),
        Name::new(
            "audit",
            "a table, [audit]",
            "",
            "an audit trail in the store; without the table there is none (docs/audit.md)",
        ),
        Name::new(
            "jwt",
            "a table, [jwt]",
            "",
            "how bearer tokens are verified, for `principal = \"jwt:CLAIM\"` (docs/identity.md)",
        ),
        Name::new(
            "seal",
            "a table, [seal]",
            "",
            "keys that answers and the texts of keys are sealed with in the store; without the table they are stored as they are (docs/secrets.md)",
        ),
        Name::new(
            "policy",
            "a table, [policy]",
            "",
            "settings for every request, unless a route overrides them",
        ),
        Name::new(
            "route",
            "a list of tables, each begun by [[route]]",
            "",
            "settings for some requests only; the first match wins",
        ),
        Name::new(
            "include",
            "a list of files, such as [\"routes/*.toml\"]",
            "[]",
            "files with more [[route]] tables, seen from the folder of this file; their routes come after those of this file. See below",
        ),
        Name::new(
            "tls",
            "a table, [tls]",
            "",
            "TLS on the listener; without the table clients connect without it (docs/tls.md)",
        ),
        Name::new(
            "upstream_tls",
            "a table, [upstream_tls]",
            "",
            "whom the gateway trusts as an `https://` upstream, and the certificate that it shows there; without the table, whom this machine trusts, and none (docs/tls.md)",
        ),
        Name::later("webhook", "notices of unknown outcomes"),
    ]],
};

/// `[admin]`.
pub const ADMIN: Section = Section {
    place: "under [admin]",
    names: &[&[
        Name::new(
            "listen",
            "an address and a port, such as \"127.0.0.1:8081\"",
            "\"127.0.0.1:8081\"",
            "where operators connect; beyond loopback only with a token",
        ),
        Name::new(
            "token",
            "a text, \"env:NAME\" for what that variable holds, or \"file:PATH\" for what that file holds",
            "",
            "the bearer token that operators must send",
        ),
        Name::new(
            "read_token",
            "a text, \"env:NAME\" for what that variable holds, or \"file:PATH\" for what that file holds",
            "",
            "the bearer token of those who may look and not change; only beside `token`",
        ),
        Name::new(
            "tls",
            "a table such as { cert = \"admin.pem\", key = \"admin.key\" }, with the names of [tls]",
            "",
            "TLS on this listener; without it operators connect without TLS",
        ),
    ]],
};

/// `[tls]`, and `tls = { … }` under `[admin]`.
pub const TLS: Section = Section {
    place: "under [tls] or in the tls = { … } of [admin]",
    names: &[&[
        Name::new(
            "cert",
            "a file, or a list of files such as [\"a.pem\", \"b.pem\"]",
            "",
            "the certificate and its chain, as PEM. Of several, a client gets the first that has the name it asks for, else the first. Needed",
        ),
        Name::new(
            "key",
            "a file, or a list of files in the order of `cert`",
            "",
            "the private key of the certificate, as PEM. Needed",
        ),
        Name::new(
            "client_ca",
            "a file, such as \"clients.pem\"",
            "",
            "the certificates of those who sign client certificates, as PEM: every client must then present one, and `principal = \"mtls\"` tells callers apart by it",
        ),
    ]],
};

/// `[upstream_tls]`.
pub const UPSTREAM_TLS: Section = Section {
    place: "under [upstream_tls]",
    names: &[&[
        Name::new(
            "ca",
            "a file, such as \"services.pem\"",
            "",
            "the certificates of those who sign the certificates of services, as PEM: nobody else is trusted then, not even whom this machine trusts",
        ),
        Name::new(
            "cert",
            "a file, such as \"gateway.pem\"",
            "",
            "the certificate that the gateway shows to services that ask for one, with its chain, as PEM",
        ),
        Name::new("key", "a file, such as \"gateway.key\"", "", "its private key, as PEM"),
    ]],
};

/// `[otlp]`.
pub const OTLP: Section = Section {
    place: "under [otlp]",
    names: &[&[Name::new(
        "endpoint",
        "an address such as \"http://127.0.0.1:4318\" (or https://), with a path prefix or without one",
        "",
        "the OpenTelemetry collector: traces are sent to /v1/traces there, as OTLP in JSON; needed",
    )]],
};

/// `[audit]`.
pub const AUDIT: Section = Section {
    place: "under [audit]",
    names: &[&[Name::new(
        "keep",
        "a duration above zero, such as \"400d\"",
        "\"400d\"",
        "how long entries are kept; older ones are deleted",
    )]],
};

/// `[policy]`.
pub const POLICY: Section = Section { place: "under [policy] or a [[route]]", names: &[RULES] };

/// `[[route]]`.
pub const ROUTE: Section = Section { place: "under a [[route]]", names: &[MATCH, RULES] };

/// `reconcile = { … }`.
pub const RECONCILE: Section = Section {
    place: "in a reconcile = { … }",
    names: &[&[
        Name::new(
            "ask",
            "\"GET /path\" with {key} in it, such as \"GET /charges?key={key}\"; a place of `match`, such as {id}, may be in it too",
            "",
            "what the upstream is asked about an operation; needed",
        ),
        Name::new(
            "found",
            "a JSON pointer, such as \"/0/id\"",
            "",
            "where its answer has a value if the operation was executed; needed",
        ),
        Name::new(
            "absent",
            "\"hold\" or \"release\"",
            "\"hold\"",
            "what two answers of 404 mean: nothing, or that it was not executed",
        ),
        Name::new(
            "quiet",
            "a duration, such as \"10m\"",
            "\"10m\"",
            "how long after the last possible send they count; at least twice `upstream_timeout` and a `lease`",
        ),
        Name::new(
            "auth",
            "a text, \"env:NAME\" for what that variable holds, or \"file:PATH\" for what that file holds",
            "",
            "the `Authorization` to ask with, also in the background after a crash; without it the credentials of the client that retries are used. Only where the forwarded key differs per caller (`forward_key = \"derive\"`), or callers share their keys",
        ),
    ]],
};

/// `webhook = { … }`.
pub const WEBHOOK: Section = Section {
    place: "in a webhook = { … }",
    names: &[&[
        Name::new(
            "provider",
            "\"standard\", \"stripe\", \"github\", \"gitlab\", \"twilio\", \"shopify\", \"linear\" or \"cloudevents\"",
            "",
            "whose deliveries they are: how they are signed, and what tells two events apart; needed",
        ),
        Name::new(
            "secrets",
            "a list of \"env:NAME\" and \"file:PATH\", such as [\"env:HOOK\", \"env:HOOK_OLD\"]",
            "",
            "what the provider signs with; needed, but for cloudevents, which are not signed. Any of them may have signed a delivery, so that a secret can be replaced without a gap",
        ),
        Name::new(
            "tolerance",
            "a duration above zero and of at most an hour, such as \"5m\"",
            "\"5m\"",
            "how far a signed timestamp may be from now, before or after",
        ),
        Name::new(
            "url",
            "http:// or https:// and a host, such as \"https://hooks.example.com\"",
            "",
            "for Twilio, which signs the URL that it calls: the beginning of that URL; needed there",
        ),
    ]],
};

/// `[jwt]`.
pub const JWT: Section = Section {
    place: "under [jwt]",
    names: &[&[
        Name::new(
            "keys",
            "a file, the address of a JWKS, or \"env:NAME\" for a secret in that variable",
            "",
            "what tokens are signed with: a file with a JWKS or with public keys as PEM; an address, which is asked every five minutes and when a token names an unknown key; or a secret for HMAC. Needed",
        ),
        Name::new("issuer", "a text", "", "the `iss` that tokens must have; without it, any"),
        Name::new(
            "audience",
            "a text",
            "",
            "the `aud` that tokens must have; without it, any: tokens for other services are taken too",
        ),
        Name::new(
            "algorithms",
            "a list of RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, EdDSA, HS256, HS384 or HS512; the last three with a secret, and only they",
            "",
            "how tokens may be signed; without it RS256, ES256 and EdDSA, or HS256 with a secret",
        ),
    ]],
};

/// `[seal]`.
pub const SEAL: Section = Section {
    place: "under [seal]",
    names: &[&[Name::new(
        "keys",
        "a list of \"env:NAME\" and \"file:PATH\"",
        "",
        "where the keys are: 32 bytes each, in hexadecimal digits or base64. The first one seals, all of them open. Needed",
    )]],
};

/// One of `velocity = [{ … }]`.
pub const VELOCITY: Section = Section {
    place: "in a rule of velocity = [{ … }]",
    names: &[&[
        Name::new(
            "per",
            "a list of principal, header:NAME, json:/pointer or form:name",
            "",
            "what requests must have in common to count together; [] counts all requests of the route together. Needed",
        ),
        Name::new(
            "limit",
            "a rate, such as \"5/min\" or \"3/10min\": a number, a slash and s, min, h or d",
            "",
            "how many may begin at once; then one more each time that its part of the period has passed. Needed",
        ),
    ]],
};

/// Every section that a name may have been meant for.
pub(super) const ALL: [&Section; 13] = [
    &TOP,
    &ADMIN,
    &TLS,
    &UPSTREAM_TLS,
    &AUDIT,
    &OTLP,
    &JWT,
    &SEAL,
    &POLICY,
    &ROUTE_ONLY,
    &RECONCILE,
    &WEBHOOK,
    &VELOCITY,
];

/// `[[route]]` without what `[policy]` has as well.
const ROUTE_ONLY: Section = Section { place: ROUTE.place, names: &[MATCH] };

const MATCH: &[Name] = &[
    Name::new(
        "match",
        "\"METHODS /path\", such as \"POST /v1/charges\" or \"* /v1/{*rest}\"",
        "",
        "which requests the route is for; needed",
    ),
    Name::new(
        "preset",
        "\"payments\", \"signup\", \"webhook\", \"job\", \"jsonrpc\" or \"mcp\"",
        "",
        "defaults for one kind of route; see below",
    ),
    Name::new(
        "webhook",
        "a table such as { provider = \"standard\", secrets = [\"env:HOOK\"] }",
        "",
        "the route takes webhooks: a delivery that is not genuine is answered 401; see below and docs/webhooks.md",
    ),
];

const RULES: &[Name] = &[
    Name::new(
        "methods",
        "a list of methods, such as [\"POST\", \"PATCH\"]",
        "[\"POST\", \"PATCH\"]",
        "which methods are guarded, where `match` has `*` or no route matches. GET, HEAD, OPTIONS, TRACE and QUERY never are",
    ),
    Name::new(
        "key",
        "\"optional\" or \"required\"",
        "\"optional\"",
        "whether a request without a key is refused, or runs unguarded",
    ),
    Name::new(
        "key_from",
        "a list of header:NAME, json:/pointer, query:name, form:name, cloudevent, body, body-without:/pointer or fingerprint",
        "[\"header:Idempotency-Key\"]",
        "where the key is found; sources that are present must agree",
    ),
    Name::new(
        "key_syntax",
        "\"lenient\" or \"strict\"",
        "\"lenient\"",
        "lenient: `\"abc\"` and `abc` are one key; strict: only the string of RFC 9651",
    ),
    Name::new(
        "key_length",
        "two numbers, the least and the most, such as [1, 255]",
        "[1, 255]",
        "how many characters a key has; at most 255",
    ),
    Name::new("key_format", "\"any\" or \"uuid\"", "\"any\"", "what a key must look like"),
    Name::new(
        "key_deny",
        "a list of at most 64 keys, such as [\"null\", \"undefined\", \"test\"]",
        "[]",
        "keys that are refused with 400, in whatever case: what broken clients send instead of a key of their own, so that the operations of two of them would be one",
    ),
    Name::new(
        "scope",
        "a list of \"principal\", \"host\", \"method\", \"path\", header:NAME or json:/pointer",
        "[\"principal\", \"host\", \"method\", \"path\"]",
        "what makes two equal keys two operations; add the headers, and the strings of a JSON body, that the upstream routes by, such as a tenant",
    ),
    Name::new(
        "paths",
        "\"plain\" or \"literal\"",
        "\"plain\"",
        "whether the upstream may take spellings of a path for one another (doubled slashes, letter case, a final slash and more). plain: spellings are one operation, and what could be read as another path is answered 400; literal: the upstream, and every proxy before it, tells all of them apart (see Paths)",
    ),
    Name::new(
        "principal",
        "\"auto\", \"none\", header:NAME, cookie:NAME, jwt:CLAIM, mtls, mtls:spki or a list of sources, such as [\"jwt:sub\", \"header:X-Account\"]",
        "\"auto\"",
        "how callers are told apart. auto: all of `Authorization` (Bearer, Basic, Token, ApiKey), `X-Api-Key`, `Stripe-Account`, `Stripe-Context` and the client certificate that [tls] asks for, together; a keyed request with a cookie, a signed scheme or another header that looks like a credential is answered 400. jwt:sub: a claim of a bearer token that is verified by [jwt]. mtls: issuer and subject of the client certificate that [tls] verifies; mtls:spki: its public key. A list: the first source that is present. none: all callers share their keys (docs/identity.md)",
    ),
    Name::new(
        "trusted_peers",
        "a list of networks, such as [\"10.0.0.0/8\", \"::1\"]",
        "[]",
        "the proxies whose headers name the caller, for `principal = \"header:NAME\"`; a keyed request of any other peer that has such a header is answered 401. Not for `Authorization` and `X-Api-Key`. Empty: everybody is believed (docs/identity.md)",
    ),
    Name::new(
        "anonymous",
        "\"allow\" or \"reject\"",
        "\"allow\"",
        "whether a keyed request without credentials is accepted (all of them share their keys), or answered 401",
    ),
    Name::new(
        "fingerprint",
        "\"auto\", \"raw\" or \"none\"",
        "\"auto\"",
        "how request bodies are compared: auto by content (JSON, forms, multipart), raw by bytes, none not at all",
    ),
    Name::new(
        "fingerprint_include",
        "a list of JSON pointers, such as [\"/amount\"]",
        "[]",
        "only these values of a JSON body count, if there are any",
    ),
    Name::new(
        "fingerprint_exclude",
        "a list of JSON pointers, such as [\"/sent_at\"]",
        "[]",
        "these values of a JSON body do not count",
    ),
    Name::new(
        "ttl",
        "a duration, such as \"24h\"",
        "\"24h\"",
        "how long an answer is kept, from completion; it must outlast the clients' retries",
    ),
    Name::new(
        "in_flight",
        "\"reject\" or \"wait\"",
        "\"reject\"",
        "what a duplicate gets while the first request is still running: 409 at once, or the first answer if it comes within `wait`",
    ),
    Name::new("wait", "a duration, such as \"5s\"", "\"5s\"", "how long it waits"),
    Name::new(
        "mismatch",
        "422 or 409",
        "422",
        "the status for a key that was used for another request",
    ),
    Name::new(
        "not_executed",
        "a list of statuses from 400 to 599, and \"5xx\" for every server error, such as [401, 429]",
        "[401, 403, 407, 408, 421, 425, 429]",
        "the upstream's answers that mean \"not executed\": the key can be used again",
    ),
    Name::new(
        "recovery",
        "\"hold\", \"redrive\", \"reconcile\", \"fail\" or \"release\"",
        "\"hold\"",
        "what happens to an unknown outcome. hold: an operator resolves it; redrive: sent again when the client retries (only if the upstream dedups on the key); reconcile: the upstream is asked; fail: the failure is final; release: executed again on a retry (**may execute twice**)",
    ),
    Name::new(
        "redrive_for",
        "a duration above zero, such as \"23h\"",
        "\"23h\"",
        "how long after the first attempt it is sent again; shorter than the upstream keeps keys",
    ),
    Name::new(
        "reconcile",
        "a table such as { ask = \"GET /charges?key={key}\", found = \"/0/id\" }",
        "{}",
        "how the upstream is asked; see below",
    ),
    Name::new(
        "lease",
        "a duration, such as \"30s\"",
        "\"30s\"",
        "how long the process that executes an operation may be silent before its outcome counts as unknown",
    ),
    Name::new(
        "hold_max",
        "a duration, such as \"30d\"",
        "\"30d\"",
        "after how long an unknown outcome becomes a final 502; not below `ttl`",
    ),
    Name::new(
        "upstream",
        "an address such as \"http://127.0.0.1:9000\" (or h2c://, https://), with a path prefix or without one",
        "\"\"",
        "the service for this route, if it differs",
    ),
    Name::new(
        "upstream_idle",
        "a duration of at most 30s, such as \"1s\"",
        "\"1s\"",
        "how long a connection to the upstream may have been idle to be used for anything but GET, HEAD, OPTIONS and TRACE; an older one may close just as the request is sent, and its outcome would be unknown. Keep it well below the keep-alive timeout of the upstream; \"0s\" makes a new connection for every such request",
    ),
    Name::new(
        "upstream_timeout",
        "a duration, such as \"30s\"",
        "\"30s\"",
        "how long the upstream may take; past it the outcome is unknown",
    ),
    Name::new(
        "request_bytes_max",
        "a size, such as \"1MiB\"",
        "\"1MiB\"",
        "the largest guarded request; a larger one is answered 413",
    ),
    Name::new(
        "response_bytes_max",
        "a size, such as \"1MiB\"",
        "\"1MiB\"",
        "the largest answer that is kept; a larger one is streamed, and its retries get 410",
    ),
    Name::new(
        "forward_key",
        "\"verbatim\", \"derive\" or \"strip\"",
        "\"verbatim\"",
        "the key that the upstream sees: as sent, a stable one that differs per principal, or none",
    ),
    Name::new(
        "store_down",
        "\"refuse\" or \"pass\"",
        "\"refuse\"",
        "what happens while the store is down: 503, or requests run unguarded and are counted",
    ),
    Name::new(
        "errors",
        "\"problem\" or \"stripe\"",
        "\"problem\"",
        "the shape of the gateway's own errors",
    ),
    Name::new(
        "mode",
        "\"enforce\" or \"observe\"",
        "\"enforce\"",
        "observe: change nothing, and count what would have happened",
    ),
    Name::new(
        "cors",
        "a list of origins, such as [\"https://shop.example\"], or [\"*\"]",
        "[]",
        "whose pages may read the gateway's refusals and replays; what the service answers, preflights included, is the service's to allow",
    ),
    Name::new(
        "keep",
        "\"all\", \"status\" or \"location\"",
        "\"all\"",
        "what of an answer is kept: all of it; its status alone, so that a retry gets 410; or status and `Location`, and a retry gets what is there now, fetched with the credentials of its caller",
    ),
    Name::new(
        "audit_ids",
        "a list of at most 8 JSON pointers into the answer, such as [\"/id\"]",
        "[]",
        "values of the answer that the audit trail names, each cut to 200 bytes; nothing secret",
    ),
    Name::new(
        "deadline_from",
        "a list of header:NAME",
        "[\"header:X-Request-Deadline\", \"header:Request-Timeout\", \"header:grpc-timeout\"]",
        "the headers by which a client says until when it needs its answer: an RFC 3339 time, seconds, or gRPC's form. What comes too late is not executed (docs/deadlines.md)",
    ),
    Name::new(
        "old_keys",
        "\"run\" or \"refuse\"",
        "\"run\"",
        "a key that is free and older than `ttl` (UUIDv7, or `Repeatability-First-Sent`): its answer may have expired, and \"refuse\" answers 412 instead of executing it (docs/deadlines.md)",
    ),
    Name::new(
        "messages",
        "\"http\" or \"jsonrpc\"",
        "\"http\"",
        "\"jsonrpc\": a replay has the `id` of the request that asks, and an event stream is kept whole (docs/agents.md)",
    ),
    Name::new(
        "tokens",
        "\"off\", \"optional\" or \"required\"",
        "\"off\"",
        "keys that the gateway issues and signs, at POST /idempotency-tokens; \"required\" takes no other keys. Needs `secret` (docs/tokens.md)",
    ),
    Name::new(
        "velocity",
        "a list of rules, such as { per = [\"principal\"], limit = \"5/min\" }",
        "[]",
        "how often operations may be begun; past it requests get 429, and replays are free (docs/velocity.md)",
    ),
    Name::new(
        "live_keys_max",
        "a number; 0 for no limit",
        "100000",
        "how many keys one caller may have on a route; past it its new keys get 429 until some expire. Each gateway counts what it claimed since it started. Presets \"webhook\" and \"job\" have no limit",
    ),
    Name::new(
        "live_bytes_max",
        "a size, such as \"1GiB\"; \"0B\" for no limit",
        "\"1GiB\"",
        "how many bytes of answers are kept for one caller on a route; counted as the live keys are",
    ),
    Name::new(
        "redact",
        "a list of JSON pointers",
        "[]",
        "values of a JSON answer that are never stored: a retry gets `null` in their place. An answer that is no JSON is then not kept at all (docs/secrets.md)",
    ),
    Name::new(
        "authorize",
        "\"GET /path\", such as \"GET /whoami\", or \"\" for no question",
        "\"\"",
        "what the upstream is asked, with the caller's own credentials, before the caller is answered from a record: 2xx, and the answer is given; 401 or 403, and the caller gets that instead; anything else is 502, and nothing is told (docs/identity.md)",
    ),
    Name::new(
        "authorize_for",
        "a duration of at most 5m, such as \"5s\"; \"0s\" to ask each time",
        "\"5s\"",
        "how long the answer 2xx to `authorize` is believed for the same credentials",
    ),
];
