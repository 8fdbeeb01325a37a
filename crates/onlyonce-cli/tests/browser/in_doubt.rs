//! What the operator's page says when an answer is missing, and what it shows of a long past.

use std::sync::atomic::Ordering;

use crate::cable::Cable;
use crate::driver::{Browser, in_browser};
use crate::operator_page::fill;
use crate::served::{Served, send};
use crate::shop_window::shows;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_without_an_answer_is_told_as_not_known() {
    let served = Served::start("", "").await;
    send(&served.gateway, "/charges", "idempotency-key: order-1\r\n", "79.98").await;
    let admin = served.admin.trim_start_matches("http://").trim_end_matches('/');
    let cable = Cable::lay(admin.parse().unwrap()).await;
    in_browser(async move |browser| forget(browser, cable).await).await;
    drop(served);
}

async fn forget(browser: Browser, cable: Cable) {
    browser.go(&format!("http://{}/#/operations?key=order-1", cable.address)).await;
    browser.click(".list .key").await;
    browser.click("#act-forget").await;
    browser.until(&shows("dialog", "no audit trail is kept")).await;
    fill(&browser, "#a-reason", "a test of the shop").await;

    // The detail of the API stands alone.
    cable.refuse(REFUSAL);
    browser.click("dialog button[type=submit]").await;
    browser.until(&shows("dialog .notice", "The store is away. Look before you repeat it.")).await;
    let paragraphs = "return document.querySelectorAll('dialog .notice p').length";
    assert_eq!(browser.run(paragraphs).await, 1);

    // A proxy that says nothing of the change.
    cable.refuse("HTTP/1.1 504 Gateway Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    browser.click("dialog button[type=submit]").await;
    browser.until(&shows("dialog .notice", "The answer was 504")).await;
    browser.until(&shows("dialog .notice", NOT_KNOWN)).await;

    cable.carry_on();
    cable.lose_answers.store(true, Ordering::SeqCst);
    browser.click("dialog button[type=submit]").await;
    browser.until(&shows("dialog .notice", "The gateway does not answer")).await;
    browser.until(&shows("dialog .notice", NOT_KNOWN)).await;
    cable.lose_answers.store(false, Ordering::SeqCst);
    browser.click("dialog button[type=submit]").await;
    browser.until(&shows("dialog .notice", "There is no operation with this id")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_looks_like_an_id_is_found() {
    let served = Served::start("", "").await;
    let headers = format!("idempotency-key: {UUID}\r\n");
    send(&served.gateway, "/charges", &headers, "79.98").await;
    let admin = served.admin.clone();
    in_browser(async move |browser| find(browser, &admin).await).await;
    drop(served);
}

async fn find(browser: Browser, admin: &str) {
    browser.go(admin).await;
    search(&browser, UUID).await;
    browser.until(&shows(".list .key", UUID)).await;
    browser.click(".list .key").await;
    browser.until(&shows(".verdict-key", UUID)).await;
    let id = browser.run("return location.hash.split('/').pop()").await;
    browser.run("location.hash = '#/'").await;
    search(&browser, id.as_str().unwrap()).await;
    browser.until(&shows(".verdict-key", UUID)).await;
}

async fn search(browser: &Browser, text: &str) {
    fill(browser, "#find-text", text).await;
    browser.run("document.getElementById('find').requestSubmit()").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_newest_events_of_a_long_trail_come_first() {
    let served = Served::start("", "[audit]\nkeep = \"1d\"").await;
    for _ in 0..REPLAYS {
        send(&served.gateway, "/charges", "idempotency-key: hot\r\n", "1").await;
    }
    send(&served.gateway, "/charges", "idempotency-key: last\r\n", "2").await;
    let admin = served.admin.clone();
    in_browser(async move |browser| newest(browser, &admin).await).await;
    drop(served);
}

async fn newest(browser: Browser, admin: &str) {
    browser.go(&format!("{admin}#/events")).await;
    browser.until(&shows(".found", "newest first, from the audit trail since")).await;
    browser.until(&shows(".timeline li:first-child[data-kind=executed]", "Executed")).await;
    let shown = "document.querySelectorAll('.timeline li').length";
    let before = browser.run(&format!("return {shown}")).await;
    assert!(before.as_u64().unwrap() >= 200, "{before}");

    // The first one is found, however far back.
    while browser.run(&format!("return {}", shows(".list > button", "Search older"))).await == true
    {
        browser.click(".list > button").await;
        browser.until("!document.querySelector('.list > button').disabled").await;
    }
    browser.until(&shows(".found", "from the whole audit trail")).await;
    assert_eq!(browser.run(&format!("return {shown}")).await, REPLAYS + 3);
    let last = "document.querySelector('.timeline li:last-child').dataset.kind === 'claimed'";
    browser.until(last).await;
}

/// More than two pages of the API.
const REPLAYS: usize = 450;
const UUID: &str = "0f9b1c2d3e4f5a6b7c8d9e0f1a2b3c4d";
const NOT_KNOWN: &str = "It is not known whether the change was made. Look before you repeat it.";
const REFUSAL: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\n\
    connection: close\r\ncontent-length: 87\r\n\r\n\
    {\"title\":\"Service Unavailable\",\"detail\":\"the store is away. Look before you repeat it\"}";
