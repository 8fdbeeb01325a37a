//! Routes in files of their own.

use std::fs;

use tempfile::TempDir;

use super::*;

/// A folder with these files.
fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    folder
}

/// What its `onlyonce.toml` means, or all that is said about it, without the folder's own name.
fn load(folder: &TempDir) -> Result<Config, String> {
    let loaded = Config::load(&folder.path().join("onlyonce.toml"));
    loaded.map_err(|error| relative(folder, &error.to_string()))
}

fn relative(folder: &TempDir, text: &str) -> String {
    text.replace(&format!("{}/", folder.path().display()), "")
}

fn route(path: &str) -> String {
    format!("[[route]]\nmatch = \"POST {path}\"\n")
}

#[test]
fn routes_come_in_the_order_of_the_list_and_of_the_names() {
    let folder = folder(&[
        (
            "onlyonce.toml",
            &format!("include = [\"z/last.toml\", \"routes/*.toml\"]\n{}", route("/0")),
        ),
        ("z/last.toml", &route("/1")),
        ("routes/b.toml", &route("/4")),
        ("routes/a.toml", &format!("# a comment\n{}{}", route("/2"), route("/3"))),
        ("routes/.#a.toml", "the copy of an editor"),
        ("routes/notes.txt", "not a route"),
    ]);
    let config = load(&folder).unwrap();
    let routes = config.routes.iter();
    let told: Vec<_> = routes
        .map(|route| (route.matching.to_string(), relative(&folder, &route.written)))
        .collect();
    let expected = [
        ("POST /0", "onlyonce.toml:2"),
        ("POST /1", "z/last.toml:1"),
        ("POST /2", "routes/a.toml:2"),
        ("POST /3", "routes/a.toml:4"),
        ("POST /4", "routes/b.toml:1"),
    ];
    assert_eq!(told, expected.map(|(name, place)| (name.to_owned(), place.to_owned())));
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
    let files: Vec<_> = config.included.iter().map(|file| file.file_name().unwrap()).collect();
    assert_eq!(files, ["last.toml", "a.toml", "b.toml"]);
}

#[test]
fn included_routes_have_the_policy_and_the_variables_of_the_file() {
    let folder = folder(&[
        ("onlyonce.toml", "include = [\"a.toml\"]\n[policy]\nttl = \"2h\"\n"),
        ("a.toml", &route("/a")),
    ]);
    let config = load(&folder).unwrap();
    assert_eq!(config.routes[0].policy.ttl(), Duration::from_secs(2 * 3600));
}

#[test]
fn a_file_that_two_patterns_name_is_read_once_and_the_file_itself_is_not_included() {
    let folder = folder(&[
        ("onlyonce.toml", "include = [\"b.toml\", \"*.toml\"]"),
        ("a.toml", &route("/a")),
        ("b.toml", &route("/b")),
    ]);
    let routes = load(&folder).unwrap().routes;
    let names: Vec<_> = routes.iter().map(|route| route.matching.to_string()).collect();
    assert_eq!(names, ["POST /b", "POST /a"]);
}

#[test]
fn what_is_wrong_in_any_file_is_told_with_its_file_and_line() {
    let folder = folder(&[
        ("onlyonce.toml", "include = [\"routes/*.toml\"]\nsweep = 5\n"),
        ("routes/a.toml", "[[route]]\nmatch = \"POST /a\"\nttll = \"1h\"\n"),
        ("routes/b.toml", "listen = \"127.0.0.1:1\"\n[policy]\nttl = \"1h\"\n[[route]]\nttl = 5\n"),
        ("routes/c.toml", "include = [\"d.toml\"]\nroute = 5\nnonsense = 1"),
        ("routes/d.toml", "[[route]\n"),
    ]);
    let said = load(&folder).unwrap_err();
    let lines: Vec<_> = said.lines().collect();
    let expected = [
        "onlyonce.toml:2:9: `sweep` is a duration",
        "routes/a.toml:3:1: unknown name `ttll`; did you mean `ttl`?",
        "routes/b.toml:1:1: `listen` does not belong in an included file",
        "routes/b.toml:2:2: `policy` does not belong in an included file",
        "routes/b.toml:4:1: a [[route]] needs `match`",
        "routes/b.toml:5:7: `ttl` is a duration",
        "routes/c.toml:1:1: `include` does not belong in an included file",
        "routes/c.toml:2:9: `route` is a list of tables",
        "routes/c.toml:3:1: unknown name `nonsense`",
        "routes/d.toml:1:9: ",
    ];
    assert_eq!(lines.len(), expected.len(), "{said}");
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.starts_with(expected), "{line}\n{expected}");
    }
}

