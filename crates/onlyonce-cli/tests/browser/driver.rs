//! A browser, driven over the plain HTTP of WebDriver.

use std::io::BufReader;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use onlyonce::client::{Client, Retries, SendOutcome};
use serde_json::{Value, json};

use crate::demo::line_with;

/// chromedriver, which is asked over HTTP.
pub(crate) struct Driver {
    url: String,
    process: Child,
    _stdout: BufReader<ChildStdout>,
}

impl Driver {
    /// `None` if it is not installed.
    pub(crate) fn start() -> Option<Self> {
        let is_there = |program| {
            Command::new(program)
                .arg("--version")
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
        };
        if is_there("chromium").is_err() || is_there("chromedriver").is_err() {
            return None;
        }
        let mut process = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        let ready = line_with(&mut stdout, "successfully on port");
        let port = ready.trim_end_matches('.').rsplit(' ').next().unwrap();
        Some(Self { url: format!("http://127.0.0.1:{port}"), process, _stdout: stdout })
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// Opens a browser, does `work` with it, and closes it also when the work fails.
pub(crate) async fn in_browser<F>(work: impl FnOnce(Browser) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let Some(driver) = Driver::start() else {
        println!("SKIPPED: chromium and chromedriver are not installed, so no browser was tried");
        return;
    };
    let browser = Browser::open(&driver).await;
    let done = tokio::spawn(work(browser.clone())).await;
    browser.close().await;
    done.unwrap();
}

/// One session, which begins with one tab. Its tabs share what the browser keeps.
#[derive(Clone)]
pub(crate) struct Browser {
    session: String,
}

impl Browser {
    pub(crate) async fn open(driver: &Driver) -> Self {
        Self::open_with(driver, json!({})).await
    }

    pub(crate) async fn open_with(driver: &Driver, preferences: Value) -> Self {
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-proxy-server",
            // A name that no browser trusts as it trusts its own machine.
            "--host-resolver-rules=MAP shop.test 127.0.0.1",
        ];
        let options = json!({ "args": arguments, "prefs": preferences });
        let logs = json!({ "browser": "ALL", "performance": "ALL" });
        let wanted = json!({ "alwaysMatch": { "browserName": "chrome", "goog:chromeOptions": options,
            "goog:loggingPrefs": logs } });
        let url = format!("{}/session", driver.url);
        let made = ask(http::Method::POST, &url, Some(json!({ "capabilities": wanted }))).await;
        let id = made["value"]["sessionId"].as_str().unwrap();
        Self { session: format!("{url}/{id}") }
    }

    pub(crate) async fn go(&self, url: &str) {
        self.post("url", json!({ "url": url })).await;
    }

    /// The tab that is turned to.
    pub(crate) async fn tab(&self) -> Value {
        get(&format!("{}/window", self.session)).await["value"].clone()
    }

    /// Opens a tab beside the one that is turned to.
    pub(crate) async fn new_tab(&self) -> Value {
        self.post("window/new", json!({ "type": "tab" })).await["value"]["handle"].clone()
    }

    pub(crate) async fn turn_to(&self, tab: &Value) {
        self.post("window", json!({ "handle": tab })).await;
    }

    pub(crate) async fn run(&self, script: &str) -> Value {
        let answer = self.post("execute/sync", json!({ "script": script, "args": [] })).await;
        answer["value"].clone()
    }

    pub(crate) async fn until_outcome(&self, text: &str) {
        let shown = "document.getElementById('outcome').textContent";
        self.until(&format!("{shown}.includes({})", json!(text))).await;
    }

    pub(crate) async fn until(&self, condition: &str) {
        let waited = tokio::time::timeout(PATIENCE, async {
            while self.run(&format!("return {condition}")).await != true {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        if waited.await.is_err() {
            let page = self.run("return document.body.innerText").await;
            panic!("waited in vain for {condition}; the page says {page}");
        }
    }

    /// Types these characters, one after the other, into whatever has the focus.
    pub(crate) async fn keys(&self, text: &str) {
        let key = |kind: &str, key: char| json!({ "type": kind, "value": key.to_string() });
        let strokes: Vec<_> =
            text.chars().flat_map(|one| [key("keyDown", one), key("keyUp", one)]).collect();
        let keyboard = json!({ "type": "key", "id": "keyboard", "actions": strokes });
        self.post("actions", json!({ "actions": [keyboard] })).await;
    }

    /// Clicks once it is there and not disabled.
    pub(crate) async fn click(&self, selector: &str) {
        let found = format!("document.querySelector({})", json!(selector));
        self.until(&format!("{found} !== null && !{found}.disabled")).await;
        self.run(&format!("{found}.click()")).await;
    }

    /// Whatever the browser has logged since it was last asked.
    pub(crate) async fn log(&self, kind: &str) -> Vec<Value> {
        let told = self.post("se/log", json!({ "type": kind })).await;
        told["value"].as_array().unwrap().clone()
    }

    /// The addresses that were asked since the log was last read.
    pub(crate) async fn requested(&self) -> Vec<String> {
        let entries = self.log("performance").await.into_iter();
        let messages = entries.map(|entry| -> Value {
            serde_json::from_str(entry["message"].as_str().unwrap()).unwrap()
        });
        let sent = messages.filter(|it| it["message"]["method"] == "Network.requestWillBeSent");
        sent.map(|it| it["message"]["params"]["request"]["url"].as_str().unwrap().to_owned())
            .collect()
    }

    pub(crate) async fn close(&self) {
        ask(http::Method::DELETE, &self.session, None).await;
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Value {
        ask(http::Method::POST, &format!("{}/{path}", self.session), Some(body)).await
    }
}

/// Nothing that the test waits for takes longer, on whatever machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) async fn get(url: &str) -> Value {
    ask(http::Method::GET, url, None).await
}

/// One request, of which an answer in JSON is expected.
pub(crate) async fn ask(method: http::Method, url: &str, body: Option<Value>) -> Value {
    let client = Client::new().with_retries(Retries::new().with_attempt_timeout(PATIENCE));
    let request = client.request(method, url);
    let end = match body {
        Some(body) => request.json(&body).send().await.unwrap(),
        None => request.send().await.unwrap(),
    };
    let SendOutcome::Fresh(answer) = end else { panic!("{url}: {end:?}") };
    answer.json().unwrap()
}
