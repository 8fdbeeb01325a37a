//! What a request counts for, under the velocity rules of its route.

use http::request::Parts;

use super::layer::Rules;
use super::request::Whole;
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
        VelocityPart::Json(pointer) => {
            let only = std::slice::from_ref(pointer);
            let value = |body: &[u8]| json::canonical(body, only, &[]);
            value(&body.bytes).or_else(|_| value(b"{}")).unwrap_or_default()
        }
        VelocityPart::Form(name) => {
            let value = form_value(head, &body.bytes, name).ok().flatten();
            value.unwrap_or_default().into_bytes()
        }
    }
}
