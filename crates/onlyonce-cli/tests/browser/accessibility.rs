//! axe-core on every view, light and dark, wide and narrow. It comes from npm, so only the long tier asks for it.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::demo::Demo;
use crate::driver::{Browser, in_browser};
use crate::shop_window::{play, shows};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn axe_finds_nothing_serious_on_any_view() {
    if !std::env::var("ONLYONCE_TEST_TIER").is_ok_and(|tier| tier == "full") {
        println!("SKIPPED: axe-core is fetched and run in the long tier only");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let Some(axe) = fetch(folder.path()) else {
        println!(
            "SKIPPED: npm is not installed or does not reach its registry, so axe-core was not run"
        );
        return;
    };
    let demo = Demo::start();
    let (stage, admin) = (demo.stage.clone(), demo.admin.clone());
    in_browser(async move |browser| every_view(browser, &axe, &stage, &admin).await).await;
}

fn fetch(folder: &Path) -> Option<String> {
    let run = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(folder).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let is_here =
        run("npm", &["pack", "axe-core@4.10.3"]) && run("tar", &["xzf", "axe-core-4.10.3.tgz"]);
    is_here.then(|| std::fs::read_to_string(folder.join("package/axe.min.js")).unwrap())
}

async fn every_view(browser: Browser, axe: &str, stage: &str, admin: &str) {
    browser.go(stage).await;
    // It finds what is wrong, if something is.
    let nameless = "document.body.append(document.createElement('button'))";
    browser.run(nameless).await;
    assert_eq!(violations(&browser, axe).await[0][0], "button-name");

    browser.go(stage).await;
    play(&browser, "cut-the-bank").await;
    check(&browser, axe, "the shop window").await;
    browser.go(admin).await;
    for width in [1280, 360] {
        browser.post("window/rect", json!({ "width": width, "height": 900 })).await;
        for scheme in ["light", "dark"] {
            let media =
                json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
            let command = json!({ "cmd": "Emulation.setEmulatedMedia", "params": media });
            browser.post("goog/cdp/execute", command).await;
            every_view_once(&browser, axe, &format!("{scheme}, {width}")).await;
        }
    }
}

async fn every_view_once(browser: &Browser, axe: &str, how: &str) {
    for (address, ready) in [
        ("#/", ".overview tbody a"),
        ("#/operations", ".list tbody a"),
        ("#/events", ".list .found"),
        ("#/operations?key=carol-order-4712", ".list tbody a"),
    ] {
        browser.run(&format!("location.hash = '{address}'")).await;
        browser.until(&shows(ready, "")).await;
        check(browser, axe, &format!("{address} {how}")).await;
    }
    browser.click(".list .key").await;
    browser.until(&shows(".verdict", "")).await;
    check(browser, axe, &format!("an operation, {how}")).await;
    browser.click("#act-settle").await;
    browser.until(&shows("dialog", "Reason")).await;
    check(browser, axe, &format!("a dialog, {how}")).await;
    browser.run("document.querySelector('dialog').close()").await;
}

async fn check(browser: &Browser, axe: &str, view: &str) {
    assert_eq!(violations(browser, axe).await, Value::Array(Vec::new()), "{view}");
}

async fn violations(browser: &Browser, axe: &str) -> Value {
    browser.run(axe).await;
    // Colours are what they are only once nothing fades in any more. What never ends (a light that breathes) is not waited for.
    let script = "const done = arguments[arguments.length - 1];
        const ends = document.getAnimations().filter((one) => one.effect.getComputedTiming().endTime !== Infinity);
        Promise.allSettled(ends.map((one) => one.finished)).then(() => axe.run()).then(({ violations }) => done(violations
        .filter(({ impact }) => impact === 'serious' || impact === 'critical')
        .map(({ id, nodes }) => [id, nodes.map(({ html, failureSummary }) => [html, failureSummary])])),
        (error) => done([['axe failed', String(error)]]))";
    let told = browser.post("execute/async", json!({ "script": script, "args": [] })).await;
    told["value"].clone()
}
