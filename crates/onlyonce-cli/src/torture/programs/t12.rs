//! T12: the store is restarted or emptied, between a request and its retry and while a request is on its way.

use crate::torture::plan::{Draft, Hook, Kind, Shot, Step, percent};

pub(super) fn write(draft: &mut Draft<'_>) -> Result<(), &'static str> {
    let hooks = [
        (draft.options.has_store_restart, Hook::RestartStore, "restarted"),
        (draft.options.has_store_flush, Hook::FlushStore, "emptied"),
    ];
    if hooks.iter().all(|(is_given, ..)| !is_given) {
        return Err("give --store-restart-cmd or --store-flush-cmd");
    }
    for (_, hook, did) in hooks.into_iter().filter(|(is_given, ..)| *is_given) {
        draft.trial(Kind::Duplicates, format!("store {did} after the answer"), |key| {
            vec![
                Step::Insist(Shot::plain(key)),
                Step::Run(hook),
                Step::Insist(Shot::plain(key).at(1)),
            ]
        });
        for at in [200, 800] {
            draft.trial(
                Kind::Duplicates,
                format!("store {did} after {} of the service time", percent(at)),
                |key| {
                    let during = Step::During(hook, at, Shot::plain(key));
                    vec![during, Step::Insist(Shot::plain(key).at(1)), Step::One(Shot::plain(key))]
                },
            );
        }
    }
    Ok(())
}
