//! `GET operations.csv`: all that match, as a spreadsheet reads them.

use bytes::Bytes;
use futures_util::stream;
use http::StatusCode;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use onlyonce::store::{BoxError, Cursor};
use onlyonce::{OperationFilter, Operations};
use serde_json::Value;

use super::answer::{Answer, Problem, streamed};
use super::desk::Desk;
use super::{filter, routes, shape};

/// Page by page, as fast as the reader reads. A store that fails in between breaks the answer off.
pub(super) async fn stream(desk: &Desk, query: &str) -> Result<Answer, Problem> {
    let filter = filter::of_whole_query(query)?;
    routes::demand_known(desk, filter.route.as_deref()).await?;
    let rows =
        Rows { operations: desk.once.operations(), filter, next: Next::Head, left: ROWS_MAX };
    let frames = stream::try_unfold(rows, |mut rows| async {
        Ok::<_, BoxError>(rows.read().await?.map(|text| (Frame::data(text), rows)))
    });
    let body = BodyExt::boxed_unsync(StreamBody::new(frames));
    Ok(streamed("text/csv; charset=utf-8", StatusCode::OK, body))
}

struct Rows {
    operations: Operations,
    filter: OperationFilter,
    next: Next,
    left: usize,
}

enum Next {
    Head,
    Page(Option<Cursor>),
    End,
}

impl Rows {
    async fn read(&mut self) -> Result<Option<Bytes>, BoxError> {
        let after = match self.next {
            Next::End => return Ok(None),
            Next::Head => {
                self.next = Next::Page(None);
                return Ok(Some(line(COLUMNS.map(Value::from).iter()).into()));
            }
            Next::Page(after) => after,
        };
        let page = self.operations.list(&self.filter, after, PAGE_ROWS.min(self.left)).await?;
        let listed = page.operations.iter().take(self.left);
        let lines: String = listed
            .map(|operation| {
                let told = shape::operation(operation);
                line(COLUMNS.iter().map(|column| &told[*column]))
            })
            .collect();
        self.left = self.left.saturating_sub(page.operations.len());
        self.next = match page.next {
            Some(next) if self.left > 0 => Next::Page(Some(next)),
            _ => Next::End,
        };
        Ok(Some(lines.into()))
    }
}

fn line<'a>(cells: impl Iterator<Item = &'a Value>) -> String {
    cells.map(cell).collect::<Vec<_>>().join(",") + "\r\n"
}

/// Always quoted, so that no character in it means anything to a reader of CSV.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => format!("\"{}\"", safe(text).replace('"', "\"\"")),
        other => other.to_string(),
    }
}

/// A spreadsheet takes a cell that begins so for a formula, and runs it. Control characters are spelt out.
pub(crate) fn safe(text: &str) -> String {
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let plain = crate::words::plain(text);
    if is_formula { format!("'{plain}") } else { plain }
}

/// Rows of one answer.
const ROWS_MAX: usize = 100_000;
/// Rows that are read at a time.
const PAGE_ROWS: usize = 500;
const COLUMNS: [&str; 14] = [
    "id",
    "state",
    "route",
    "key",
    "principal",
    "attempt",
    "revision",
    "first_claimed_at",
    "lease_until",
    "unknown_since",
    "releasable_at",
    "expires_at",
    "status",
    "settled_by",
];

#[cfg(test)]
mod tests {
    use super::*;

    // threat G19
    #[test]
    fn no_cell_is_a_formula_or_breaks_its_line() {
        let texts = ["=1+1", "+1", "-1", "@A1", "\tx", "\rx"];
        for text in texts {
            assert!(safe(text).starts_with('\''), "{text:?}");
        }
        assert_eq!(cell(&"a\",\"b\r\nc".into()), "\"a\"\",\"\"b\\u{d}\\u{a}c\"");
        assert_eq!(safe("order-1"), "order-1");
    }
}
