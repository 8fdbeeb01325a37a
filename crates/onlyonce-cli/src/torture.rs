//! Attacks an API with duplicates, cuts and races, and says with evidence whether one key can execute twice or an answer
//! can lie.
//!
//! 1. `plan` and `programs` write down what will be sent, from the seed alone.
//! 2. `hunt` carries it out over `wire`, and writes down what happened (`observed`).
//! 3. `oracle` counts executions; `shim` is one, the service behind a gateway under test.
//! 4. `judge` looks at each trial, `findings` at all of them; `card` notes the semantics; `report` tells. What may be the
//!    target's own failing is compared with `fresh`, how often it fails undisturbed.
//! 5. Without somebody who counts, the verdict is never better than inconclusive.

mod card;
mod findings;
mod fresh;
mod hunt;
mod judge;
mod observed;
pub(crate) mod oracle;
pub(crate) mod plan;
mod programs;
mod progress;
pub(crate) mod report;
pub(crate) mod secrets;
pub(crate) mod shim;
pub(crate) mod target;
pub(crate) mod wire;

use std::collections::BTreeMap;

use self::findings::targets;
use self::fresh::Fresh;
use self::judge::{Facts, judge};
use self::plan::{Options, Program, Step, Trial, percent};
use self::report::{ProgramLine, Report, Skipped};
use self::target::Target;

pub(crate) use self::findings::Verdict;
pub(crate) use self::hunt::{Hooks, Hunt, Limits, NoHunt};
pub(crate) use self::progress::Progress;

/// The whole run, from the first plain request to the report.
pub(crate) async fn run(mut hunt: Hunt, options: &Options) -> Result<Report, NoHunt> {
    let begin = tokio::time::Instant::now();
    let baseline = hunt.probe(options).await?;
    let mut left_out = BTreeMap::new();
    for program in Program::ALL {
        match programs::trials(program, options) {
            Ok(_) if program == Program::T13 && !hunt.speaks_http2 => {
                left_out.insert(program, "the target does not speak HTTP/2");
            }
            Ok(trials) => hunt.run(program, trials).await,
            Err(why) => {
                left_out.insert(program, why);
            }
        }
    }
    hunt.settle_all().await;
    let is_counted = hunt.oracle.counts();
    let fresh = Fresh::seen(&hunt.observed);
    let facts = Facts { has_unique_answers: baseline.has_unique_answers, is_counted, fresh };
    Ok(Report {
        found: findings::found(&hunt, &facts, &left_out),
        counts: hunt.counts,
        card: card::card(&hunt.observed, &baseline, hunt.speaks_http2),
        oracle: hunt.oracle.name(),
        targets: targets(&hunt.target),
        seed: options.seed,
        seconds: begin.elapsed().as_secs_f64(),
        programs: program_lines(&hunt, &facts, &left_out),
    })
}

fn program_lines(
    hunt: &Hunt,
    facts: &Facts,
    left_out: &BTreeMap<Program, &'static str>,
) -> Vec<ProgramLine> {
    let line = |program: &Program| {
        let of: Vec<_> = hunt
            .observed
            .iter()
            .filter(|observed| observed.trial.program == *program && !observed.trial.is_probe())
            .collect();
        ProgramLine {
            program: *program,
            trials: of.len(),
            requests: of.iter().map(|observed| observed.events.len()).sum(),
            violated: of
                .iter()
                .filter(|observed| !judge(observed, facts).violations.is_empty())
                .count(),
            left_out: left_out.get(program).map(|why| (*why).to_owned()),
            skipped: hunt
                .skipped
                .get(program)
                .map(|whys| Skipped { trials: whys.len(), why: whys[0].told() }),
        }
    };
    Program::ALL.iter().map(line).collect()
}

/// Exactly what would be sent: every trial, and one request of each kind in full.
pub(crate) fn dry_run(target: &Target, options: &Options) -> String {
    let mut text = String::new();
    let probe = plan::probe(options, 0, plan::Caller::A);
    text += &format!("Before the attacks: at most {} plain requests, such as\n\n", plan::PLAIN_MAX);
    text += &shown(&probe, target);
    let mut total = plan::PLAIN_MAX;
    for program in Program::ALL {
        let title = format!("\n{program} {}", program.title());
        match programs::trials(program, options) {
            Err(why) => text += &format!("{title}: left out ({why})\n"),
            Ok(trials) => {
                text += &format!("{title}: {} trials\n", trials.len());
                for trial in &trials {
                    total += trial.requests_max();
                    text += &trial_line(trial);
                }
            }
        }
    }
    text += &format!("\nAt most {total} requests. Nothing was sent.\n");
    target.secrets.scrubbed(&text)
}

fn trial_line(trial: &Trial) -> String {
    let steps = trial.steps.iter().map(|step| match step {
        Step::One(shot) => format!("send {}", shot_told(shot)),
        Step::Insist(shot) => format!(
            "send {} until it is answered, {} times at most",
            shot_told(shot),
            plan::INSIST_MAX
        ),
        Step::Confirm(shot) => format!(
            "if an answer to a retry broke off, send {} {} times more",
            shot_told(shot),
            plan::CONFIRM_MAX
        ),
        Step::Wait(part) => {
            format!("wait for {} of the service time, at least 100 ms", percent(*part))
        }
        Step::Burst(shots) => format!("{} at once", shots.len()),
        Step::Staggered(shots) => {
            let told = shots
                .iter()
                .map(|(part, shot)| format!("at {} {}", percent(*part), shot_told(shot)));
            format!(
                "overlapping, in parts of the service time ({})",
                told.collect::<Vec<_>>().join(", ")
            )
        }
        Step::During(hook, ..) => format!("send, and {hook:?} meanwhile"),
        Step::Run(hook) => format!("{hook:?}"),
    });
    let key: Vec<_> = trial
        .steps
        .iter()
        .flat_map(Step::shots)
        .next()
        .map(|shot| shot.keys.iter().map(|key| findings::shortened_key(key)).collect())
        .unwrap_or_default();
    let steps: Vec<_> = steps.collect();
    format!(
        "  {}: key {}, marker {}: {}\n",
        trial.label,
        key.join(" and "),
        trial.marker,
        steps.join("; ")
    )
}

fn shot_told(shot: &plan::Shot) -> String {
    let caller = if shot.caller == plan::Caller::B { " as caller B" } else { "" };
    let over = if shot.over == plan::Over::Http2 { " over HTTP/2" } else { "" };
    match shot.cut {
        plan::Cut::Whole => format!("{}{caller}{over}", shot.variant),
        cut => format!("{}{caller}{over}, {cut}", shot.variant),
    }
}

fn shown(trial: &Trial, target: &Target) -> String {
    let Some(shot) = trial.steps.iter().flat_map(Step::shots).next() else { return String::new() };
    let bytes = target.render(trial, shot).bytes(&target.method);
    let node = target.node(0);
    let text = String::from_utf8_lossy(&bytes).replace("\r\n", "\n");
    let lines = text.lines().map(|line| format!("    {line}\n"));
    format!("    to {}\n\n{}", node.url(""), lines.collect::<String>())
}
