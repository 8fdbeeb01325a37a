//! T8: another caller sends the same request with the same key. It is another operation, and never gets that answer.

use crate::torture::plan::{Caller, Draft, Kind, Shot, Step};

pub(super) fn write(draft: &mut Draft<'_>) -> Result<(), &'static str> {
    if !draft.options.has_second_caller {
        return Err("give the credentials of two callers: --auth-a and --auth-b");
    }
    for _ in 0..TIMES {
        draft.trial(Kind::Callers, "the second caller after the first", |key| {
            let second = Shot::plain(key).of(Caller::B).at(1);
            vec![Step::Insist(Shot::plain(key)), Step::One(second.clone()), Step::One(second)]
        });
    }
    for _ in 0..TIMES {
        draft.trial(Kind::Callers, "both callers at the same instant", |key| {
            let shots = (0..8).map(|number: usize| {
                let caller = if number.is_multiple_of(2) { Caller::A } else { Caller::B };
                Shot::plain(key).of(caller).at(number / 2)
            });
            vec![
                Step::Burst(shots.collect()),
                Step::Insist(Shot::plain(key)),
                Step::Insist(Shot::plain(key).of(Caller::B)),
            ]
        });
    }
    Ok(())
}

const TIMES: usize = 3;
