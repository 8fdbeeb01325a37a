//! Which path and method means what: one table, which the API's description is held to.

use http::Method;

/// What a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    Live,
    Ready,
    /// What listens here.
    Gateway,
    Metrics,
    Summary,
    Operations,
    OperationsCsv,
    Operation,
    Settle,
    Release,
    Forget,
    Erase,
    Bulk,
    BulkCsv,
    Audit,
    AuditHeads,
    AuditVerify,
    /// Verifies the trail, and compares it with heads that were kept elsewhere.
    AuditCompare,
    Events,
    Policy,
    Sweep,
    OpenApi,
}

impl Endpoint {
    /// Whether it changes something, and so needs more than a look.
    pub(super) fn changes(self) -> bool {
        matches!(
            self,
            Self::Settle
                | Self::Release
                | Self::Forget
                | Self::Erase
                | Self::Bulk
                | Self::BulkCsv
                | Self::Sweep
        )
    }

    /// Whether it is told more than fits into an address.
    pub(super) fn has_body(self) -> bool {
        self.changes() || self == Self::AuditCompare
    }

    /// Whether everybody may ask. Whoever probes health has no secrets, and who does not know yet what listens here must not show
    /// any; nothing secret is told.
    pub(super) fn is_open(self) -> bool {
        matches!(self, Self::Live | Self::Ready | Self::Gateway)
    }
}

/// What a path and a method lead to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found<'a> {
    /// This, with the text in the place of `{id}`.
    Endpoint(Endpoint, &'a str),
    /// The path exists, with these methods.
    OtherMethod(Vec<&'static str>),
    Nothing,
}

/// A `HEAD` is answered like a `GET`, without its body.
pub(super) fn find<'a>(method: &Method, path: &'a str) -> Found<'a> {
    let method = if method == Method::HEAD { "GET" } else { method.as_str() };
    let is_fixed = TABLE.iter().any(|(_, pattern, _)| *pattern == path);
    let mut others = Vec::new();
    for (known, pattern, endpoint) in TABLE {
        if is_fixed && *pattern != path {
            continue;
        }
        match placed(pattern, path) {
            Some(place) if *known == method => return Found::Endpoint(*endpoint, place),
            Some(_) => others.push(*known),
            None => {}
        }
    }
    if others.is_empty() { Found::Nothing } else { Found::OtherMethod(others) }
}

/// What stands in the place of `{id}`, if the path has this pattern; nothing where there is no place.
fn placed<'a>(pattern: &str, path: &'a str) -> Option<&'a str> {
    let Some((before, after)) = pattern.split_once(PLACE) else {
        return (pattern == path).then_some("");
    };
    let place = path.strip_prefix(before)?.strip_suffix(after)?;
    (!place.is_empty() && !place.contains('/')).then_some(place)
}

const PLACE: &str = "{id}";
/// Asked by our commands before anything else.
pub(crate) const GATEWAY: &str = "/api/v1/gateway";

/// A name that is written out here is never taken for an id.
pub(super) const TABLE: &[(&str, &str, Endpoint)] = &[
    ("GET", "/health/live", Endpoint::Live),
    ("GET", "/health/ready", Endpoint::Ready),
    ("GET", GATEWAY, Endpoint::Gateway),
    ("GET", "/metrics", Endpoint::Metrics),
    ("GET", "/api/v1/summary", Endpoint::Summary),
    ("GET", "/api/v1/operations", Endpoint::Operations),
    ("GET", "/api/v1/operations.csv", Endpoint::OperationsCsv),
    ("POST", "/api/v1/operations/bulk", Endpoint::Bulk),
    ("POST", "/api/v1/operations/bulk.csv", Endpoint::BulkCsv),
    ("GET", "/api/v1/operations/{id}", Endpoint::Operation),
    ("POST", "/api/v1/operations/{id}/settle", Endpoint::Settle),
    ("POST", "/api/v1/operations/{id}/release", Endpoint::Release),
    ("POST", "/api/v1/operations/{id}/forget", Endpoint::Forget),
    ("POST", "/api/v1/operations/{id}/erase", Endpoint::Erase),
    ("GET", "/api/v1/audit", Endpoint::Audit),
    ("GET", "/api/v1/audit/heads", Endpoint::AuditHeads),
    ("GET", "/api/v1/audit/verify", Endpoint::AuditVerify),
    ("POST", "/api/v1/audit/verify", Endpoint::AuditCompare),
    ("GET", "/api/v1/events", Endpoint::Events),
    ("GET", "/api/v1/policy", Endpoint::Policy),
    ("POST", "/api/v1/sweep", Endpoint::Sweep),
    ("GET", "/api/v1/openapi.json", Endpoint::OpenApi),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_one_segment() {
        let found = |path| find(&Method::GET, path);
        assert_eq!(found("/api/v1/operations/ab"), Found::Endpoint(Endpoint::Operation, "ab"));
        assert_eq!(found("/api/v1/operations/"), Found::Nothing);
        assert_eq!(found("/api/v1/operations/a/b"), Found::Nothing);
        let settle = find(&Method::POST, "/api/v1/operations/ab/settle");
        assert_eq!(settle, Found::Endpoint(Endpoint::Settle, "ab"));
    }

    #[test]
    fn another_method_is_told_which_there_are() {
        let found = find(&Method::DELETE, "/api/v1/summary");
        assert_eq!(found, Found::OtherMethod(vec!["GET"]));
        let bulk = find(&Method::GET, "/api/v1/operations/bulk");
        assert_eq!(bulk, Found::OtherMethod(vec!["POST"]));
        assert_eq!(find(&Method::HEAD, "/health/live"), Found::Endpoint(Endpoint::Live, ""));
        assert_eq!(find(&Method::GET, "/api/v1/summary/"), Found::Nothing);
    }
}
