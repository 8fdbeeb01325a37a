//! What a request counts for, under the velocity rules of its route.

use http::request::Parts;

use super::layer::Rules;
use super::request::Whole;
use crate::body::json::Found;
use crate::body::{self, json};
use crate::key::form_value;
use crate::scope::{Principal, limited_subject};
use crate::velocity::{Allowance, Velocity, VelocityPart};

/// One use of each limit of the route.
pub(super) fn allowances(
    rules: &Rules,
    head: &Parts,
    body: &Whole,
    who: &Principal,
) -> Vec<Allowance> {
    let secret = rules.once.inner.secret.as_ref();
    let allowance = |rule: &Velocity| {
        let mut subject = Vec::new();
        body::put(&mut subject, rules.policy.route().as_bytes());
        body::put(&mut subject, rule.limit().to_string().as_bytes());
        for part in rule.per() {
            body::put(&mut subject, part.to_string().as_bytes());
            body::put(&mut subject, &value(part, head, body, who));
        }
        Allowance::new(limited_subject(secret, &subject), rule.limit())
    };
    rules.policy.velocity().iter().map(allowance).collect()
}

/// What the request has in this place. A value that two readers could read differently is as good as none, so that nobody
/// gets around a limit by leaving it out.
fn value(part: &VelocityPart, head: &Parts, body: &Whole, who: &Principal) -> Vec<u8> {
    match part {
        VelocityPart::Principal => who.as_bytes().to_vec(),
        VelocityPart::Header(name) => {
            let mut values = Vec::new();
            head.headers.get_all(name).iter().for_each(|v| body::put(&mut values, v.as_bytes()));
            values
        }
        VelocityPart::Json(pointer) => match json::find(&body.bytes, pointer) {
            Ok(Some(Found::Text(value))) => one_text(&value),
            // No value, or one that is neither a text nor a number.
            Ok(None | Some(Found::NotText)) | Err(_) => Vec::new(),
        },
        VelocityPart::Form(name) => {
            let value = form_value(head, &body.bytes, name).ok().flatten();
            one_text(&value.unwrap_or_default())
        }
    }
}

/// One text for all spellings of a value: `"4242"`, `4242`, `4242.0` and `" 4242"` are one card.
fn one_text(value: &str) -> Vec<u8> {
    let value = value.trim();
    let is_number = value.starts_with(|first: char| first == '-' || first.is_ascii_digit());
    let number = is_number.then(|| json::canonical(value.as_bytes(), &[], &[]).ok()).flatten();
    number.unwrap_or_else(|| value.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    // threat I13
    #[test]
    fn spellings_of_one_value_count_together() {
        let one = ["4242", " 4242", "4242 ", "4242.0", "4.242e3", "4242\u{a0}"].map(one_text);
        assert!(one.iter().all(|text| *text == one[0]), "{one:?}");
        for other in ["4243", "04242", "4242 1", "card", ""] {
            assert_ne!(one_text(other), one[0], "{other}");
        }
        assert_eq!(one_text(" card\t"), one_text("card"));
    }
}
