//! A gateway with tokens: the page asks for one, and a caller who may only look sees why the buttons are off.

use crate::driver::{Browser, in_browser};
use crate::operator_page::fill;
use crate::served::{OPERATOR, READER, Served, send};
use crate::shop_window::shows;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_asks_for_a_token_and_a_reader_may_only_look() {
    let served = Served::start("token = \"env:OPERATOR\"\nread_token = \"env:READER\"", "").await;
    send(&served.gateway, "/charges", "idempotency-key: order-1\r\n", "79.98").await;
    let admin = served.admin.clone();
    in_browser(async move |browser| tokens(browser, &admin).await).await;
    drop(served);
}

async fn tokens(browser: Browser, admin: &str) {
    browser.go(&format!("{admin}#/operations?key=order-1")).await;
    browser.until(&shows("dialog", "asks for a token")).await;
    give(&browser, "a-wrong-one").await;
    browser.until(&shows("dialog", "The last token was refused")).await;
    give(&browser, READER).await;
    browser.until(&shows(".list .key", "order-1")).await;
    browser.until(&shows("#act-hint", "This token may look, not change.")).await;
    browser.click(".list .key").await;
    browser.until(&shows("#why-forget", "This token may look, not change.")).await;
    assert_eq!(browser.run("return document.getElementById('act-forget').disabled").await, true);

    // Kept for the tab, and for nothing else.
    let kept = "return [sessionStorage.length > 0, localStorage.length, document.cookie]";
    assert_eq!(browser.run(kept).await, serde_json::json!([true, 0, ""]));
    browser.go(&format!("{admin}#/")).await;
    browser.until(&shows("#foot", "read-only")).await;

    browser.run("sessionStorage.clear(); location.reload()").await;
    browser.until(&shows("dialog", "asks for a token")).await;
    give(&browser, OPERATOR).await;
    browser.until(&shows("#foot", "may change operations")).await;
}

async fn give(browser: &Browser, token: &str) {
    fill(browser, "#token", token).await;
    browser.click("dialog button[type=submit]").await;
}
