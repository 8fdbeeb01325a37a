//! The page of `onlyonce demo` in a real browser: Pay is clicked twice, and the network is cut in between.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onlyonce::client::{Client, Retries, SendOutcome};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

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

// R149, R162; threat J6
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
    cable.refuse("HTTP/1.1 401 Unauthorized\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}");
    browser.run(pay).await;
    browser.until_outcome("Refused").await;

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

// R161; threat J6
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

async fn get(url: &str) -> Value {
    ask(http::Method::GET, url, None).await
}

/// One request, of which an answer in JSON is expected.
async fn ask(method: http::Method, url: &str, body: Option<Value>) -> Value {
    let client = Client::new().with_retries(Retries::new().with_attempt_timeout(PATIENCE));
    let request = client.request(method, url);
    let end = match body {
        Some(body) => request.json(&body).send().await.unwrap(),
        None => request.send().await.unwrap(),
    };
    let SendOutcome::Fresh(answer) = end else { panic!("{url}: {end:?}") };
    answer.json().unwrap()
}

/// `onlyonce demo`, which is left running after its story.
struct Demo {
    gateway: SocketAddr,
    process: Child,
    /// One demo at a time: two that start at the same moment would share the usual port.
    _alone: std::fs::File,
    /// Kept open: a process whose output nobody reads any more dies of it.
    _stdout: BufReader<ChildStdout>,
}

impl Demo {
    fn start() -> Self {
        let alone = concat!(env!("CARGO_TARGET_TMPDIR"), "/demo.lock");
        let alone = std::fs::File::create(alone).unwrap();
        alone.lock().unwrap();
        let mut process = Command::new(env!("CARGO_BIN_EXE_onlyonce"))
            .arg("demo")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        let running = line_with(&mut stdout, "Still running");
        let address = running.split("http://").nth(1).unwrap().split(',').next().unwrap();
        let gateway = address.parse().unwrap();
        Self { gateway, process, _alone: alone, _stdout: stdout }
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// The first line that has this in it.
fn line_with(stdout: &mut impl BufRead, text: &str) -> String {
    let line = stdout.lines().map(Result::unwrap).find(|line| line.contains(text));
    line.unwrap_or_else(|| panic!("it ended without saying {text:?}"))
}

type Keys = Arc<Mutex<HashSet<String>>>;

/// What lies between browser and gateway, and can lose answers.
struct Cable {
    address: SocketAddr,
    lose_answers: Arc<AtomicBool>,
    /// What every connection is answered with, instead of being carried.
    refusal: Refusal,
    /// The keys of all charges that went through.
    keys: Keys,
}

type Refusal = Arc<Mutex<Option<&'static str>>>;

impl Cable {
    async fn lay(gateway: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (lose_answers, keys) = (Arc::<AtomicBool>::default(), Keys::default());
        let refusal = Refusal::default();
        let cable = Self {
            address,
            lose_answers: lose_answers.clone(),
            refusal: refusal.clone(),
            keys: keys.clone(),
        };
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let (lose_answers, refusal) = (lose_answers.clone(), refusal.clone());
                tokio::spawn(carry(near, gateway, lose_answers, refusal, keys.clone()));
            }
        });
        cable
    }

    fn refuse(&self, answer: &'static str) {
        *self.refusal.lock().unwrap() = Some(answer);
    }

    fn carry_on(&self) {
        *self.refusal.lock().unwrap() = None;
    }
}

/// Both ways, until an answer is to be lost: then the connection is cut instead.
async fn carry(
    mut near: TcpStream,
    gateway: SocketAddr,
    lose_answers: Arc<AtomicBool>,
    refusal: Refusal,
    keys: Keys,
) {
    let mut far = TcpStream::connect(gateway).await.unwrap();
    let (mut up, mut down) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
    loop {
        tokio::select! {
            read = near.read(&mut up) => {
                let Ok(length @ 1..) = read else { return };
                let refusal = *refusal.lock().unwrap();
                if let Some(refusal) = refusal {
                    let _ = near.write_all(refusal.as_bytes()).await;
                    let _ = near.shutdown().await;
                    return;
                }
                keys.lock().unwrap().extend(key(&up[..length]));
                far.write_all(&up[..length]).await.unwrap();
            }
            read = far.read(&mut down) => {
                let Ok(length @ 1..) = read else { return };
                if lose_answers.load(Ordering::SeqCst) || near.write_all(&down[..length]).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// The key of a request that begins here.
fn key(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes).to_ascii_lowercase();
    let (_, after) = text.split_once("idempotency-key: ")?;
    after.lines().next().map(str::to_owned)
}

/// chromedriver, which is asked over HTTP.
struct Driver {
    url: String,
    process: Child,
    _stdout: BufReader<ChildStdout>,
}

impl Driver {
    /// `None` if it is not installed.
    fn start() -> Option<Self> {
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

/// One session, which begins with one tab. Its tabs share what the browser keeps.
#[derive(Clone)]
struct Browser {
    session: String,
}

impl Browser {
    async fn open(driver: &Driver) -> Self {
        Self::open_with(driver, json!({})).await
    }

    async fn open_with(driver: &Driver, preferences: Value) -> Self {
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
        let wanted =
            json!({ "alwaysMatch": { "browserName": "chrome", "goog:chromeOptions": options } });
        let url = format!("{}/session", driver.url);
        let made = ask(http::Method::POST, &url, Some(json!({ "capabilities": wanted }))).await;
        let id = made["value"]["sessionId"].as_str().unwrap();
        Self { session: format!("{url}/{id}") }
    }

    async fn go(&self, url: &str) {
        self.post("url", json!({ "url": url })).await;
    }

    /// The tab that is turned to.
    async fn tab(&self) -> Value {
        get(&format!("{}/window", self.session)).await["value"].clone()
    }

    /// Opens a tab beside the one that is turned to.
    async fn new_tab(&self) -> Value {
        self.post("window/new", json!({ "type": "tab" })).await["value"]["handle"].clone()
    }

    async fn turn_to(&self, tab: &Value) {
        self.post("window", json!({ "handle": tab })).await;
    }

    async fn run(&self, script: &str) -> Value {
        let answer = self.post("execute/sync", json!({ "script": script, "args": [] })).await;
        answer["value"].clone()
    }

    async fn until_outcome(&self, text: &str) {
        let shown = "document.getElementById('outcome').textContent";
        self.until(&format!("{shown}.includes({})", json!(text))).await;
    }

    async fn until(&self, condition: &str) {
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

    async fn close(&self) {
        ask(http::Method::DELETE, &self.session, None).await;
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        ask(http::Method::POST, &format!("{}/{path}", self.session), Some(body)).await
    }
}

/// Nothing that the test waits for takes longer, on whatever machine.
const PATIENCE: Duration = Duration::from_secs(60);
