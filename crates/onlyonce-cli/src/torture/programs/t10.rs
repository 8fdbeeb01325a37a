//! T10: the service is killed, or stopped for longer than its lease, while a request is on its way.

use crate::torture::plan::{Draft, Hook, Kind, Shot, Step, percent};

pub(super) fn write(draft: &mut Draft<'_>) -> Result<(), &'static str> {
    if !draft.options.has_kill && !draft.options.has_pid {
        return Err("give --kill-cmd and --start-cmd, or --pid");
    }
    if draft.options.has_kill {
        for step in 0..KILLS {
            let at = step * (1100 / KILLS) + draft.below(1100 / KILLS);
            during(
                draft,
                Hook::KillAndStart,
                at,
                format!("killed after {} of the service time", percent(at)),
            );
        }
    }
    if draft.options.has_pid {
        for step in 0..STOPS {
            let at = step * (1000 / STOPS) + draft.below(1000 / STOPS);
            during(
                draft,
                Hook::StopAndContinue,
                at,
                format!("stopped after {} of the service time", percent(at)),
            );
        }
    }
    Ok(())
}

fn during(draft: &mut Draft<'_>, hook: Hook, at: u32, label: String) {
    draft.trial(Kind::Duplicates, label, |key| {
        let interrupted = Step::During(hook, at, Shot::plain(key));
        vec![interrupted, Step::Insist(Shot::plain(key).at(1)), Step::One(Shot::plain(key))]
    });
}

const KILLS: u32 = 8;
const STOPS: u32 = 3;
