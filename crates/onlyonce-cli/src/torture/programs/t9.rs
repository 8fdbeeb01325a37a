//! T9: requests that fail, then retries. A failure that is kept stays; one that is not kept is executed once at last.

use crate::torture::plan::{Draft, Kind, Shot, Step, Variant};
use crate::torture::shim::Misbehaviour;

pub(super) fn write(draft: &mut Draft<'_>) {
    if draft.options.has_shim {
        let failing = [
            (Misbehaviour::Declines, "the service declines with 402"),
            (Misbehaviour::Fails, "the service executes, then answers 500"),
        ];
        for (misbehaviour, label) in failing {
            for _ in 0..TIMES {
                let trial = draft.trial(Kind::Failing, label, |key| {
                    let retry = |node| Step::One(Shot::plain(key).at(node));
                    (0..4).map(retry).collect()
                });
                trial.misbehaviour = Some(misbehaviour);
            }
        }
    }
    for _ in 0..TIMES {
        draft.trial(Kind::Failing, "a request that is refused, then the right one", |key| {
            let refused = |node| Step::One(Shot::plain(key).changed(Variant::Refused).at(node));
            vec![refused(0), refused(1), Step::One(Shot::plain(key)), refused(0)]
        });
    }
}

const TIMES: usize = 2;
