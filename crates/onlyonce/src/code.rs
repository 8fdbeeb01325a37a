//! The codes of our own answers: the member `code` of a problem document, and the reason of a gRPC status.
//!
//! 1. Every code is a variant of [`Code`], and one table has what is always the same about it: its text, title and
//!    sentence, the statuses that it comes with, whether sending again is safe, and what it says about execution.
//! 2. The enum is exhaustive on purpose. Who decides by a code matches on it without a wildcard arm, so that a new code
//!    does not compile until each of these places has decided about it.
//! 3. A server may be newer than its client: [`Code::from_text`] knows nothing of a code that came later. The member
//!    `retry` of the answer ([`Retry`]) and its status are all that is left then, and neither proves that nothing was
//!    executed.
//!
//! ```
//! use onlyonce::code::{Code, Executed, Retry};
//!
//! let code = Code::from_text("idempotency_response_unavailable").expect("a code of ours");
//! assert_eq!(code.executed(), Executed::Yes);
//! assert_eq!(code.retry(), Retry::Never);
//! ```

use std::fmt;

/// Whether sending the request again is safe, and with which key: the member `retry` of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Send the same request with the same key.
    SameKey,
    /// This key is of no use for the request: fix the request, and send it with a new key.
    NewKey,
    /// Do not send the request again as it is, with whichever key.
    Never,
}

impl Retry {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::SameKey, Self::NewKey, Self::Never];

    /// As a problem document has it.
    pub const fn text(self) -> &'static str {
        match self {
            Self::SameKey => "same-key",
            Self::NewKey => "new-key",
            Self::Never => "never",
        }
    }

    /// The advice with this text.
    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|retry| retry.text() == text)
    }
}

/// What an answer with a code says about the operation of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Executed {
    /// The request that is answered was not executed. This is said of that request alone: another one with the same key,
    /// sent earlier or by a proxy, may have been.
    No,
    /// The operation may have been executed, may be running, or may have been executed by an earlier request.
    Maybe,
    /// The operation was executed.
    Yes,
}

/// What is always the same about a code.
struct Entry {
    text: &'static str,
    title: &'static str,
    sentence: &'static str,
    statuses: &'static [u16],
    retry: Retry,
    executed: Executed,
}

/// The enum, the list of its variants and the table, from one list of codes.
macro_rules! codes {
    ($($name:ident {
        text: $text:literal,
        title: $title:literal,
        sentence: $sentence:literal,
        statuses: $statuses:expr,
        retry: $retry:ident,
        executed: $executed:ident,
    })*) => {
        /// A code of our own answers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code {
            $(#[doc = $sentence] $name,)*
        }

        impl Code {
            /// All codes.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            const fn entry(self) -> Entry {
                match self {
                    $(Self::$name => Entry {
                        text: $text,
                        title: $title,
                        sentence: $sentence,
                        statuses: &$statuses,
                        retry: Retry::$retry,
                        executed: Executed::$executed,
                    },)*
                }
            }
        }
    };
}

