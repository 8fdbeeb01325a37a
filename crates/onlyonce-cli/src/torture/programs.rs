//! The attacks, one file each: pure functions that write trials.

mod t1;
mod t10;
mod t11;
mod t12;
mod t13;
mod t15;
mod t2;
mod t3;
mod t4;
mod t5;
mod t6;
mod t7;
mod t8;
mod t9;

use super::plan::{Draft, Options, Program, Trial};

/// The trials of a program, or why it has none.
pub(crate) fn trials(program: Program, options: &Options) -> Result<Vec<Trial>, &'static str> {
    if !options.is_chosen(program) {
        return Err("not chosen");
    }
    let mut draft = Draft::new(program, options);
    match program {
        Program::T1 => t1::write(&mut draft),
        Program::T2 => t2::write(&mut draft),
        Program::T3 => t3::write(&mut draft),
        Program::T4 => t4::write(&mut draft),
        Program::T5 => t5::write(&mut draft),
        Program::T6 => t6::write(&mut draft),
        Program::T7 => t7::write(&mut draft),
        Program::T8 => t8::write(&mut draft)?,
        Program::T9 => t9::write(&mut draft),
        Program::T10 => t10::write(&mut draft)?,
        Program::T11 => t11::write(&mut draft),
        Program::T12 => t12::write(&mut draft)?,
        Program::T13 => t13::write(&mut draft),
        Program::T15 => t15::write(&mut draft),
    }
    Ok(draft.trials)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(seed: u64) -> Options {
        Options {
            seed,
            crowd: 100,
            has_second_caller: true,
            has_shim: true,
            has_json_body: true,
            has_kill: true,
            has_pid: true,
            has_store_restart: true,
            has_store_flush: true,
            ..Options::default()
        }
    }

    fn all(seed: u64) -> Vec<Trial> {
        Program::ALL.iter().flat_map(|program| trials(*program, &options(seed)).unwrap()).collect()
    }

    #[test]
    fn the_same_seed_makes_the_same_plan() {
        assert_eq!(all(7), all(7));
        assert_ne!(all(7), all(8));
    }

    #[test]
    fn no_two_trials_share_a_key_or_a_marker() {
        let plan = all(7);
        let mut names: Vec<_> = plan
            .iter()
            .flat_map(|trial| [&trial.marker, &trial.other_marker, &trial.key])
            .collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn every_program_has_trials_and_the_plan_fits_the_default_ceiling() {
        for program in Program::ALL {
            assert!(!trials(program, &options(7)).unwrap().is_empty(), "{program}");
        }
        // Beside the default crowd, which is 1,000 and not 100.
        let requests: usize = all(7).iter().map(Trial::requests_max).sum();
        assert!(requests + 900 < 3_000, "{requests}");
    }

    #[test]
    fn a_program_that_was_not_chosen_has_no_trials() {
        let only = Options { only: vec![Program::T2], ..options(7) };
        assert!(trials(Program::T1, &only).is_err());
        assert!(trials(Program::T2, &only).is_ok());
    }
}
