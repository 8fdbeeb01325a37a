//! The operator's page: see it, find it, settle it.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::demo::Demo;
use crate::driver::{Browser, get, in_browser};
use crate::served::{Served, send};
use crate::shop_window::{play, shows};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_outcome_is_settled_with_a_reason_and_the_retry_gets_that_answer() {
    let demo = Demo::start();
    let (stage, admin, gateway) =
        (demo.stage.clone(), demo.admin.clone(), demo.gateway.to_string());
    in_browser(async move |browser| settle(browser, &stage, &admin, &gateway).await).await;
}

async fn settle(browser: Browser, stage: &str, admin: &str, gateway: &str) {
    browser.go(stage).await;
    play(&browser, "cut-the-bank").await;
    browser.requested().await;

    // The counters move by themselves.
    browser.go(admin).await;
    browser.until(&shows(".tile:nth-child(1)", "2")).await;
    browser.until(&shows("#live", "Live")).await;
    let executed = "Number(document.querySelector('.tile:nth-child(4) .big').textContent)";
    let before = browser.run(&format!("window.isSamePage = true; return {executed}")).await;
    send(gateway, "/charges", "idempotency-key: moves-the-counter\r\n", CHARGE).await;
    browser.until(&format!("window.isSamePage && {executed} > {before}")).await;

    // Found by its key, and shown with a verdict before anything else.
    browser.keys("/").await;
    browser.keys(&format!("order-1-checkout-attempt{ENTER}")).await;
    browser.until(&shows(".list .key", "order-1-checkout-attempt")).await;
    browser.click(".list .key").await;
    browser.until("document.querySelector('.verdict')?.dataset.state === 'unknown'").await;
    browser.until(&shows(".checks", "")).await;
    browser.until(&shows("#why-forget .why-not", "It may have been executed")).await;
    assert_eq!(browser.run("return document.getElementById('act-forget').disabled").await, true);

    browser.click("#act-settle").await;
    fill(&browser, "#a-reason", "found in the bank's ledger").await;
    fill(&browser, "#a-who", "ann").await;
    nothing_is_preset(&browser).await;
    fill(&browser, "#a-body", r#"{"id":"ch_found_at_the_bank"}"#).await;
    browser.click("dialog button[type=submit]").await;
    browser.until("document.querySelector('.verdict')?.dataset.state === 'completed'").await;
    browser.until(&shows(".timeline [data-kind=settled]", "ann: found in the bank's ledger")).await;
    browser.until(&shows(".answer pre", "ch_found_at_the_bank")).await;
    in_the_audit_trail(&browser, admin).await;
    only_asks(&browser, admin).await;

    browser.go(stage).await;
    play(&browser, "ask-again").await;
    browser.until(&shows("#with .ways", "201 ch_found_at_the_bank")).await;
}

/// One click more, and an empty 201 would be the answer of every retry: what happened, the status and an empty body are each
/// said by somebody.
async fn nothing_is_preset(browser: &Browser) {
    let is_refused = "const form = document.querySelector('dialog form'); \
                      document.querySelector('dialog button[type=submit]').click(); \
                      return !form.checkValidity() && document.querySelector('dialog') !== null";
    assert_eq!(browser.run(is_refused).await, true, "no outcome was chosen");
    browser.run("document.getElementById('a-done').click()").await;
    assert_eq!(browser.run(is_refused).await, true, "no status was given");
    fill(browser, "#a-status", "201").await;
    assert_eq!(browser.run(is_refused).await, true, "the empty body was not confirmed");
    let is_valid = "document.getElementById('a-bodyless').click(); \
                    return document.querySelector('dialog form').checkValidity()";
    assert_eq!(browser.run(is_valid).await, true, "it is confirmed");
}

/// Where there is a trail, the change is in it.
async fn in_the_audit_trail(browser: &Browser, admin: &str) {
    if get(&format!("{admin}api/v1/summary")).await["audit"].is_null() {
        return;
    }
    browser.run("location.hash = '#/events?kind=settled'").await;
    browser.until(&shows(".timeline [data-kind=settled]", "found in the bank's ledger")).await;
    browser.until(&shows(".timeline [data-kind=settled] .when", "audit entry")).await;
}

/// Nothing that the page loaded or asked for lies elsewhere, and the browser had nothing to complain of.
async fn only_asks(browser: &Browser, admin: &str) {
    let requested = browser.requested().await;
    assert!(requested.iter().any(|url| url.contains("/api/v1/summary")), "{requested:?}");
    for url in requested {
        assert!(url.starts_with(admin), "the page asked {url}");
    }
    let severe = |entry: &Value| entry["level"] == "SEVERE";
    let complaints: Vec<_> = browser.log("browser").await.into_iter().filter(severe).collect();
    assert!(complaints.is_empty(), "{complaints:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_are_released_by_filter_after_a_dry_run_and_a_typed_number() {
    let demo = Demo::start();
    let (admin, gateway) = (demo.admin.clone(), demo.gateway.to_string());
    in_browser(async move |browser| release_many(browser, &admin, &gateway).await).await;
}

async fn release_many(browser: Browser, admin: &str, gateway: &str) {
    make_unknown(gateway, MANY).await;
    browser.go(&format!("{admin}#/operations?state=unknown&key_prefix=lost-")).await;
    browser.until(&shows(".found", "50")).await;
    browser
        .until("[...document.querySelectorAll('.bar button')].every((one) => !one.disabled)")
        .await;
    browser.click(".bar button.primary").await;
    browser.until("document.getElementById('b-action') !== null").await;
    let preset = "return document.getElementById('b-action').value";
    assert_eq!(browser.run(preset).await, "", "no action is preset");
    browser.run("const it = document.getElementById('b-action'); it.value = 'release'; it.dispatchEvent(new Event('change'))").await;
    fill(&browser, "#a-reason", "the bank was down and took nothing").await;
    browser.run("document.getElementById('b-force').checked = true").await;
    browser.click("dialog button[type=submit]").await;

    // The dry run tells the number and a sample of ten, and changes nothing.
    browser.until(&shows("dialog .dry", "500 of 500")).await;
    assert_eq!(
        browser.run("return document.querySelectorAll('dialog .sample-list li').length").await,
        10
    );
    assert_eq!(unknown(admin).await, MANY + 1);

    // Another number is not taken.
    fill(&browser, "#b-typed", "50").await;
    browser.click("dialog button[type=submit]").await;
    assert_eq!(
        browser.run("return document.getElementById('b-typed').checkValidity()").await,
        false
    );
    assert_eq!(unknown(admin).await, MANY + 1);
    fill(&browser, "#b-typed", "500").await;
    browser.click("dialog button[type=submit]").await;
    browser.until(&shows("dialog .dry", "Released: 500 operations")).await;
    assert_eq!(unknown(admin).await, 1, "Carol's is of another key");

    // A released operation is a new attempt for whoever asks again.
    let answer = send(gateway, "/charges", "idempotency-key: lost-7\r\n", CHARGE).await;
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
}

/// The bank charges, and resets the connection.
async fn make_unknown(gateway: &str, count: usize) {
    for batch in (0..count).collect::<Vec<_>>().chunks(AT_ONCE) {
        let sent = batch.iter().map(async |number| {
            let headers = format!("idempotency-key: lost-{number}\r\nx-cut: after-charge\r\n");
            let answer = send(gateway, "/charges", &headers, CHARGE).await;
            assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
        });
        join_all(sent).await;
    }
}

async fn unknown(admin: &str) -> usize {
    let summary = get(&format!("{admin}api/v1/operations?state=unknown&limit=200")).await;
    let mut count = summary["operations"].as_array().unwrap().len();
    let mut next = summary["next"].clone();
    while let Some(after) = next.as_str() {
        let page =
            get(&format!("{admin}api/v1/operations?state=unknown&limit=200&after={after}")).await;
        count += page["operations"].as_array().unwrap().len();
        next = page["next"].clone();
    }
    count
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_can_be_done_with_the_keyboard_alone() {
    let demo = Demo::start();
    let admin = demo.admin.clone();
    in_browser(async move |browser| keyboard(browser, &admin).await).await;
}

async fn keyboard(browser: Browser, admin: &str) {
    browser.go(admin).await;
    browser.until(&shows(".tile:nth-child(1)", "1")).await;
    browser.keys(TAB).await;
    assert_eq!(browser.run("return document.activeElement.id").await, "skip");
    browser.keys(ENTER).await;
    assert_eq!(browser.run("return document.activeElement.id").await, "main");

    browser.keys("/").await;
    browser.keys(&format!("carol-order-4712{ENTER}")).await;
    browser.until(&shows(".list .key", "carol-order-4712")).await;
    tab_to(&browser, "a.key").await;
    browser.keys(ENTER).await;
    browser.until("document.querySelector('.verdict')?.dataset.state === 'unknown'").await;

    // Escape changes nothing, and the focus is where it was.
    tab_to(&browser, "#act-settle").await;
    browser.keys(ENTER).await;
    browser.until("document.querySelector('dialog')?.contains(document.activeElement)").await;
    browser.keys(ESCAPE).await;
    browser.until("document.querySelector('dialog') === null").await;
    browser.until("document.activeElement.id === 'act-settle'").await;

    browser.keys(ENTER).await;
    tab_to(&browser, "#a-done").await;
    browser.keys(" ").await;
    tab_to(&browser, "#a-status").await;
    browser.keys("201").await;
    tab_to(&browser, "#a-body").await;
    browser.keys(r#"{"id":"ch_4"}"#).await;
    tab_to(&browser, "#a-reason").await;
    browser.keys("it is in the ledger").await;
    tab_to(&browser, "dialog button[type=submit]").await;
    browser.keys(ENTER).await;
    browser.until("document.querySelector('.verdict')?.dataset.state === 'completed'").await;
    browser.until(&shows(".timeline", "it is in the ledger")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_that_is_left_open_follows_the_clock() {
    let lost = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = lost.local_addr().unwrap();
    // Reads the request, and closes.
    std::thread::spawn(move || {
        for mut stream in lost.incoming().map_while(Result::ok) {
            let _ = std::io::Read::read(&mut stream, &mut [0; 4096]);
        }
    });
    let route = format!(
        "[[route]]\nmatch = \"POST /lost\"\nupstream = \"http://{address}\"\nlease = \"2s\"\nupstream_timeout = \"2s\"\n"
    );
    let served = Served::start("", &route).await;
    let answer = send(&served.gateway, "/lost", "idempotency-key: order-1\r\n", "79.98").await;
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    let admin = served.admin.clone();
    in_browser(async move |browser| follow_the_clock(browser, &admin).await).await;
    drop(served);
}

async fn follow_the_clock(browser: Browser, admin: &str) {
    let found = get(&format!("{admin}api/v1/operations?key=order-1")).await;
    let id = found["operations"][0]["id"].as_str().unwrap();
    browser.go(&format!("{admin}#/operation/{id}")).await;
    browser.until(&shows("#why-release", "You can force it")).await;
    let said = browser.run("return document.querySelector('.verdict h1').textContent").await;
    // Nothing happens to it but time.
    browser.until("!document.querySelector('#why-release').textContent.includes('force it')").await;
    browser.click("#act-release").await;
    browser.until("document.querySelector('dialog') !== null").await;
    assert_eq!(browser.run("return document.getElementById('a-force')").await, json!(null));
    browser.keys(ESCAPE).await;
    browser.until("document.querySelector('dialog') === null").await;
    let has_moved = format!("document.querySelector('.verdict h1').textContent !== {said}");
    browser.until(&has_moved).await;
}

/// Presses Tab until an element has the focus, and sees to it that the focus can be seen wherever it is.
async fn tab_to(browser: &Browser, selector: &str) {
    for _ in 0..TABS_MAX {
        browser.keys(TAB).await;
        let focused = "const it = document.activeElement, style = getComputedStyle(it);
            const isSeen = it === document.body || style.outlineStyle !== 'none' || style.boxShadow !== 'none';";
        let script =
            format!("{focused} return [it.matches({}), isSeen, it.outerHTML]", json!(selector));
        let told = browser.run(&script).await;
        assert_eq!(told[1], true, "the focus cannot be seen on {}", told[2]);
        if told[0] == true {
            return;
        }
    }
    panic!("no way to {selector} by Tab");
}

/// Writes a value into a field, as typing would.
pub(crate) async fn fill(browser: &Browser, selector: &str, text: &str) {
    browser.until(&format!("document.querySelector({}) !== null", json!(selector))).await;
    let script = format!(
        "const it = document.querySelector({}); it.value = {}; it.dispatchEvent(new Event('input', {{ bubbles: true }}))",
        json!(selector),
        json!(text)
    );
    browser.run(&script).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hidden_tab_is_paused_and_says_so() {
    let demo = Demo::start();
    let admin = demo.admin.clone();
    in_browser(async move |browser| hidden(browser, &admin).await).await;
}

async fn hidden(browser: Browser, admin: &str) {
    let first = browser.tab().await;
    browser.go(admin).await;
    browser.until(&shows("#live", "Live")).await;
    // Headless tabs are never hidden by another, so the page is told that it is.
    let hide = |is: bool| {
        format!(
            "Object.defineProperty(document, 'hidden', {{ value: {is}, configurable: true }});
             document.dispatchEvent(new Event('visibilitychange'))"
        )
    };
    browser.run(&hide(true)).await;
    browser.until(&shows("#live", "Paused")).await;
    browser.requested().await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(browser.requested().await, Vec::<String>::new(), "a hidden page asks for nothing");
    browser.run(&hide(false)).await;
    browser.until(&shows("#live", "Live")).await;
    browser.turn_to(&first).await;
}

const CHARGE: &str = r#"{"customer":"you","amount":100}"#;
const MANY: usize = 500;
const AT_ONCE: usize = 50;
const TABS_MAX: usize = 80;
const TAB: &str = "\u{e004}";
const ENTER: &str = "\u{e007}";
const ESCAPE: &str = "\u{e00c}";
