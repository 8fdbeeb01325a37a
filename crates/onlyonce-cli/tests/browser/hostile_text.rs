//! Two hundred texts that want to be markup, as keys, routes, headers, bodies and reasons. They stay text.

use std::fmt::Write as _;

use serde_json::json;

use crate::driver::{Browser, ask, get, in_browser};
use crate::served::{Served, send};
use crate::shop_window::shows;

// threat G18
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_text_that_looks_like_markup_stays_text_everywhere() {
    // Some of them are paths that a service could read in another way.
    let policy = "[policy]\npaths = \"literal\"\n".to_owned();
    let routes = texts().fold(policy, |mut routes, text| {
        writeln!(routes, "[[route]]\nmatch = \"POST /{}\"", encoded(text)).unwrap();
        routes
    });
    let served = Served::start("", &routes).await;
    for text in texts() {
        let key = text.replace('\\', "\\\\").replace('"', "\\\"");
        let headers =
            format!("idempotency-key: \"{key}\"\r\ncontent-type: text/html\r\nx-say: {text}\r\n");
        let answer = send(&served.gateway, &format!("/{}", encoded(text)), &headers, text).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{text}: {answer}");
    }
    let (admin, gateway) = (served.admin.clone(), served.gateway.clone());
    in_browser(async move |browser| shown_as_text(browser, &admin, &gateway).await).await;
    drop(served);
}

async fn shown_as_text(browser: Browser, admin: &str, gateway: &str) {
    control(&browser, gateway).await;
    browser.go(&format!("{admin}#/operations")).await;
    browser.until(&shows(".list .found", "operations")).await;
    while browser.run(&format!("return {}", shows(".list > button", "Show more"))).await == true {
        browser.click(".list > button").await;
        browser.until("!document.querySelector('.list > button').disabled").await;
    }
    let keys = browser
        .run("return [...document.querySelectorAll('.list .key')].map((one) => one.textContent)")
        .await;
    for text in texts() {
        assert!(keys.as_array().unwrap().contains(&json!(text)), "{text} is not in the list");
    }
    unharmed(&browser).await;
    for text in texts() {
        one(&browser, admin, text).await;
    }
    browser.run("location.hash = '#/'").await;
    browser.until("document.querySelector('.overview') !== null").await;
    unharmed(&browser).await;
}

/// Found by its key, looked at, and forgotten with the text as the reason.
async fn one(browser: &Browser, admin: &str, text: &str) {
    let query: String = form_urlencoded::byte_serialize(text.as_bytes()).collect();
    let found = get(&format!("{admin}api/v1/operations?key={query}")).await;
    let id = found["operations"][0]["id"]
        .as_str()
        .unwrap_or_else(|| panic!("{text}: {found}"))
        .to_owned();
    browser.run(&format!("location.hash = '#/operation/{id}'")).await;
    let shown = format!(
        "((text) => ['.operation .key-whole', '.operation pre.body'].every((place) =>
            document.querySelector(place)?.textContent === text) &&
            [...document.querySelectorAll('.headers dd')].some((one) => one.textContent === text))({})",
        json!(text)
    );
    browser.until(&shown).await;
    let by = json!({ "reason": text, "who": text });
    ask(http::Method::POST, &format!("{admin}api/v1/operations/{id}/forget"), Some(by)).await;
    unharmed(browser).await;
}

/// No script ran, and nothing in the page came from markup: no handler, no frame, no script, no picture.
async fn unharmed(browser: &Browser) {
    let foreign = "[...document.body.querySelectorAll('*')].filter((one) => !one.matches('header.top img') &&
        (one.matches('script, iframe, object, embed, img, video, audio, base, meta, link, style') ||
        [...one.attributes].some(({ name }) => name.startsWith('on')))).map((one) => one.outerHTML)";
    let told = browser.run(&format!("return [typeof window.pwned, ({foreign}).join()]")).await;
    assert_eq!(told, json!(["undefined", ""]));
}

/// The same search finds what a page shows that does make markup of a text.
async fn control(browser: &Browser, gateway: &str) {
    browser.go(&format!("http://{gateway}/")).await;
    browser.run(&format!("document.body.innerHTML = {}", json!(texts().next().unwrap()))).await;
    browser.until("window.pwned === 1").await;
}

fn texts() -> impl Iterator<Item = &'static str> {
    let texts = include_str!("markup.txt");
    assert_eq!(texts.lines().count(), 200);
    texts.lines()
}

/// As a path: everything but letters and digits is encoded.
fn encoded(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}
