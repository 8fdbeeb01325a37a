//! The heads of the audit trail, and the trail compared with heads that were kept.

use serde_json::{Value, json};

use crate::lab::{Answer, Lab, READER, ask};

fn audited() -> Lab {
    let tokens = "token = \"operators-token\"\nread_token = \"readers-token\"";
    Lab::with("", "", &format!("{tokens}\n[audit]\nkeep = \"30d\""))
}

/// Asks with the token that only reads.
fn compare(lab: &Lab, body: &Value) -> Answer {
    let headers = format!("{READER}Content-Type: application/json\r\n");
    ask(&lab.admin, "POST", "/api/v1/audit/verify", &headers, &body.to_string())
}

#[test]
fn the_trail_is_compared_with_kept_heads() {
    let lab = audited();
    assert_eq!(lab.send("/pay", "order-1").status, 201);
    let told = lab.get("audit/heads");
    let head = &told["heads"][0];
    assert_eq!((&head["sequence"], &head["from"]), (&json!(2), &json!(0)), "{told}");
    let line = |sequence: u64| {
        let text = |name: &str| head[name].as_str().unwrap().to_owned();
        format!("{} {sequence} {}", text("writer"), text("hash"))
    };
    for heads in [vec![], vec![line(2)]] {
        assert_eq!(compare(&lab, &json!({ "heads": heads })).json()["ok"], true);
    }
    for changed in [line(1), line(3)] {
        let compared = compare(&lab, &json!({ "heads": [line(2), changed] }));
        assert_eq!((compared.status, &compared.json()["ok"]), (200, &json!(false)));
    }
}

#[test]
fn heads_that_cannot_be_understood_are_refused() {
    let lab = audited();
    for wrong in [
        json!({}),
        json!({ "heads": "x" }),
        json!({ "heads": ["x"] }),
        json!({ "heads": [7] }),
        json!({ "heads": [], "head": [] }),
    ] {
        let refused = compare(&lab, &wrong);
        assert_eq!((refused.status, refused.code().as_str()), (400, "bad_request"), "{wrong}");
    }
    assert_eq!(ask(&lab.admin, "GET", "/api/v1/audit/heads?id=1", READER, "").status, 400);
}
