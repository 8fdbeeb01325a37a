//! A trial as a shell script with curl, for a person to run.

use crate::torture::observed::Observed;
use crate::torture::oracle::Oracle;
use crate::torture::plan::{Caller, Cut, Hook, Over, Shot, Step, Trial, percent};
use crate::torture::secrets::{is_harmless, shown_url};
use crate::torture::target::{Rendered, Target};

/// The script.
pub(super) fn script(observed: &Observed, target: &Target, oracle: &Oracle) -> String {
    let trial = &observed.trial;
    let mut lines = vec![
        "#!/bin/sh".to_owned(),
        format!("# {} {}: {}", trial.program, trial.program.title(), trial.label),
        format!(
            "# Keys and markers are of seed {}; the target must not know them yet.",
            seed_of(trial)
        ),
    ];
    lines.extend(needed_variables(target, trial));
    if let Some(misbehaviour) = trial.misbehaviour {
        lines.push(format!(
            "# The service behind the target must misbehave at the first arrival: {misbehaviour:?}"
        ));
    }
    for (number, step) in trial.steps.iter().enumerate() {
        if number > 0 && matches!(step, Step::Insist(_)) {
            lines.push("sleep 1".to_owned());
        }
        lines.extend(commands(step, trial, target));
    }
    if let Some(question) = oracle.question(&trial.marker) {
        lines.push(format!("{question}   # executions"));
    }
    if let (Some(_), Some(question)) = (observed.other_count, oracle.question(&trial.other_marker))
    {
        lines.push(format!("{question}   # executions of the changed request"));
    }
    lines.join("\n") + "\n"
}

fn seed_of(trial: &Trial) -> String {
    let seed = trial.marker.trim_start_matches("oo").split('-').next().unwrap_or_default();
    u64::from_str_radix(seed, 16).map_or_else(|_| seed.to_owned(), |seed| seed.to_string())
}

fn needed_variables(target: &Target, trial: &Trial) -> Vec<String> {
    let has_b = trial.steps.iter().flat_map(Step::shots).any(|shot| shot.caller == Caller::B);
    let hidden = target.headers.iter().chain(&target.auth_a).filter(|(name, _)| !is_harmless(name));
    let mut names: Vec<_> = hidden.map(|(name, _)| variable(name, Caller::A)).collect();
    if has_b {
        names.extend(target.auth_b.iter().map(|(name, _)| variable(name, Caller::B)));
    }
    names
        .iter()
        .map(|name| format!(": \"${{{name}:?set it to the value of the header}}\""))
        .collect()
}

fn commands(step: &Step, trial: &Trial, target: &Target) -> Vec<String> {
    let curl = |shot: &Shot| curl(trial, shot, target);
    match step {
        Step::One(shot) | Step::Insist(shot) => vec![curl(shot)],
        Step::Burst(shots) if shots.len() > BURST_SHOWN => {
            let many = shots.len();
            vec![
                format!("for n in $(seq {many}); do"),
                format!("  {} &", curl(&shots[0])),
                "done; wait".to_owned(),
            ]
        }
        Step::Burst(shots) => {
            let mut lines: Vec<_> = shots.iter().map(|shot| format!("{} &", curl(shot))).collect();
            lines.push("wait".to_owned());
            lines
        }
        Step::Staggered(shots) => {
            let mut lines = Vec::new();
            for (part, shot) in shots {
                lines.push(format!(
                    "{} &   # begins at {} of the service time",
                    curl(shot),
                    percent(*part)
                ));
            }
            lines.push("wait".to_owned());
            lines
        }
        Step::During(hook, part, shot) => vec![
            format!("{} &", curl(shot)),
            format!("# at {} of the service time: {}", percent(*part), hook_name(*hook)),
            "wait".to_owned(),
        ],
        Step::Confirm(_) => Vec::new(),
        Step::Wait(_) => vec!["sleep 1   # until the target has noticed".to_owned()],
        Step::Run(hook) => vec![format!("# {}", hook_name(*hook))],
    }
}

fn hook_name(hook: Hook) -> &'static str {
    match hook {
        Hook::KillAndStart => "run --kill-cmd, then --start-cmd",
        Hook::StopAndContinue => "kill -STOP, wait for 1.5 leases, kill -CONT",
        Hook::RestartStore => "run --store-restart-cmd",
        Hook::FlushStore => "run --store-flush-cmd",
    }
}

fn curl(trial: &Trial, shot: &Shot, target: &Target) -> String {
    let rendered = target.render(trial, shot);
    let node = target.node(shot.node);
    let mut words = vec!["curl -sS -i".to_owned()];
    match shot.over {
        Over::Http1 => {}
        Over::Http2 if node.is_tls => words.push("--http2".to_owned()),
        Over::Http2 => words.push("--http2-prior-knowledge".to_owned()),
    }
    match shot.cut {
        Cut::After(..) => words.push(format!("--max-time 0.05 `# {}`", shot.cut)),
        Cut::Request(..) => words.push(format!("--max-time 0.01 `# {}`", shot.cut)),
        Cut::Response(..) => words.push(format!("-o /dev/null `# {}`", shot.cut)),
        Cut::HalfClosed(_) => words.push(format!("`# {}, which curl cannot`", shot.cut)),
        Cut::Whole | Cut::Pieces => {}
    }
    words.push(format!("-X {}", target.method));
    words.extend(header_words(&rendered, shot, target));
    if !rendered.body.is_empty() {
        words.push(format!("--data-binary {}", quoted(&body_shown(&rendered.body))));
    }
    words.push(quoted(&shown_url(&node.url(&rendered.path))));
    words.join(" ")
}

fn header_words(rendered: &Rendered, shot: &Shot, target: &Target) -> Vec<String> {
    let skipped = ["host", "content-length", "accept", "user-agent"];
    let shown = rendered
        .headers
        .iter()
        .filter(|(name, _)| !skipped.contains(&name.to_ascii_lowercase().as_str()));
    let words = shown.map(|(name, value)| {
        let value = String::from_utf8_lossy(value);
        if name.eq_ignore_ascii_case(&target.key_header) || is_harmless(name) {
            // curl leaves out a header whose value is empty, unless it ends with a semicolon.
            let text =
                if value.is_empty() { format!("{name};") } else { format!("{name}: {value}") };
            return format!("-H {}", quoted(&text));
        }
        format!("-H \"{name}: ${}\"", variable(name, shot.caller))
    });
    words.collect()
}

/// The name of the variable that has a header's value.
fn variable(name: &str, caller: Caller) -> String {
    let letters =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' });
    format!("{}_{caller:?}", letters.collect::<String>())
}

fn body_shown(body: &[u8]) -> String {
    String::from_utf8_lossy(body).into_owned()
}

/// For a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Requests of a burst that get a line each.
const BURST_SHOWN: usize = 4;
