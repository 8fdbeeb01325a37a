//! The payment form: Pay is clicked twice, and the network is cut in between.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use serde_json::json;

use crate::cable::Cable;
use crate::demo::Demo;
use crate::driver::{Browser, Driver, get};

// R149, R162; threat G22
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_double_click_with_the_network_cut_in_between_pays_once() {
    let Some(driver) = Driver::start() else {
        println!("SKIPPED: chromium and chromedriver are not installed, so no browser was tried");
        return;
    };
    let demo = Demo::start();
    let cable = Cable::lay(demo.gateway).await;
    let browser = Browser::open(&driver).await;
    // In a task of its own, so that the browser is closed also when it fails.
    let told = tokio::spawn(double_click(browser.clone(), demo.gateway, cable)).await;
    browser.close().await;
    told.unwrap();
}

// R149, R162; threats K6, K12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_after_a_lost_answer_keeps_the_key() {
    let Some(driver) = Driver::start() else {
        println!("SKIPPED: chromium and chromedriver are not installed, so no browser was tried");
        return;
    };
    let demo = Demo::start();
    let cable = Cable::lay(demo.gateway).await;
    let browser = Browser::open(&driver).await;
    let told = tokio::spawn(refused_in_doubt(browser.clone(), demo.gateway, cable)).await;
    browser.close().await;
    told.unwrap();
}

async fn refused_in_doubt(browser: Browser, gateway: SocketAddr, cable: Cable) {
    browser.go(&format!("http://{}/", cable.address)).await;
    let pay = "document.getElementById('button').click()";

    // Without a doubt a refusal is the end of the operation.
    cable.refuse(
        "HTTP/1.1 402 Payment Required\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}",
    );
    browser.run(pay).await;
    browser.until_outcome("Refused").await;

    // But not one that no service keeps: the browser may have sent the request before, on a connection that was reset.
    for refusal in [
        "HTTP/1.1 401 Unauthorized\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}",
        "HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}",
        "HTTP/1.1 408 Request Timeout\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}",
        "HTTP/1.1 400 Bad Request\r\ncontent-length: 17\r\nconnection: close\r\n\r\n{\"retry\":\"never\"}",
    ] {
        browser.run("localStorage.clear(); mine = undefined; outcome.textContent = ''").await;
        cable.refuse(refusal);
        browser.run(pay).await;
        browser.until_outcome("same key").await;
        browser.until("Object.keys(localStorage).some((name) => name.startsWith('open '))").await;
    }

    // The bank charges, the answer is lost, and then a proxy on the way refuses, in one way after the other.
    cable.carry_on();
    cable.lose_answers.store(true, Ordering::SeqCst);
    browser.run(pay).await;
    browser.until_outcome("No answer").await;
    for refusal in [
        "HTTP/1.1 401 Unauthorized\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}",
        "HTTP/1.1 404 Not Found\r\ncontent-length: 9\r\nconnection: close\r\n\r\n<h1></h1>",
        "HTTP/1.1 302 Found\r\nlocation: /login\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
        "HTTP/1.1 307 Temporary Redirect\r\nlocation: /charges?moved\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
    ] {
        cable.refuse(refusal);
        browser.run("document.getElementById('outcome').textContent = ''").await;
        browser.run(pay).await;
        browser.until_outcome("same key").await;
    }

    cable.lose_answers.store(false, Ordering::SeqCst);
    cable.carry_on();
    browser.run(pay).await;
    let again = "if (outcome.textContent.includes('Not known')) button.click()";
    browser.until(&format!("(() => {{ {again}; return {REPLAYED} }})()")).await;
    assert_eq!(charges_of(gateway, "you").await, 1);
}

// R161; threat K6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_tells_what_the_record_says() {
    let Some(driver) = Driver::start() else {
        println!("SKIPPED: chromium and chromedriver are not installed, so no browser was tried");
        return;
    };
    let demo = Demo::start();
    let cable = Cable::lay(demo.gateway).await;
    let browser = Browser::open(&driver).await;
    let told = tokio::spawn(of_record(browser.clone(), cable)).await;
    browser.close().await;
    told.unwrap();
}

