//! The check values: a small text per name, written in transactions of their own.

use tokio_postgres::Client;

use super::sql_error::SqlError;

/// What to make of a check value.
pub(super) struct CheckValue {
    name: String,
    from: Option<String>,
    to: Option<String>,
}

impl CheckValue {
    pub(super) fn new(name: &str, from: Option<&str>, to: Option<&str>) -> Self {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Self { name: name.to_owned(), from: owned(from), to: owned(to) }
    }

    /// Commits durably, although other commits of the session are not. The value that is read last was committed: the
    /// insertion waits for another one that is under way, and nothing is deleted while nodes run.
    pub(super) async fn run(
        &self,
        client: &Client,
        schema: &str,
    ) -> Result<Option<String>, SqlError> {
        let Self { name, from, to } = self;
        client.batch_execute("BEGIN; SET LOCAL synchronous_commit = on").await?;
        match (from, to) {
            (None, Some(to)) => {
                let insert = format!(
                    "INSERT INTO {schema}.check_value (name, value) VALUES ($1, $2)
                     ON CONFLICT (name) DO NOTHING"
                );
                client.execute(&insert, &[name, to]).await?;
            }
            (Some(from), Some(to)) => {
                let update = format!(
                    "UPDATE {schema}.check_value SET value = $3 WHERE name = $1 AND value = $2"
                );
                client.execute(&update, &[name, from, to]).await?;
            }
            (_, None) => {}
        }
        let select = format!("SELECT value FROM {schema}.check_value WHERE name = $1");
        let kept = client.query_opt(&select, &[name]).await?;
        let kept = kept.map(|row| row.try_get(0)).transpose()?;
        client.batch_execute("COMMIT").await?;
        Ok(kept)
    }
}
