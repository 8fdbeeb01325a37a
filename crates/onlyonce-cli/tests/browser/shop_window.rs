//! The shop window of the demo: the same scene on both sides, drawn live.

use serde_json::json;

use crate::demo::Demo;
use crate::driver::{Browser, in_browser};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_goes_wrong_the_right_side_charges_once() {
    let demo = Demo::start();
    let stage = demo.stage.clone();
    in_browser(async move |browser| every_scene(browser, stage).await).await;
}

async fn every_scene(browser: Browser, stage: String) {
    browser.go(&stage).await;
    for (scene, with) in [
        ("tap-twice", "Charged once: 79.98"),
        ("lose-the-answer", "Charged once: 79.98"),
        ("change-the-amount", "Charged once: 79.98"),
        ("kill-the-gateway", "Charged once. Onlyonce cannot know that"),
        ("cut-the-bank", "Charged once. Onlyonce cannot know that"),
    ] {
        play(&browser, scene).await;
        browser.until(&shows("#without .verdict", "Charged 2 times for one order")).await;
        browser.until(&shows("#with .verdict", with)).await;
    }
    browser.until(&shows("#without .sum", "10 charges for 5 orders")).await;
    browser.until(&shows("#with .sum", "5 charges for 5 orders")).await;

    // The ledgers are what the bank holds, not what the page has drawn.
    browser.go(&stage).await;
    browser.until(&shows("#without .sum", "10 charges for 5 orders")).await;
    browser.until(&shows("#with .sum", "5 charges for 5 orders")).await;
    browser.until(&shows("#with .verdict", "The outcome of order-5 is unknown")).await;

    // Nobody has settled it: the customer who asks again is told the same.
    play(&browser, "ask-again").await;
    browser.until(&shows("#with .ways", "Its outcome is unknown")).await;
    browser.until(&shows("#with .sum", "5 charges for 5 orders")).await;
}

/// Plays a scene to its end.
pub(crate) async fn play(browser: &Browser, scene: &str) {
    browser.run("document.getElementById('status').textContent = ''").await;
    browser.click(&format!("[data-scene={scene}]")).await;
    browser.until(&shows("#status", "Done")).await;
}

/// Whether an element that is seen has this in its text.
pub(crate) fn shows(selector: &str, text: &str) -> String {
    let element = format!("document.querySelector({})", json!(selector));
    format!(
        "({element}?.checkVisibility() && {element}.innerText.replace(/\\s+/g, ' ').includes({}))",
        json!(text)
    )
}
