//! Whose types are in our own signatures: the pages say which versions go together.

use std::fs;
use std::path::Path;

/// The version that the manifest asks for.
fn asked_for(manifest: &str, name: &str) -> String {
    let dependencies = manifest.split("\n[dependencies]").nth(1).unwrap();
    let line = dependencies.lines().find(|line| line.starts_with(&format!("{name} = "))).unwrap();
    let version = line.split('"').nth(1).unwrap();
    version.to_owned()
}

#[test]
fn the_pages_say_which_versions_go_together() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| fs::read_to_string(folder.join(path)).unwrap();
    let (manifest, page, library) =
        (read("Cargo.toml"), read("../../docs/transactions.md"), read("src/lib.rs"));
    let steps = read("../../docs/recovery-points.md");
    for name in ["sqlx", "tokio-postgres", "axum", "reqwest", "reqwest-middleware"] {
        let named = format!("{name} {}", asked_for(&manifest, name));
        assert!(library.contains(&named), "lib.rs does not say {named}");
        let is_on_page = !name.starts_with("reqwest");
        assert!(!is_on_page || page.contains(&named), "docs/transactions.md does not say {named}");
    }
    assert!(steps.contains(&format!("sqlx {}", asked_for(&manifest, "sqlx"))));
    assert_eq!(asked_for(&manifest, "rusqlite"), ">=0.39, <0.42");
    for text in [library, page, steps] {
        assert!(text.contains("rusqlite 0.39 to 0.41"));
    }
}