#[test]
fn a_contradiction_and_a_warning_are_told_where_the_included_route_is() {
    let contradicts = "forward_key = \"strip\"\nrecovery = \"redrive\"\n";
    let folder = folder(&[
        ("onlyonce.toml", "include = [\"a.toml\"]"),
        ("a.toml", &format!("{}{contradicts}", route("/a"))),
    ]);
    assert!(load(&folder).unwrap_err().starts_with("a.toml:3:1: `forward_key` \"strip\""));
    fs::write(
        folder.path().join("onlyonce.toml"),
        format!("include = [\"a.toml\"]\n{}", route("/{x}")),
    )
    .unwrap();
    fs::write(folder.path().join("a.toml"), route("/a")).unwrap();
    let warning = relative(&folder, &load(&folder).unwrap().warnings[0].to_string());
    assert_eq!(
        warning,
        "a.toml:1:1: \"POST /a\" is never reached: \"POST /{x}\" in onlyonce.toml:2 takes its requests; move \"POST /a\" before it, or remove it"
    );
}

#[test]
fn files_that_are_not_there_are_an_error() {
    let cases = [
        ("[\"routes/*.toml\"]", "1:12: `include`: no file matches, and without its routes"),
        (
            "[\"nowhere/*.toml\"]",
            "1:12: `include`: nowhere: the folder cannot be read: No such file",
        ),
        ("[\"nope.toml\"]", "1:12: `include`: nope.toml: the file cannot be read: No such file"),
        ("[\"a.toml\", \"nope.toml\"]", "1:22: `include`: nope.toml: the file cannot be read"),
        ("[\"*/a.toml\"]", "1:12: `include`: one `*` may stand in the name of the files"),
        ("[\"routes/**\"]", "1:12: `include`: one `*` may stand"),
        ("[\"..\"]", "1:12: `include`: it names no file"),
        (
            "\"a.toml\"",
            "1:11: `include` is a list of files, such as [\"routes/*.toml\"]; this is a text",
        ),
        (
            "[5]",
            "1:12: `include` is a list of files, such as [\"routes/*.toml\"]; this is a number",
        ),
    ];
    for (include, expected) in cases {
        let text = format!("include = {include}");
        let folder =
            folder(&[("onlyonce.toml", &text), ("a.toml", &route("/a")), ("routes/x.txt", "")]);
        let said = load(&folder).unwrap_err();
        assert!(said.starts_with(&format!("onlyonce.toml:{expected}")), "{said}");
    }
}

#[test]
fn files_are_bounded_in_number_and_size() {
    let many: Vec<_> = (0..257).map(|count| format!("routes/{count}.toml")).collect();
    let mut files: Vec<_> = many.iter().map(|name| (name.as_str(), "")).collect();
    files.push(("onlyonce.toml", "include = [\"routes/*.toml\"]"));
    let said = load(&folder(&files)).unwrap_err();
    assert!(
        said.starts_with("onlyonce.toml:1:12: `include`: more than 256 files are included"),
        "{said}"
    );
    let long = "#".repeat(FILE_BYTES_MAX as usize);
    let files: Vec<_> = many.iter().take(8).map(|name| (name.as_str(), long.as_str())).collect();
    let folder = folder(&files);
    fs::write(folder.path().join("onlyonce.toml"), "include = [\"routes/*.toml\"]").unwrap();
    let said = load(&folder).unwrap_err();
    assert!(said.contains("the files together have more than 8388608 bytes"), "{said}");
    fs::write(folder.path().join("routes/0.toml"), format!("{long}#")).unwrap();
    let said = load(&folder).unwrap_err();
    assert!(
        said.contains("`include`: routes/0.toml: the file has more than 1048576 bytes"),
        "{said}"
    );
}
