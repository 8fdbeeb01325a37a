//! The dashboard, the alert rules and the runbooks.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::lab::{Gateway, Server, get, until};

#[test]
fn promtool_accepts_the_rules_and_their_tests() {
    let Some(promtool) = tool("promtool") else { return };
    for arguments in [["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]] {
        let run = Command::new(&promtool)
            .args(arguments)
            .current_dir(root().join("ops/prometheus"))
            .output()
            .unwrap();
        let (said, wrong) =
            (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
        assert!(run.status.success(), "{said}{wrong}");
    }
}

#[test]
fn each_alert_has_a_runbook_and_a_test_and_each_runbook_an_alert() {
    let rules = read("ops/prometheus/alerts.yml");
    let tests = read("ops/prometheus/alerts_test.yml");
    let runbooks = read("docs/runbooks.md");
    let alerts: BTreeSet<_> =
        rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    let sections: BTreeSet<_> =
        runbooks.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    assert_eq!(alerts, sections);
    for alert in &alerts {
        assert!(rules.contains(&format!("docs/runbooks.md#{}", alert.to_lowercase())), "{alert}");
        let tested = format!("\"alertname\": \"{alert}\"");
        assert!(tests.matches(&tested).count() >= 2, "{alert} must fire, and be silent");
    }
    for part in ["**Means.**", "**Look at.**", "**Do.**"] {
        assert_eq!(runbooks.matches(part).count(), alerts.len(), "{part}");
    }
}

#[test]
fn rules_and_dashboard_use_documented_metrics_only() {
    let manual = read("docs/metrics.md");
    let texts = [read("ops/prometheus/alerts.yml"), exprs().join("\n")].join("\n");
    let words = texts.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
    let names: BTreeSet<_> = words.filter(|word| word.starts_with("onlyonce_")).collect();
    assert!(names.len() > 20, "{names:?}");
    for name in names {
        let name = name.trim_end_matches("_bucket").trim_end_matches("_count");
        let is_documented =
            manual.contains(&format!("| `{name}`")) || manual.contains(&format!("| `{name}{{"));
        assert!(is_documented, "{name}");
    }
}

/// Every query of the dashboard has an answer, from a real Prometheus that scrapes a gateway with some traffic.
#[test]
fn every_query_of_the_dashboard_is_answered() {
    if std::env::var("ONLYONCE_TEST_TIER").as_deref() != Ok("full") {
        return eprintln!("skipped: a Prometheus is started only in the full tier");
    }
    let Some(program) = tool("prometheus") else { return };
    let upstream = Server::start("{}");
    let gateway = Gateway::start(upstream.address, "", "", "info");
    let prometheus = Prometheus::start(&program, &gateway.admin);
    for expr in exprs() {
        let expr = expr.replace("$__rate_interval", "30s");
        let (mut number, mut answer) = (0, String::new());
        until(&format!("an answer to {expr}"), || {
            number += 1;
            gateway.post(&format!("order-{}", number % 3), "", "{}");
            gateway.post("", "", "{}");
            answer = prometheus.ask(&expr);
            answer.contains("\"value\":[")
        });
    }
}

struct Prometheus {
    child: Child,
    address: String,
    _folder: tempfile::TempDir,
}

impl Prometheus {
    fn start(program: &Path, target: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = format!(
            "global: {{ scrape_interval: 1s }}\nscrape_configs:\n  - job_name: onlyonce\n    static_configs: [{{ targets: [\"{target}\"] }}]\n"
        );
        std::fs::write(folder.path().join("prometheus.yml"), config).unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let child = Command::new(program)
            .args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"])
            .arg(format!("--web.listen-address={free}"))
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let prometheus = Self { child, address: free.to_string(), _folder: folder };
        until("Prometheus", || std::net::TcpStream::connect(free).is_ok());
        prometheus
    }

    fn ask(&self, expr: &str) -> String {
        let query: String = form_urlencoded::byte_serialize(expr.as_bytes()).collect();
        get(&self.address, &format!("/api/v1/query?query={query}")).1
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn exprs() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&read("ops/grafana/onlyonce.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let exprs: Vec<_> = targets.map(|target| target["expr"].as_str().unwrap().to_owned()).collect();
    assert!(exprs.len() > 30);
    exprs
}

/// The program, or a sentence that says that it is missing.
fn tool(name: &str) -> Option<PathBuf> {
    let paths = std::env::var_os("PATH")?;
    let found =
        std::env::split_paths(&paths).map(|path| path.join(name)).find(|path| path.exists());
    if found.is_none() {
        eprintln!("skipped: {name} is not installed (Debian package prometheus)");
    }
    found
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
