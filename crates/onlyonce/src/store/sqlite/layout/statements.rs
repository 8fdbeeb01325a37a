//! The SQL statements of a TTL class.

use std::sync::OnceLock;

use crate::store::sqlite::layout::columns::COLUMNS;
use crate::store::sqlite::layout::place::CLASS_MAX;
use crate::store::sqlite::layout::schema::{self, COMPLETED, GONE};

/// The text of each statement. Built once per class and process.
pub(crate) struct Statements {
    pub(crate) append: String,
    pub(crate) update: String,
    pub(crate) settle: String,
    pub(crate) insert_response: String,
    pub(crate) mark_gone: String,
    pub(crate) delete: String,
    pub(crate) delete_response: String,
    pub(crate) delete_before: String,
    pub(crate) copy: String,
    pub(crate) read: String,
    pub(crate) oldest: String,
    pub(crate) page: String,
    pub(crate) ids: String,
    pub(crate) last_response: String,
}

impl Statements {
    pub(crate) fn of(class: u8) -> &'static Self {
        static TEXTS: [OnceLock<Statements>; CLASS_MAX as usize + 1] =
            [const { OnceLock::new() }; CLASS_MAX as usize + 1];
        TEXTS[usize::from(class.min(CLASS_MAX))].get_or_init(|| Self::new(class))
    }

    fn new(class: u8) -> Self {
        let ((record, _), (response, _)) = (schema::record(class), schema::response(class));
        let bare = COLUMNS.replace("r.", "");
        let answer =
            format!("LEFT JOIN {response} a ON a.row = r.response AND r.state = {COMPLETED}");
        let places = (1..=25).map(|n| format!("?{n}")).collect::<Vec<_>>().join(", ");
        Self {
            append: format!("INSERT INTO {record} (row, {bare}) VALUES ({places})"),
            update: format!(
                "UPDATE {record} SET state = ?2, crc = ?3, unknown_since = ?4, expires_at = ?5, lease_until = ?6, \
                 token = ?7, count = ?8, settled_by = NULL WHERE row = ?1"
            ),
            settle: format!(
                "UPDATE {record} SET state = {COMPLETED}, crc = ?2, unknown_since = NULL, expires_at = ?3, \
                 lease_until = NULL, token = ?4, count = ?5, settled_by = ?6, response = ?7 WHERE row = ?1"
            ),
            insert_response: format!(
                "INSERT INTO {response} (row, crc, head, body) VALUES (?1, ?2, ?3, ?4)"
            ),
            mark_gone: format!(
                "UPDATE {record} SET state = {GONE}, crc = ?2, unknown_since = NULL, expires_at = NULL, \
                 lease_until = NULL, settled_by = NULL WHERE row = ?1"
            ),
            delete: format!("DELETE FROM {record} WHERE row = ?1"),
            delete_response: format!(
                "DELETE FROM {response} WHERE row = (SELECT response FROM {record} WHERE row = ?1)"
            ),
            delete_before: format!("DELETE FROM {record} WHERE row < ?1"),
            copy: format!(
                "INSERT INTO {record} (row, {bare}) SELECT ?2, {bare} FROM {record} WHERE row = ?1"
            ),
            read: format!(
                "SELECT {COLUMNS}, a.crc, a.head, a.body FROM {record} r {answer} WHERE r.row = ?1"
            ),
            oldest: format!(
                "SELECT {COLUMNS}, r.row FROM {record} r WHERE r.row >= ?1 ORDER BY r.row LIMIT ?2"
            ),
            page: format!(
                "SELECT {COLUMNS}, a.crc, a.head, a.body, r.row FROM {record} r {answer} \
                 WHERE r.row > ?1 ORDER BY r.row LIMIT ?2"
            ),
            ids: format!("SELECT row, id, state, crc FROM {record} ORDER BY row DESC"),
            last_response: format!("SELECT coalesce(max(row), 0) FROM {response}"),
        }
    }
}
