//! A table of DynamoDB: can a store use it, and does it keep what it was given?

use onlyonce::store::dynamodb::{DynamoFacts, Missing, inspect};

use super::report::{Finding, Promise};
use super::{judge_clock, told};

pub(super) async fn examine(address: &str) -> Result<Vec<Finding>, String> {
    let facts = inspect(address).await.map_err(|error| told(&error))?;
    Ok(judge(&facts))
}

fn judge(facts: &DynamoFacts) -> Vec<Finding> {
    let use_ = judge_use(facts.missing());
    if !facts.is_there() {
        return vec![use_];
    }
    vec![
        use_,
        judge_regions(facts.regions(), facts.older_global),
        Finding::holds(
            Promise::Durable,
            "table",
            "DynamoDB answers a write when several zones have it",
        ),
        judge_expiry(facts.expires),
        judge_recovery(facts.point_in_time_recovery),
        judge_protection(facts.is_protected()),
        judge_capacity(facts.provisioned()),
        judge_trail(facts.no_trail()),
        judge_clock(facts.clock_ahead_ms),
    ]
}

fn judge_use(missing: Option<Missing>) -> Finding {
    let (promise, setting) = (Promise::Usable, "table");
    match missing {
        None | Some(Missing::OneRegion) => {
            Finding::holds(promise, setting, "its keys are pk and sk, and its index is pending")
        }
        Some(Missing::Table) => Finding::broken(
            promise,
            setting,
            "there is no such table",
            "make it: `onlyonce migrate --to`, or `onlyonce dynamodb template`",
        ),
        Some(Missing::Use(why)) => Finding::broken(
            promise,
            setting,
            why,
            "make a table as `onlyonce dynamodb template` describes it",
        ),
    }
}

fn judge_regions(regions: usize, older_global: Option<bool>) -> Finding {
    let (promise, setting) = (Promise::Authority, "replicas");
    match (regions, older_global) {
        (1, Some(_)) => Finding::holds(promise, setting, "it is a table of one region"),
        (1, None) => Finding::at_risk(
            promise,
            setting,
            "DynamoDB does not say whether it is a global table of the version of 2017",
            "allow dynamodb:DescribeGlobalTable",
        ),
        _ => Finding::broken(
            promise,
            setting,
            format!(
                "it is written in {regions} regions: a condition holds in one of them only, two regions can both win a key, and nothing can be promised"
            ),
            "use a table of one region",
        ),
    }
}

fn judge_expiry(expires: Option<bool>) -> Finding {
    let (promise, setting) = (Promise::Capacity, "time to live");
    match expires {
        Some(true) => {
            Finding::holds(promise, setting, "DynamoDB deletes what is over, by expires_s")
        }
        Some(false) => Finding::at_risk(
            promise,
            setting,
            "it is off, and nothing deletes expired records: the table grows for ever",
            "turn it on for the attribute expires_s, or use sweep=scan",
        ),
        None => Finding::at_risk(
            promise,
            setting,
            "DynamoDB does not let us ask",
            "allow dynamodb:DescribeTimeToLive",
        ),
    }
}

fn judge_recovery(is_on: Option<bool>) -> Finding {
    let (promise, setting) = (Promise::Kept, "point-in-time recovery");
    match is_on {
        Some(true) => Finding::holds(promise, setting, "on"),
        Some(false) => Finding::at_risk(
            promise,
            setting,
            "off: records that somebody deletes by mistake cannot be had back, and their operations run again on a retry",
            "turn it on",
        ),
        None => Finding::at_risk(
            promise,
            setting,
            "DynamoDB does not let us ask",
            "allow dynamodb:DescribeContinuousBackups",
        ),
    }
}

fn judge_protection(is_protected: bool) -> Finding {
    let (promise, setting) = (Promise::Kept, "deletion protection");
    match is_protected {
        true => Finding::holds(promise, setting, "on"),
        false => Finding::at_risk(
            promise,
            setting,
            "off: the table can be deleted by mistake",
            "turn it on",
        ),
    }
}

fn judge_capacity(provisioned: Option<(i64, i64)>) -> Finding {
    let (promise, setting) = (Promise::Capacity, "capacity");
    match provisioned {
        None => Finding::holds(promise, setting, "on demand"),
        Some((reads, writes)) => Finding::at_risk(
            promise,
            setting,
            format!(
                "{reads} read and {writes} write units a second: more requests are refused with 503"
            ),
            "see what `onlyonce plan --store dynamodb` needs, or pay on demand",
        ),
    }
}

fn judge_trail(no_trail: Option<&str>) -> Finding {
    let (promise, setting) = (Promise::Usable, "audit trail");
    match no_trail {
        None => Finding::holds(promise, setting, "it has the indexes of a trail"),
        Some(why) => Finding::holds(
            promise,
            setting,
            format!("{why}: `serve` refuses [audit] with this table"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_promised_of_a_table_that_several_regions_write() {
        assert!(format!("{:?}", judge_regions(2, Some(true))).contains("Broken"));
        assert!(format!("{:?}", judge_regions(1, None)).contains("AtRisk"));
        assert!(format!("{:?}", judge_regions(1, Some(false))).contains("Holds"));
    }
}
