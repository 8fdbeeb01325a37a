//! Sources of keys that are none: what people write, what a clock or a counter says, what never or always changes.

use onlyonce::key::KeySource;

use super::super::error::Remark;
use super::super::rules::Rules;

/// Remarks on the sources that the table itself names.
pub(super) fn odd(of: &str, rules: &Rules) -> Vec<Remark> {
    let Some(at) = rules.said.here("key_from") else { return Vec::new() };
    let remark = |source: &KeySource| {
        let why = Trouble::of(source)?.why();
        let message = format!(
            "{of} takes its key from {source}, {why}; take it from what the client makes once for each operation, such as header:Idempotency-Key"
        );
        Some(Remark::new(at, message))
    };
    rules.policy.key_from().iter().filter_map(remark).collect()
}

/// What becomes of such keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    /// People write it, and write it again.
    Reference,
    /// A clock or a counter says it.
    Clock,
    /// It is new in each attempt.
    Attempt,
    /// It is the same in all requests of a client.
    Constant,
}

impl Trouble {
    fn of(source: &KeySource) -> Option<Self> {
        match source {
            KeySource::Header(name) if ATTEMPTS.contains(&name.as_str()) => Some(Self::Attempt),
            KeySource::Header(name) if CONSTANTS.contains(&name.as_str()) => Some(Self::Constant),
            KeySource::Header(name) => Self::of_name(name.as_str()),
            KeySource::Json(pointer) => {
                Self::of_name(pointer.to_string().rsplit('/').next().unwrap_or_default())
            }
            KeySource::Query(name) | KeySource::Form(name) => Self::of_name(name),
            KeySource::CloudEvent | KeySource::Body { .. } | KeySource::Fingerprint => None,
        }
    }

    /// The last word says what a value is: `order_number` is a number, `number_token` a token.
    fn of_name(name: &str) -> Option<Self> {
        let words = words(name);
        let (last, before) = words.split_last()?;
        let is = |list: &[&str], word: &String| list.contains(&word.as_str());
        match () {
            () if is(&NUMBERS, last) && before.iter().any(|word| is(&CLOCKS, word)) => {
                Some(Self::Clock)
            }
            () if is(&NUMBERS, last) || is(&REFERENCES, last) => Some(Self::Reference),
            () if is(&CLOCKS, last) => Some(Self::Clock),
            () => None,
        }
    }

    fn why(self) -> &'static str {
        match self {
            Self::Reference => {
                "which people write and use again: a second operation that is meant would get the answer of the first, or 422"
            }
            Self::Clock => {
                "which a clock or a counter makes: two operations may have the same, and a retry another, and would be executed again"
            }
            Self::Attempt => {
                "which clients and proxies make anew for each attempt: a retry would be executed again"
            }
            Self::Constant => {
                "which is the same in all requests of a client: all of its operations would be one"
            }
        }
    }
}

/// `orderNumber`, `order_number` and `Order-Number` in lower-case words.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for character in name.chars() {
        let is_new = !character.is_alphanumeric() || (was_lower && character.is_uppercase());
        if is_new {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| character.is_alphanumeric()) {
            word.extend(character.to_lowercase());
        }
        was_lower = character.is_lowercase();
    }
    words.retain(|word| !word.is_empty());
    words
}

const NUMBERS: [&str; 4] = ["number", "no", "nr", "num"];
const REFERENCES: [&str; 18] = [
    "reference",
    "ref",
    "order",
    "po",
    "invoice",
    "email",
    "mail",
    "name",
    "phone",
    "mobile",
    "title",
    "subject",
    "memo",
    "description",
    "comment",
    "username",
    "iban",
    "amount",
];
const CLOCKS: [&str; 12] = [
    "timestamp",
    "time",
    "datetime",
    "date",
    "ts",
    "at",
    "sequence",
    "seq",
    "serial",
    "counter",
    "count",
    "attempt",
];
const ATTEMPTS: [&str; 8] = [
    "x-request-id",
    "x-correlation-id",
    "x-trace-id",
    "x-b3-traceid",
    "x-amzn-trace-id",
    "x-cloud-trace-context",
    "traceparent",
    "cf-ray",
];
const CONSTANTS: [&str; 10] = [
    "authorization",
    "cookie",
    "host",
    "origin",
    "referer",
    "user-agent",
    "accept",
    "content-type",
    "x-api-key",
    "x-forwarded-for",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn trouble(source: &str) -> Option<Trouble> {
        Trouble::of(&source.parse().unwrap())
    }

    // R19
    #[test]
    fn references_clocks_and_constants_are_told_from_keys() {
        let cases = [
            ("json:/order_number", Some(Trouble::Reference)),
            ("json:/order/invoiceNumber", Some(Trouble::Reference)),
            ("json:/payment/reference", Some(Trouble::Reference)),
            ("form:email", Some(Trouble::Reference)),
            ("query:phone", Some(Trouble::Reference)),
            ("header:X-Customer-Name", Some(Trouble::Reference)),
            ("json:/created_at", Some(Trouble::Clock)),
            ("json:/sequenceNumber", Some(Trouble::Clock)),
            ("header:X-Timestamp", Some(Trouble::Clock)),
            ("header:Date", Some(Trouble::Clock)),
            ("header:X-Request-Id", Some(Trouble::Attempt)),
            ("header:traceparent", Some(Trouble::Attempt)),
            ("header:Authorization", Some(Trouble::Constant)),
            ("header:Idempotency-Key", None),
            ("header:Repeatability-Request-ID", None),
            ("header:X-GitHub-Delivery", None),
            ("json:/params/idempotencyKey", None),
            ("json:/request_id", None),
            ("json:/order/id", None),
            ("json:/order_number/token", None),
            ("query:state", None),
            ("json:/0", None),
            ("body", None),
            ("fingerprint", None),
        ];
        for (source, expected) in cases {
            assert_eq!(trouble(source), expected, "{source}");
        }
    }
}
