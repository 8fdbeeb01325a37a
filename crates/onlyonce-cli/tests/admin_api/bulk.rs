//! One change for many, with a dry run before it; CSV in and out.

use serde_json::json;

use crate::lab::{Lab, OPERATOR, ask};

fn unknowns(lab: &Lab, count: usize) {
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                for number in (thread..count).step_by(THREADS) {
                    assert_eq!(lab.send("/hangs-up", &format!("order-{number}")).status, 502);
                }
            });
        }
    });
}

#[test]
fn five_hundred_are_released_after_a_dry_run() {
    let lab = Lab::start();
    unknowns(&lab, 500);
    let mut request = json!({
        "filter": {"state": "unknown"}, "action": "release", "force": true, "reason": "the service was down", "dry_run": true,
    });
    let dry = lab.post("operations/bulk", &request).json();
    assert_eq!(
        (&dry["matched"], &dry["changed"], &dry["dry_run"]),
        (&json!(500), &json!(500), &json!(true)),
        "{dry}"
    );
    assert_eq!(dry["sample"].as_array().unwrap().len(), 10);
    assert_eq!(lab.get("summary")["states"]["unknown"], 500, "a dry run changes nothing");
    request["dry_run"] = false.into();
    request["expect"] = 499.into();
    let changed = lab.post("operations/bulk", &request);
    assert_eq!((changed.status, changed.code().as_str()), (409, "count_changed"));
    request["expect"] = 500.into();
    request["selection"] = "another".into();
    let changed = lab.post("operations/bulk", &request);
    assert_eq!((changed.status, changed.code().as_str()), (409, "count_changed"));
    request["selection"] = dry["selection"].clone();
    let done = lab.post("operations/bulk", &request).json();
    assert_eq!((&done["changed"], &done["refused"]), (&json!(500), &json!(0)), "{done}");
    let released = lab.get("operations?state=released&limit=200");
    assert_eq!(released["operations"].as_array().unwrap().len(), 200);
    assert_eq!(lab.get("operations?state=unknown")["operations"], json!([]));
}

#[test]
fn those_that_a_state_forbids_are_told_and_left() {
    let lab = Lab::start();
    unknowns(&lab, 3);
    lab.send("/pay", "paid");
    let request = json!({"filter": {}, "action": "settle", "failed": true, "reason": "r", "dry_run": false, "expect": 4});
    let done = lab.post("operations/bulk", &request).json();
    assert_eq!(
        (&done["matched"], &done["changed"], &done["refused"]),
        (&json!(4), &json!(3), &json!(1)),
        "{done}"
    );
    assert!(done["refusals"][0]["why"].as_str().unwrap().contains("completed"), "{done}");
}

#[test]
fn half_a_request_changes_nothing() {
    let lab = Lab::start();
    unknowns(&lab, 1);
    let whole = json!({
        "filter": {"state": "unknown"}, "action": "settle", "failed": true, "reason": "r", "dry_run": false, "expect": 1,
    });
    for member in ["filter", "action", "failed", "reason", "dry_run", "expect"] {
        let mut half = whole.clone();
        half.as_object_mut().unwrap().remove(member);
        assert_eq!(lab.post("operations/bulk", &half).status, 400, "without {member}");
    }
    for filter in [json!({"state": "lost"}), json!({"stat": "unknown"}), json!({"limit": "5"})] {
        let mut wrong = whole.clone();
        wrong["filter"] = filter;
        assert_eq!(lab.post("operations/bulk", &wrong).status, 400);
    }
    assert_eq!(lab.get("operations?state=unknown")["operations"].as_array().unwrap().len(), 1);
}

#[test]
fn a_spreadsheet_goes_out_and_comes_back() {
    let lab = Lab::start();
    unknowns(&lab, 3);
    lab.send("/hangs-up", "=HYPERLINK(1)");
    let csv = ask(&lab.admin, "GET", "/api/v1/operations.csv?state=unknown", OPERATOR, "");
    assert_eq!(csv.header("content-type"), Some("text/csv; charset=utf-8"));
    let lines: Vec<_> = csv.body.lines().collect();
    assert_eq!(lines.len(), 5, "{}", csv.body);
    assert!(lines[0].starts_with("\"id\",\"state\",\"route\",\"key\""));
    assert!(csv.body.contains("\"'=HYPERLINK(1)\""), "{}", csv.body);
    let mut sheet = "id,action,status,body,reason\r\n".to_owned();
    for line in &lines[1..] {
        let id = line.split(',').next().unwrap();
        sheet += &format!("{id},settle,201,\"{{\"\"id\"\":1}}\",seen\r\n");
    }
    let head = format!("{OPERATOR}Content-Type: text/csv\r\n");
    let send = |query: &str, sheet: &str| {
        ask(&lab.admin, "POST", &format!("/api/v1/operations/bulk.csv?{query}"), &head, sheet)
    };
    let dry = send("dry_run=true", &sheet);
    assert_eq!((dry.status, &dry.json()["changed"]), (200, &json!(4)), "{}", dry.body);
    let wrong = send("dry_run=false", &format!("{sheet}nonsense,settle,201,,seen\r\n"));
    assert_eq!(wrong.status, 400);
    assert!(wrong.body.contains("row 6"), "{}", wrong.body);
    assert_eq!(lab.get("operations?state=unknown")["operations"].as_array().unwrap().len(), 4);
    assert_eq!(send("dry_run=true&dry_run=false", &sheet).status, 400);
    assert_eq!(send("dry_run=false&expect=3", &sheet).code(), "count_changed");
    assert_eq!(send("dry_run=false", &sheet.replace("body", "id")).status, 400);
    assert_eq!(lab.get("operations?state=unknown")["operations"].as_array().unwrap().len(), 4);
    assert_eq!(send("dry_run=false&expect=4", &sheet).json()["changed"], 4);
    assert_eq!(lab.send("/hangs-up", "order-0").body, "{\"id\":1}");
}

const THREADS: usize = 8;
