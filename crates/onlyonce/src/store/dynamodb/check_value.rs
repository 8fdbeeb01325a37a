//! The texts by which a node notices that its configuration would give every key another id.

use aws_sdk_dynamodb::types::ReturnValuesOnConditionCheckFailure;

use super::call::{Failed, call};
use super::item::{Item, text};
use super::table::{Table, unreadable};
use crate::store::Fault;

impl Table {
    /// Keeps `to` if `from` is kept, and returns what is kept then.
    pub(super) async fn check_value(
        &self,
        name: &str,
        from: Option<String>,
        to: Option<String>,
    ) -> Result<Option<String>, Fault> {
        let Some(to) = to else {
            return self.kept_value(name).await;
        };
        let _place = self.place().await?;
        let mut item = self.names.check_value(name);
        item.insert("kept".to_owned(), text(&to));
        let put = self.client.put_item().table_name(&self.address.table).set_item(Some(item));
        let put = match from {
            None => put.condition_expression("attribute_not_exists(pk)"),
            Some(from) => put
                .condition_expression("kept = :from")
                .expression_attribute_values(":from", text(from)),
        };
        let put = put
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        match call(&self.time, |trace| put.customize().interceptor(trace).send()).await {
            Ok(_) => Ok(Some(to)),
            Err(Failed::Condition(old)) => kept(old),
            Err(failed) => Err(failed.fault()),
        }
    }

    async fn kept_value(&self, name: &str) -> Result<Option<String>, Fault> {
        kept(self.get_item(self.names.check_value(name)).await?)
    }
}

fn kept(item: Option<Item>) -> Result<Option<String>, Fault> {
    let Some(item) = item else {
        return Ok(None);
    };
    match item.get("kept").map(|kept| kept.as_s()) {
        Some(Ok(kept)) => Ok(Some(kept.clone())),
        _ => Err(unreadable("a check value is no text")),
    }
}