async fn of_record(browser: Browser, cable: Cable) {
    browser.go(&format!("http://{}/", cable.address)).await;
    let pay = "document.getElementById('button').click()";
    let is_open = "return localStorage.length";

    cable.refuse(
        "HTTP/1.1 409 Conflict\r\ncontent-length: 32\r\nconnection: close\r\n\r\n{\"detail\":\"an operator decides\"}",
    );
    browser.run(pay).await;
    browser.until_outcome("an operator decides").await;
    assert_eq!(browser.run(is_open).await, 1);

    cable.refuse(
        "HTTP/1.1 410 Gone\r\ncontent-length: 24\r\nconnection: close\r\n\r\n{\"original_status\": 500}",
    );
    browser.run(pay).await;
    browser.until_outcome("Not known yet (410)").await;
    assert_eq!(browser.run(is_open).await, 1);

    cable.refuse(
        "HTTP/1.1 410 Gone\r\ncontent-length: 24\r\nconnection: close\r\n\r\n{\"original_status\": 201}",
    );
    browser.run(pay).await;
    browser.until_outcome("Paid: the receipt was not kept").await;
    assert_eq!(browser.run(is_open).await, 0);
}

// R149, R151; threats G22, J1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_tabs_that_share_a_payment_pay_once() {
    let Some(driver) = Driver::start() else {
        println!("SKIPPED: chromium and chromedriver are not installed, so no browser was tried");
        return;
    };
    let demo = Demo::start();
    let cable = Cable::lay(demo.gateway).await;
    let browser = Browser::open(&driver).await;
    let told = tokio::spawn(two_tabs(browser.clone(), demo.gateway, cable)).await;
    browser.close().await;
    told.unwrap();
}

async fn two_tabs(browser: Browser, gateway: SocketAddr, cable: Cable) {
    let page = format!("http://{}/", cable.address);
    let pay = "document.getElementById('button').click()";
    let first = browser.tab().await;
    browser.go(&page).await;
    let second = browser.new_tab().await;

    // The first tab has paid, and its answer is on the way.
    let hold = "const send = fetch; fetch = (...asked) => send(...asked).then((answer) =>
        new Promise((arrive) => { window.arrive = () => arrive(answer) }))";
    browser.run(hold).await;
    browser.run(pay).await;
    browser.until("window.arrive !== undefined").await;

    // The second taps meanwhile, and is told to wait.
    browser.turn_to(&second).await;
    browser.go(&page).await;
    cable.refuse("HTTP/1.1 409 Conflict\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}");
    browser.run(pay).await;
    browser.until_outcome("Not known yet (409)").await;
    cable.carry_on();

    browser.turn_to(&first).await;
    browser.run("window.arrive()").await;
    browser.until_outcome("Paid: ch_").await;

    // The second still asks about the payment that it was told of, whatever the first has settled.
    browser.turn_to(&second).await;
    browser.run(pay).await;
    browser.until_outcome("Paid: ch_").await;
    assert_eq!(charges_of(gateway, "you").await, 1);
    assert_eq!(browser.run(&format!("return {REPLAYED}")).await, true);

    // Nothing is left open: the next tap, in whichever tab, is a new payment.
    browser.run(pay).await;
    browser.until(NEWLY_PAID).await;
    assert_eq!(charges_of(gateway, "you").await, 2);
    assert_eq!(browser.run("return localStorage.length").await, 0);
}

// R149; threat J1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_browser_that_keeps_nothing_pays_once_while_the_page_is_open() {
    let Some(driver) = Driver::start() else {
        println!("SKIPPED: chromium and chromedriver are not installed, so no browser was tried");
        return;
    };
    let demo = Demo::start();
    let cable = Cable::lay(demo.gateway).await;
    let nothing_kept = json!({ "profile.default_content_setting_values.cookies": 2 });
    let browser = Browser::open_with(&driver, nothing_kept).await;
    let told = tokio::spawn(without_storage(browser.clone(), demo.gateway, cable)).await;
    browser.close().await;
    told.unwrap();
}