impl Code {
    /// As answers spell it.
    pub const fn text(self) -> &'static str {
        self.entry().text
    }

    /// The code with this text; `None` for one of a stranger, or of a newer version.
    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.text() == text)
    }

    /// The title of its problem documents.
    pub const fn title(self) -> &'static str {
        self.entry().title
    }

    /// What it means, in a sentence or two, as `/.well-known/idempotency` tells it.
    pub const fn sentence(self) -> &'static str {
        self.entry().sentence
    }

    /// The statuses that it comes with. In Stripe's shape a reused key is 400 instead, over gRPC every status is 200.
    pub const fn statuses(self) -> &'static [u16] {
        self.entry().statuses
    }

    /// Whether sending again is safe, unless the answer says otherwise in its member `retry`.
    pub const fn retry(self) -> Retry {
        self.entry().retry
    }

    /// What it says about execution.
    pub const fn executed(self) -> Executed {
        self.entry().executed
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// Where a service tells what it promises about keys. With `#` and a code it is the `type` of a problem.
pub const WELL_KNOWN: &str = "/.well-known/idempotency";
/// The header `Link` of every problem.
pub const DESCRIBED_BY: &str = "</.well-known/idempotency>; rel=\"describedby\"";

/// The `type` of an error of Stripe's, or in its shape, for [`Code::KeyReused`].
pub const STRIPE_REUSED: &str = "idempotency_error";
/// The `code` of an error of Stripe's, or in its shape, for [`Code::InProgress`].
pub const STRIPE_IN_USE: &str = "idempotency_key_in_use";

/// The `domain` of the `google.rpc.ErrorInfo` whose `reason` is one of our codes.
pub const GRPC_DOMAIN: &str = "onlyonce";

codes! {
    KeyMissing {
        text: "idempotency_key_missing",
        title: "Idempotency-Key is missing",
        sentence: "This operation needs an idempotency key. Create one key for each operation.",
        statuses: [400],
        retry: NewKey,
        executed: No,
    }
    KeyInvalid {
        text: "idempotency_key_invalid",
        title: "Idempotency-Key is not valid",
        sentence: "The idempotency key is malformed, empty, sent twice, has the wrong length or format, is inside a batch of messages, or is not a token of the caller where it must be one.",
        statuses: [400],
        retry: NewKey,
        executed: No,
    }
    KeyReused {
        text: "idempotency_key_reused",
        title: "Idempotency-Key is already used",
        sentence: "The key was already used for a different request. Send this request with a new key.",
        statuses: [422, 409],
        retry: NewKey,
        executed: No,
    }
    InProgress {
        text: "idempotency_in_progress",
        title: "A request is outstanding for this Idempotency-Key",
        sentence: "The first request with this key is still being processed. Retry with the same key.",
        statuses: [409],
        retry: SameKey,
        executed: Maybe,
    }
    OutcomeUnknown {
        text: "idempotency_outcome_unknown",
        title: "Outcome unknown",
        sentence: "The request was sent to the service and no complete answer came back, so it may have been executed.",
        statuses: [409, 500, 502, 504],
        retry: SameKey,
        executed: Maybe,
    }
    OperationFailed {
        text: "idempotency_operation_failed",
        title: "Operation failed",
        sentence: "An operator checked an operation whose outcome was unknown, and recorded that it failed.",
        statuses: [502],
        retry: NewKey,
        executed: No,
    }
    ResponseUnavailable {
        text: "idempotency_response_unavailable",
        title: "Response was not kept",
        sentence: "The operation was executed, but its response was not kept for replay.",
        statuses: [410, 409],
        retry: Never,
        executed: Yes,
    }
    ResponseNotSent {
        text: "idempotency_response_not_sent",
        title: "Response was not sent",
        sentence: "The operation may have been executed, and its response could not be sent. Retry with the same key to get it.",
        statuses: [503],
        retry: SameKey,
        executed: Maybe,
    }
    StoreUnavailable {
        text: "idempotency_store_unavailable",
        title: "Idempotency store unavailable",
        sentence: "The store of the keys gave no answer. The request was not executed.",
        statuses: [503],
        retry: SameKey,
        executed: No,
    }
    RolledBack {
        text: "idempotency_rolled_back",
        title: "Rolled back",
        sentence: "The operation failed, and everything that it did was undone. Retry with the same key.",
        statuses: [409, 500, 504],
        retry: SameKey,
        executed: No,
    }
    NotFound {
        text: "idempotency_operation_not_found",
        title: "Operation not found",
        sentence: "No operation of the caller is recorded under this key. This does not prove that it was not executed.",
        statuses: [404],
        retry: SameKey,
        executed: Maybe,
    }
    PrincipalUnclear {
        text: "principal_unclear",
        title: "Cannot identify the caller",
        sentence: "The credentials of the request do not identify one caller, so the key cannot be assigned to anyone. The request was not executed.",
        statuses: [400],
        retry: Never,
        executed: No,
    }
    PrincipalMissing {
        text: "principal_missing",
        title: "Credentials are required",
        sentence: "A request with an idempotency key must carry the credentials of its caller. The request was not executed.",
        statuses: [401],
        retry: SameKey,
        executed: No,
    }
    PrincipalInvalid {
        text: "principal_invalid",
        title: "Credentials are not valid",
        sentence: "The credentials of the caller could not be verified. The request was not executed.",
        statuses: [401],
        retry: SameKey,
        executed: No,
    }
    AuthorizationUnknown {
        text: "authorization_unknown",
        title: "Credentials could not be checked",
        sentence: "Whether the credentials of the caller hold could not be found out, so the caller was told nothing of its operation, which may have been executed. Retry with the same key.",
        statuses: [502, 503],
        retry: SameKey,
        executed: Maybe,
    }
    WebhookSignatureInvalid {
        text: "webhook_signature_invalid",
        title: "Webhook signature is not valid",
        sentence: "The signature of the webhook is missing, wrong, or too old or too new. The request was not executed, and claimed no key.",
        statuses: [401],
        retry: Never,
        executed: No,
    }
    RequestTooLarge {
        text: "request_too_large",
        title: "Request body too large",
        sentence: "The body is larger than the route accepts. The request was not executed.",
        statuses: [413],
        retry: Never,
        executed: No,
    }
    RequestIncomplete {
        text: "request_incomplete",
        title: "Request body incomplete",
        sentence: "The body ended early or arrived too slowly. The request was not executed.",
        statuses: [400, 408],
        retry: SameKey,
        executed: No,
    }
    RequestAmbiguous {
        text: "request_ambiguous",
        title: "Ambiguous request",
        sentence: "Two servers could read this request differently. The request was not executed.",
        statuses: [400],
        retry: Never,
        executed: No,
    }
    MethodNotAllowed {
        text: "method_not_allowed",
        title: "Method not allowed",
        sentence: "The gateway does not open tunnels. The request was not executed.",
        statuses: [405],
        retry: Never,
        executed: No,
    }
    Overloaded {
        text: "overloaded",
        title: "Too many requests in progress",
        sentence: "A limit of this server is reached. The request was not executed.",
        statuses: [503],
        retry: SameKey,
        executed: No,
    }
    DeadlineExceeded {
        text: "idempotency_deadline_exceeded",
        title: "Deadline exceeded",
        sentence: "The deadline that the client sent had passed. The request was not executed.",
        statuses: [504],
        retry: Never,
        executed: No,
    }
    KeyExpired {
        text: "idempotency_key_expired",
        title: "Idempotency-Key is too old",
        sentence: "The key is older than answers are kept, and no operation is recorded under it. This request was not executed; an earlier one with this key may have been.",
        statuses: [412],
        retry: Never,
        executed: Maybe,
    }
    VelocityExceeded {
        text: "velocity_exceeded",
        title: "Too many operations",
        sentence: "The caller has begun too many operations, or has too many live keys. The request was not executed. Retry later, with the same key.",
        statuses: [429],
        retry: SameKey,
        executed: No,
    }
    NoTokens {
        text: "idempotency_tokens_not_issued",
        title: "No tokens for this operation",
        sentence: "This operation takes no tokens. Create a key for it yourself.",
        statuses: [404],
        retry: Never,
        executed: No,
    }
    RepeatabilityUnsupported {
        text: "repeatability_unsupported",
        title: "Not repeatable",
        sentence: "The request asks to be repeatable, and its method is not guarded here. The request was not executed.",
        statuses: [501],
        retry: Never,
        executed: No,
    }
    TooEarly {
        text: "too_early",
        title: "Too early",
        sentence: "The request came in early data of TLS, which a stranger can send again, and has no key that would notice it. The request was not executed. Send it again once the handshake is complete.",
        statuses: [425],
        retry: SameKey,
        executed: No,
    }
    UpstreamUnreachable {
        text: "upstream_unreachable",
        title: "Upstream service unreachable",
        sentence: "The request could not be delivered to the service. The request was not executed.",
        statuses: [503],
        retry: SameKey,
        executed: No,
    }
    UpstreamFailed {
        text: "upstream_failed",
        title: "Upstream service failed",
        sentence: "The service did not answer a request that had no idempotency key. It may have been executed.",
        statuses: [502],
        retry: Never,
        executed: Maybe,
    }
    UpstreamTimeout {
        text: "upstream_timeout",
        title: "Upstream service timed out",
        sentence: "The service did not answer a request that had no idempotency key in time. It may have been executed.",
        statuses: [504],
        retry: Never,
        executed: Maybe,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fmt::Write;
    use std::path::{Path, PathBuf};

    use super::*;

    #[test]
    fn every_code_has_a_text_of_its_own_that_leads_back_to_it() {
        for code in Code::ALL {
            assert_eq!(Code::from_text(code.text()), Some(*code));
            assert!(!code.statuses().is_empty() && code.sentence().ends_with('.'), "{code}");
        }
        let texts: BTreeSet<_> = Code::ALL.iter().map(|code| code.text()).collect();
        assert_eq!(texts.len(), Code::ALL.len());
        assert_eq!(Code::from_text(""), None);
        assert_eq!(Code::from_text("idempotency_of_tomorrow"), None);
        for retry in Retry::ALL {
            assert_eq!(Retry::from_text(retry.text()), Some(retry));
        }
        assert_eq!(Retry::from_text("later"), None);
    }

    // threat K10
    #[test]
    fn a_new_key_is_advised_only_where_the_request_was_not_executed() {
        for code in Code::ALL {
            match code.executed() {
                Executed::No => {}
                Executed::Maybe => assert_ne!(code.retry(), Retry::NewKey, "{code}"),
                Executed::Yes => assert_eq!(code.retry(), Retry::Never, "{code}"),
            }
        }
    }

    #[test]
    fn the_table_of_the_manual_is_this_table() {
        let page = std::fs::read_to_string(root().join("docs/errors.md")).unwrap();
        let mut table = String::new();
        for code in Code::ALL {
            let statuses = code.statuses().iter().map(u16::to_string).collect::<Vec<_>>();
            let executed = match code.executed() {
                Executed::No => "no",
                Executed::Maybe => "maybe",
                Executed::Yes => "yes",
            };
            let (statuses, retry) = (statuses.join(", "), code.retry().text());
            let sentence = code.sentence();
            writeln!(table, "| `{code}` | {statuses} | `{retry}` | {executed} | {sentence} |")
                .unwrap();
        }
        let is_row = |line: &&str| line.starts_with("| `") && line.matches('|').count() == 6;
        let rows = page.lines().filter(is_row).skip_while(|row| row.starts_with("| `code`"));
        let rows: String = rows.map(|row| row.to_owned() + "\n").collect();
        assert_eq!(rows, table, "docs/errors.md");
    }

    #[test]
    fn no_other_place_spells_a_code() {
        // Words that metrics, configuration and the admin listener have too.
        let shared = ["method_not_allowed", "overloaded", "velocity_exceeded", "upstream_timeout"];
        let texts = Code::ALL.iter().map(|code| code.text());
        let texts: Vec<_> = texts.filter(|text| !shared.contains(text)).collect();
        let mut files = Vec::new();
        for folder in ["crates/onlyonce/src", "crates/onlyonce-cli/src"] {
            files_in(&root().join(folder), &mut files);
        }
        assert!(files.len() > 100, "{} files", files.len());
        for file in files {
            let source = std::fs::read_to_string(&file).unwrap();
            let source = source.split("#[cfg(test)]").next().unwrap_or_default();
            let lines = source.lines().filter(|line| !line.trim_start().starts_with("//"));
            let is_rust = file.extension().is_some_and(|extension| extension == "rs");
            for line in lines {
                let found = texts.iter().find(|text| has_word(line, text, is_rust));
                assert_eq!(found, None, "{}: {line}", file.display());
            }
        }
    }

    /// Whether the line has the word by itself; in Rust, in a text: functions may be named like codes.
    fn has_word(line: &str, word: &str, is_rust: bool) -> bool {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        line.match_indices(word).any(|(at, _)| {
            let is_whole =
                !line[..at].ends_with(is_part) && !line[at + word.len()..].starts_with(is_part);
            is_whole && (!is_rust || line[..at].matches('"').count() % 2 == 1)
        })
    }

    fn files_in(folder: &Path, files: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            match path.is_dir() {
                true if name != "tests" => files_in(&path, files),
                false
                    if !["tests.rs", "code.rs"].contains(&name.as_str())
                        && [".rs", ".js", ".html"].iter().any(|end| name.ends_with(end)) =>
                {
                    files.push(path);
                }
                _ => {}
            }
        }
    }

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }
}
