use proptest::prelude::*;

use super::*;

/// What nginx, Express, Spring and ASP.NET, one behind another, read as `/v1/charges`.
const SPELLINGS: [&str; 34] = [
    "/v1/charges/",
    "//v1/charges",
    "/v1//charges",
    "/v1/./charges",
    "/v1/charges/.",
    "/v1/x/../charges",
    "/v1%2Fcharges",
    "/v1%2fcharges",
    "/v1%252Fcharges",
    "/v1\\charges",
    "/v1%5Ccharges",
    "/v1%255ccharges",
    "/V1/Charges",
    "/v1/charges.json",
    "/v1/charges.JSON",
    "/v1/charges.xml/",
    "/v1/charges;a=b",
    "/v1;a=b/charges",
    "/v1/charges;/",
    "/v1/x/..;/charges",
    "/v1/charges%20",
    "/v1/charges%09",
    "/v1/charges.",
    "/v1/charges%2E",
    "/v1/charges%00",
    "/v1/charges%00.x",
    "/v1/charges%3Fa=b",
    "/v1/charges%23a",
    "/v1/%2563harges",
    "/v1/%2e/charges",
    "/v1/%252e%252e/v1/charges",
    "/v1/charges/%2e",
    "/./v1/charges",
    "/v1/charges%2F",
];

// threat G12
#[test]
fn every_spelling_is_one_folded_path() {
    for path in SPELLINGS {
        assert_eq!(folded_path(path), "/v1/charges", "{path}");
        assert!(!is_settled_path(path), "{path}");
    }
}

#[test]
fn other_paths_stay_what_they_are() {
    for path in [
        "/",
        "",
        "*",
        "/v1/charges",
        "/v1/orders:cancel",
        "/domains/example.com",
        "/hosts/10.0.0.1",
        "/users/john.doe",
        "/a@b.org",
        "/caf%C3%A9",
        "/v1.2/charges",
        "/100%25",
        "/a+b=c,d",
    ] {
        assert_eq!(folded_path(path), path);
    }
    let apart = ["/a", "/b", "/a/b", "/a.b", "/a-b", "/%C3%A9", "/%C3%A8", "/%FF", "/%FE", "/"];
    let folded: BTreeSet<_> = apart.iter().map(|path| folded_path(path)).collect();
    assert_eq!(folded.len(), apart.len());
}

#[test]
fn letters_beyond_ascii_have_a_case_too() {
    assert_eq!(folded_path("/CAF%C3%89"), folded_path("/caf%c3%a9"));
}

// threat G12
#[test]
fn the_plain_form_has_no_segment_that_is_read_in_two_ways() {
    let plain =
        ["/", "/a", "/a/", "/A/b.json", "/a;b=c", "/a%20b", "/a.", "/%41", "/a%3Ab", "*", "/a%"];
    for path in plain {
        assert!(is_plain_path(path), "{path}");
    }
    let segments =
        ["//", "//a", "/a//", "/a//b", "/.", "/..", "/a/.", "/a/..", "/./a", "/a/;x/b", "/a/..;/b"];
    let encoded = [
        "/a/%2e",
        "/a/%2E%2e/b",
        "/a/%252e/b",
        "/a%2Fb",
        "/a%2fb",
        "/a%252fb",
        "/a%5Cb",
        "/a%255cb",
    ];
    let others = ["/a\\b", "/a%00", "/a%2500", "/a%0a", "/a%7F", "/a/.%20/b", "/a/%20/b"];
    for path in segments.iter().chain(&encoded).chain(&others) {
        assert!(!is_plain_path(path), "{path}");
    }
}

// threat G12
#[test]
fn what_another_server_makes_of_a_path_is_among_its_readings() {
    let read = |path: &str| readings(path).unwrap();
    for path in SPELLINGS {
        let read = read(path);
        assert_eq!(read[0], path);
        // Case, a final slash and an extension are left to whoever compares.
        let is_found = |read: &String| folded_path(read) == "/v1/charges" && is_plain_path(read);
        assert!(read.iter().any(is_found), "{path}: {read:?}");
    }
    assert_eq!(read("/v1/charges"), ["/v1/charges"]);
    let read = read("/a/b//../c");
    for either in ["/a/b/c", "/a/c"] {
        assert!(read.iter().any(|path| path == either), "{read:?}");
    }
}

#[test]
fn only_a_path_as_ids_have_it_has_no_spelling() {
    assert_eq!(spelling(None, "/v1/charges"), [0; 4]);
    assert_eq!(spelling(None, "/v1/%63harges"), [0; 4]);
    assert_ne!(spelling(None, "/A"), [0; 4]);
    // Unreserved characters are decoded before anything is compared.
    let spelled: BTreeSet<_> = SPELLINGS.map(|path| spelling(None, path)).into();
    let normal: BTreeSet<_> = SPELLINGS.map(|path| normal_path(path).into_owned()).into();
    assert_eq!(spelled.len(), normal.len());
    let secret = Secret::new("s");
    assert_ne!(spelling(Some(&secret), "/A"), spelling(None, "/A"));
}

proptest! {
    #[test]
    fn a_settled_path_is_plain_and_folded(path in "/([/.;%A-Ca-c0-9~:]){0,10}") {
        if is_settled_path(&path) {
            prop_assert!(is_plain(&path));
            prop_assert_eq!(folded(&path), path);
        }
    }

    #[test]
    fn nothing_makes_it_panic(path in "\\PC{0,20}") {
        let _ = (folded_path(&path), is_plain_path(&path), readings(&path));
    }
}