async fn without_storage(browser: Browser, gateway: SocketAddr, cable: Cable) {
    let page = format!("http://{}/", cable.address);
    browser.go(&page).await;
    let throws = "try { localStorage.length; return false } catch { return true }";
    assert_eq!(browser.run(throws).await, true);
    let text = browser.run("return document.body.innerText").await;
    assert!(!text.as_str().unwrap().contains("the key is kept"), "{text}");

    cable.lose_answers.store(true, Ordering::SeqCst);
    browser.run("document.getElementById('button').click()").await;
    browser.until_outcome("No answer").await;
    cable.lose_answers.store(false, Ordering::SeqCst);
    browser.run("document.getElementById('button').click()").await;
    let again = "if (outcome.textContent.includes('Not known')) button.click()";
    browser.until(&format!("(() => {{ {again}; return {REPLAYED} }})()")).await;
    assert_eq!(browser.run("return location.href").await, page.as_str());
    assert_eq!(charges_of(gateway, "you").await, 1);
    assert_eq!(cable.keys.lock().unwrap().len(), 1);

    // A form that the script does not hold back sends no payment: it would have no key.
    browser.run("document.getElementById('pay').submit()").await;
    browser.until("location.search !== ''").await;
    assert_eq!(charges_of(gateway, "you").await, 1);
}

// R150: without HTTPS a browser has no `crypto.randomUUID`, but for its own machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_pays_over_plain_http_from_another_host() {
    let Some(driver) = Driver::start() else {
        println!("SKIPPED: chromium and chromedriver are not installed, so no browser was tried");
        return;
    };
    let demo = Demo::start();
    let cable = Cable::lay(demo.gateway).await;
    let browser = Browser::open(&driver).await;
    let told = tokio::spawn(insecure(browser.clone(), cable)).await;
    browser.close().await;
    told.unwrap();
}

async fn insecure(browser: Browser, cable: Cable) {
    browser.go(&format!("http://shop.test:{}/", cable.address.port())).await;
    assert_eq!(browser.run("return isSecureContext").await, false);
    browser.run("document.getElementById('button').click()").await;
    browser.until_outcome("Paid: ch_").await;
    let keys = cable.keys.lock().unwrap().clone();
    assert!(keys.iter().all(|key| key.len() >= 32), "{keys:?}");
}

async fn double_click(browser: Browser, gateway: SocketAddr, cable: Cable) {
    browser.go(&format!("http://{}/", cable.address)).await;

    // The request gets through, its answer does not.
    cable.lose_answers.store(true, Ordering::SeqCst);
    browser.run("const b = document.getElementById('button'); b.click(); b.click()").await;
    browser.until_outcome("No answer").await;
    // Browsers send a POST again by themselves when a connection that was idle is cut: with the same key.
    assert_eq!(cable.keys.lock().unwrap().len(), 1, "the second click was an operation of its own");

    // The page is loaded anew, and still knows its key.
    cable.lose_answers.store(false, Ordering::SeqCst);
    browser.go(&format!("http://{}/", cable.address)).await;
    browser.until_outcome("same key").await;
    browser.run("document.getElementById('button').click()").await;
    // The bank may still be at work on the first.
    let again = "if (outcome.textContent.includes('Not known')) button.click()";
    browser.until(&format!("(() => {{ {again}; return {REPLAYED} }})()")).await;
    assert_eq!(charges_of(gateway, "you").await, 1);

    // A new tap is a new operation.
    browser.run("document.getElementById('button').click()").await;
    browser.until(NEWLY_PAID).await;
    assert_eq!(charges_of(gateway, "you").await, 2);
}

const REPLAYED: &str = "outcome.textContent.includes('as answered the first time')";
const NEWLY_PAID: &str =
    "document.getElementById('outcome').textContent.match(/^Paid: ch_[0-9]+$/) !== null";

async fn charges_of(gateway: SocketAddr, customer: &str) -> usize {
    let charges = get(&format!("http://{gateway}/charges")).await;
    charges.as_array().unwrap().iter().filter(|charge| charge["customer"] == customer).count()
}
