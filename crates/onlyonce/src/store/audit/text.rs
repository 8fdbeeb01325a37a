//! Values of an entry as the text of columns, and back. What reads is exactly what was written, so that no change of a
//! column goes without a change of the hash.

use super::BusinessId;
use crate::event::By;

/// Who and why, as they were written; `None` if nobody wrote them so.
pub(crate) fn by_from_text(who: Option<&str>, why: Option<&str>) -> Option<Option<By>> {
    match (who, why) {
        (Some(who), Some(why)) => {
            let by = By::new(who, why).ok();
            by.filter(|by| by.who() == who && by.why() == why).map(Some)
        }
        (None, None) => Some(None),
        _ => None,
    }
}

/// A JSON list of pairs; `None` where there are none.
pub(crate) fn ids_to_text(ids: &[BusinessId]) -> Option<String> {
    let pairs: Vec<_> = ids.iter().map(|id| [&id.pointer, &id.value]).collect();
    // Strings are always written.
    (!ids.is_empty()).then(|| serde_json::to_string(&pairs).unwrap_or_default())
}

/// `None` if the text is not exactly what [`ids_to_text`] makes.
pub(crate) fn ids_from_text(text: Option<&str>) -> Option<Vec<BusinessId>> {
    let pairs: Vec<[String; 2]> = match text {
        Some(text) => serde_json::from_str(text).ok()?,
        None => Vec::new(),
    };
    let ids: Vec<_> =
        pairs.into_iter().map(|[pointer, value]| BusinessId { pointer, value }).collect();
    (ids_to_text(&ids).as_deref() == text).then_some(ids)
}
