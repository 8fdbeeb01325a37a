//! docs/answers.md says what the code does with the service's answers.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use onlyonce::Policy;
use onlyonce::http::kept_headers;
use onlyonce::policy::Keeps;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/answers.md");

#[test]
fn the_page_says_what_is_kept_of_each_status() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let released = statuses(&page, "(`not_executed`)");
    let unknown = statuses(&page, "503 without `Retry-After`");
    assert!(released.len() > 5 && unknown.len() > 2, "{released:?}, {unknown:?}");
    for status in 200..600 {
        let code = http::StatusCode::from_u16(status).unwrap();
        let expected = match status {
            _ if released.contains(&status) => Keeps::Release,
            _ if unknown.contains(&status) => Keeps::Unknown,
            _ => Keeps::Store,
        };
        assert_eq!(Policy::default().keeps(code, &HeaderMap::new()), expected, "{status}");
    }
}

/// The statuses in the first column of the row that has `mark` there.
fn statuses(page: &str, mark: &str) -> Vec<u16> {
    let columns = page.lines().filter_map(|line| line.split('|').nth(1));
    let column = columns.filter(|column| column.contains(mark)).collect::<String>();
    let words = column.split(|letter: char| !letter.is_ascii_alphanumeric());
    words.filter(|word| word.len() == 3).filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn the_page_says_which_headers_are_not_replayed() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let (_, list) = page.split_once("are never stored:").unwrap();
    let (list, _) = list.split_once("A route that sets a cookie").unwrap();
    let names = list.split('`').skip(1).step_by(2).filter(|name| *name != "Proxy-");
    let names: Vec<String> = names.map(|name| name.replace('*', "Limit")).collect();
    assert!(names.len() > 10, "{names:?}");
    for name in names {
        let header = HeaderName::from_bytes(name.as_bytes()).unwrap();
        let headers = HeaderMap::from_iter([(header, HeaderValue::from_static("1"))]);
        assert!(kept_headers(&headers).is_empty(), "{name} is replayed");
    }
}
