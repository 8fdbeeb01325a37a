//! The description of the API, written by hand and held to the router by a test.

pub(super) const TEXT: &str = include_str!("openapi.json");

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;
    use crate::admin::router::TABLE;

    #[test]
    fn it_describes_every_route_and_no_other() {
        let document: Value = serde_json::from_str(TEXT).unwrap();
        let mut described = BTreeSet::new();
        for (path, methods) in document["paths"].as_object().unwrap() {
            let methods = methods.as_object().unwrap().keys();
            described.extend(methods.map(|method| (method.to_uppercase(), path.clone())));
        }
        let routed: BTreeSet<_> =
            TABLE.iter().map(|(method, path, _)| (method.to_string(), path.to_string())).collect();
        assert_eq!(described, routed);
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let document: Value = serde_json::from_str(TEXT).unwrap();
        for reference in TEXT.split("\"$ref\": \"#").skip(1) {
            let pointer = reference.split('"').next().unwrap();
            assert!(document.pointer(pointer).is_some(), "{pointer}");
        }
    }
}
