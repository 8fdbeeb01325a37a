//! T6: another request under the same key, after the first and beside it.

use crate::torture::plan::{Draft, Kind, Shot, Step, Variant};

pub(super) fn write(draft: &mut Draft<'_>) {
    for _ in 0..TIMES {
        draft.trial(Kind::Changed, "another body", |key| {
            let changed = Shot::plain(key).changed(Variant::OtherMarker).at(1);
            vec![Step::Insist(Shot::plain(key)), Step::One(changed.clone()), Step::One(changed)]
        });
    }
    draft.trial(Kind::Changed, "another body while the first runs", |key| {
        let changed = Shot::plain(key).changed(Variant::OtherMarker).at(1);
        let both = vec![(0, Shot::plain(key)), (500, changed.clone())];
        vec![Step::Staggered(both), Step::Insist(Shot::plain(key)), Step::One(changed)]
    });
    if !draft.options.has_json_body {
        return;
    }
    draft.trial(Kind::Changed, "a long body that differs in its last byte", |key| {
        let long = |end| Shot::plain(key).changed(Variant::LongTail(end));
        vec![Step::Insist(long(1)), Step::One(long(2)), Step::One(long(1))]
    });
    let harmless = [
        (Variant::Respaced, "the same JSON with another space"),
        (Variant::OtherType, "another content type"),
        (Variant::OtherQuery, "a parameter more in the query"),
    ];
    for (variant, label) in harmless {
        draft.trial(Kind::Noted, label, |key| {
            let first = Shot::plain(key);
            vec![Step::Insist(first.clone()), Step::One(first.changed(variant))]
        });
    }
}

const TIMES: usize = 3;
