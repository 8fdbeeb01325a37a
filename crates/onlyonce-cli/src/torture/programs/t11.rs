//! T11: a bad network. Before the target: pieces, half-closed connections, requests that arrive twice, half answers. Behind
//! it, where the shim is the service: cut and half answers of requests that were executed.

use crate::torture::plan::{Cut, Draft, End, Kind, Shot, Step, percent};
use crate::torture::shim::Misbehaviour;

pub(super) fn write(draft: &mut Draft<'_>) {
    for (cut, label) in [(Cut::Pieces, "in small pieces"), (Cut::HalfClosed(0), "half-closed")] {
        draft.trial(Kind::Duplicates, label, |key| {
            vec![Step::One(Shot::plain(key).cut(cut)), Step::Insist(Shot::plain(key).at(1))]
        });
    }
    for delay in [0, 1, 30, 1000] {
        draft.trial(
            Kind::Duplicates,
            format!(
                "arrives twice, {} of the service time apart, one answer is lost",
                percent(delay)
            ),
            |key| {
                let lost = Shot::plain(key).cut(Cut::Response(End::Reset, 500));
                let both = vec![(0, lost), (delay, Shot::plain(key).at(1))];
                vec![Step::Staggered(both), Step::Insist(Shot::plain(key))]
            },
        );
    }
    draft.trial(Kind::Duplicates, "slow pieces beside a fast twin", |key| {
        let both = vec![(0, Shot::plain(key).cut(Cut::Pieces)), (10, Shot::plain(key).at(1))];
        vec![Step::Staggered(both), Step::Insist(Shot::plain(key))]
    });
    if draft.options.has_shim {
        behind(draft);
    }
}

fn behind(draft: &mut Draft<'_>) {
    let faults = [
        (Misbehaviour::CutsAfter, "the service executes, then cuts the connection"),
        (Misbehaviour::HalfAnswers, "the service executes, then sends half an answer"),
        (Misbehaviour::CutsBefore, "the service cuts the connection before it executes"),
        (Misbehaviour::Dawdles, "the service is slow"),
    ];
    for (misbehaviour, label) in faults {
        for _ in 0..TIMES {
            let trial = draft.trial(Kind::Duplicates, label, |key| {
                let both = vec![(0, Shot::plain(key)), (400, Shot::plain(key).at(1))];
                let retry = Step::One(Shot::plain(key));
                vec![Step::Staggered(both), Step::Insist(Shot::plain(key).at(1)), retry]
            });
            trial.misbehaviour = Some(misbehaviour);
        }
    }
}

const TIMES: usize = 3;
