//! Operations that another version of the program has begun.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::StatusCode;
use onlyonce::Failure;
use onlyonce::steps::{Completer, Run, Steps, StepsError, StepsOutcome, Stopped, StuckError};
use onlyonce::transaction::Reply;
use serde::de::DeserializeOwned;

use crate::lab::{Lab, Shop, on_both, operation};

on_both! {
    a_changed_list_of_steps_is_an_error_and_never_a_restart;
    a_call_that_is_renamed_while_it_is_under_way_is_not_made;
    a_memory_that_cannot_be_read_is_an_error_and_blocks_nothing_else;
    a_stored_request_that_cannot_be_read_is_stuck;
    a_program_of_another_name_does_not_go_on;
    a_name_that_no_step_can_have_is_refused;
}

/// Does the steps of these names, and fails at `fail`.
fn version<S: Shop>(names: &[&'static str]) -> Steps<S, u32> {
    let names: Arc<[&'static str]> = names.into();
    Steps::new("versioned", move |mut run: Run<S>, _: u32| {
        let names = names.clone();
        async move {
            for name in names.iter() {
                if *name == "fail" {
                    return Err(Stopped::failed("it is meant to fail"));
                }
                run.step(name, async |mut tx| S::effect(&mut tx, name).await).await?;
            }
            run.finish(async |_tx| Ok(Reply::new(StatusCode::OK, ""))).await
        }
    })
    .with_retry_pause(Duration::ZERO)
}

// R132
async fn a_changed_list_of_steps_is_an_error_and_never_a_restart<S: Shop>(lab: Lab) {
    let shop = S::connect(&lab.address).await;
    let old = version::<S>(&["a", "b", "fail"]);
    let failed = old.run(&shop, &operation("k"), &1).await;
    assert!(matches!(failed, Err(StepsError::Failed { .. })), "{failed:?}");
    let changes: [(&[&str], &str); 5] = [
        (&["a", "renamed", "c"], r#"point 2 is stored as "b", and the program asks for "renamed""#),
        (&["b", "a", "c"], r#"point 1 is stored as "a", and the program asks for "b""#),
        (&["new", "a", "b"], r#"point 1 is stored as "a", and the program asks for "new""#),
        (&["a"], r#"point 2 is stored as "b", and the program finishes without it"#),
        (&["b", "c"], r#"point 1 is stored as "a", and the program asks for "b""#),
    ];
    for (names, expected) in changes {
        lab.let_time_pass();
        let steps = version::<S>(names).with_retry_pause(Duration::from_secs(600));
        let stuck = steps.run(&shop, &operation("k"), &1).await.unwrap_err();
        let StepsError::Stuck { why, .. } = stuck else { panic!("{stuck:?}") };
        assert_eq!(why.to_string(), expected);
        // Operators see it, and a duplicate is told the same.
        assert_eq!(lab.sql("SELECT state, error FROM {steps}"), format!("stuck|{expected}"));
        let again = steps.run(&shop, &operation("k"), &1).await.unwrap_err();
        let StepsError::Stuck { why: StuckError::Found(why), .. } = again else {
            panic!("{again:?}")
        };
        assert_eq!(why, expected);
        assert_eq!(lab.effects(), "a|1\nb|1");
    }
    // A version that has the stored steps goes on after them.
    lab.let_time_pass();
    let right = version::<S>(&["a", "b", "c"]);
    assert!(matches!(right.run(&shop, &operation("k"), &1).await.unwrap(), StepsOutcome::Done(_)));
    assert_eq!(lab.effects(), "a|1\nb|1\nc|1");
}

/// What a version of a program does at the place of the call.
#[derive(Clone, Copy, Debug)]
enum Place {
    Call(&'static str),
    CallOnce(&'static str),
    Step(&'static str),
    Finish,
}

/// Counts the calls, and has them fail after they were made while `fails`.
fn calling<S: Shop>(place: Place, calls: Arc<Mutex<Vec<String>>>, fails: bool) -> Steps<S, u32> {
    Steps::new("calling", move |mut run: Run<S>, _: u32| {
        let calls = calls.clone();
        async move {
            run.step("before", async |mut tx| S::effect(&mut tx, "before").await).await?;
            let call = async |key: String| {
                calls.lock().unwrap().push(key);
                if fails { Err(Failure::Unknown("the answer was lost".into())) } else { Ok(()) }
            };
            match place {
                Place::Call(name) => run.call(name, call).await?,
                Place::CallOnce(name) => run.call_once(name, call).await?,
                Place::Step(name) => {
                    run.step(name, async |mut tx| S::effect(&mut tx, name).await).await?;
                }
                Place::Finish => {}
            }
            run.finish(async |_tx| Ok(Reply::new(StatusCode::OK, ""))).await
        }
    })
    .with_retry_pause(Duration::from_secs(600))
}

// R132, R135
async fn a_call_that_is_renamed_while_it_is_under_way_is_not_made<S: Shop>(lab: Lab) {
    let shop = S::connect(&lab.address).await;
    let calls = Arc::new(Mutex::new(Vec::new()));
    let run = async |place, fails| {
        lab.let_time_pass();
        calling::<S>(place, calls.clone(), fails).run(&shop, &operation("k"), &1).await
    };
    let old = Place::Call("card charged");
    run(old, true).await.unwrap_err();
    let stored = r#"the call "card charged" may have been made, and the program asks for"#;
    for (place, asked) in [
        (Place::Call("charge card"), r#"the call "charge card""#),
        (
            Place::CallOnce("card charged"),
            r#"the call "card charged", which must not be repeated,"#,
        ),
        (Place::Step("card charged"), r#"the step "card charged""#),
        (Place::Finish, "the end"),
    ] {
        let stuck = run(place, false).await.unwrap_err();
        let StepsError::Stuck { why, .. } = stuck else { panic!("{place:?}: {stuck:?}") };
        assert_eq!(why.to_string(), format!("{stored} {asked} instead"));
        assert_eq!(lab.sql("SELECT state, calling FROM {steps}"), "stuck|card charged");
    }
    assert_eq!(calls.lock().unwrap().len(), 1);
    // The version that has it makes it again, with the same key.
    assert!(matches!(run(old, false).await.unwrap(), StepsOutcome::Done(_)));
    let calls = calls.lock().unwrap();
    assert_eq!((calls.len(), &calls[0]), (2, &calls[1]));
    assert_eq!(lab.effects(), "before|1");
    assert_eq!(lab.sql("SELECT coalesce(calling, '-') FROM {steps}"), "-");
}

/// Remembers `value`, and fails if it is told so. `T` is what this version expects.
fn remembering<S: Shop, T: DeserializeOwned + serde::Serialize + Send + 'static>(
    value: fn() -> T,
    fails: bool,
) -> Steps<S, u32> {
    Steps::new("remembering", move |mut run: Run<S>, _: u32| async move {
        run.step("remembered", async |_tx| Ok(value())).await?;
        if fails {
            return Err(Stopped::failed("it is meant to fail"));
        }
        run.finish(async |_tx| Ok(Reply::new(StatusCode::OK, ""))).await
    })
    .with_retry_pause(Duration::ZERO)
}

async fn a_memory_that_cannot_be_read_is_an_error_and_blocks_nothing_else<S: Shop>(lab: Lab) {
    let shop = S::connect(&lab.address).await;
    let old = remembering::<S, _>(|| "text".to_owned(), true);
    old.run(&shop, &operation("old"), &1).await.unwrap_err();
    lab.let_time_pass();
    let new = remembering::<S, _>(|| 7_u32, false);
    let stuck = new.run(&shop, &operation("old"), &1).await.unwrap_err();
    let StepsError::Stuck { why: StuckError::Memory { step, .. }, .. } = stuck else {
        panic!("{stuck:?}")
    };
    assert_eq!(step, "remembered");
    // A completer tries it again, and completes others all the same.
    remembering::<S, _>(|| 7_u32, true).run(&shop, &operation("new"), &1).await.unwrap_err();
    let completer = Completer::new(shop.clone()).with(&new);
    let completed = lab.until("SELECT state FROM {steps} WHERE key = 'new'", "completed");
    completer.with_poll_max(Duration::ZERO).run_until(completed).await;
    // The completer may have been stopped while it tried the old one again.
    let old = lab.sql("SELECT state FROM {steps} WHERE key = 'old'");
    assert!(matches!(old.as_str(), "stuck" | "running"), "{old}");
}

async fn a_stored_request_that_cannot_be_read_is_stuck<S: Shop>(lab: Lab) {
    let shop = S::connect(&lab.address).await;
    version::<S>(&["a", "fail"]).run(&shop, &operation("k"), &1).await.unwrap_err();
    let other = Steps::new("versioned", async |run: Run<S>, _: Vec<String>| {
        run.finish(async |_tx| Ok(Reply::new(StatusCode::OK, ""))).await
    });
    let completer = Completer::new(shop).with(&other);
    let stuck = lab.until("SELECT state FROM {steps}", "stuck");
    completer.with_poll_max(Duration::ZERO).run_until(stuck).await;
    let error = lab.sql("SELECT error FROM {steps}");
    assert!(error.starts_with("the stored request cannot be read: invalid type"), "{error}");
    assert_eq!(lab.effects(), "a|1");
}

async fn a_program_of_another_name_does_not_go_on<S: Shop>(lab: Lab) {
    let shop = S::connect(&lab.address).await;
    version::<S>(&["a", "fail"]).run(&shop, &operation("k"), &1).await.unwrap_err();
    lab.let_time_pass();
    let other = Steps::new("renamed", async |run: Run<S>, _: u32| {
        run.finish(async |_tx| Ok(Reply::new(StatusCode::OK, ""))).await
    });
    let refused = other.run(&shop, &operation("k"), &1).await.unwrap_err();
    assert!(matches!(refused, StepsError::OtherProgram { .. }), "{refused:?}");
    assert_eq!(lab.sql("SELECT state, name FROM {steps}"), "waiting|versioned");
}

async fn a_name_that_no_step_can_have_is_refused<S: Shop>(lab: Lab) {
    let shop = S::connect(&lab.address).await;
    for (key, names) in [("twice", ["a", "a"]), ("empty", ["b", ""]), ("control", ["c", "x\n"])] {
        let refused = version::<S>(&names).run(&shop, &operation(key), &1).await.unwrap_err();
        let is_name = matches!(&refused, StepsError::Stuck { why: StuckError::Name { .. }, .. });
        assert!(is_name, "{refused:?}");
    }
    assert_eq!(lab.effects(), "a|1\nb|1\nc|1");
}
