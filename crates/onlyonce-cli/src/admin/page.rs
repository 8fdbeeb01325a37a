//! The operator's page: files inside the binary, without a build step and without a request to anywhere else.

/// A file of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asset {
    pub(crate) media_type: &'static str,
    pub(crate) bytes: &'static [u8],
}

/// The file that is served under this path, if there is one.
pub(crate) fn asset(path: &str) -> Option<Asset> {
    let name = match path {
        "/" => "index.html",
        _ => path.strip_prefix("/assets/").filter(|name| *name != "index.html")?,
    };
    let (_, bytes) = FILES.iter().find(|(known, _)| *known == name)?;
    Some(Asset { media_type: media_type(name), bytes })
}

/// The page loads its own files, talks to its own listener, and runs no script that stands in the markup. No
/// string may become markup or script either (Trusted Types), so a key that looks like markup stays text.
pub(crate) const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self' data:; connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_bytes!(concat!("page/", $name)).as_slice())),*]
    };
}

const FILES: &[(&str, &[u8])] = files![
    "index.html",
    "icon.svg",
    "app.css",
    "actions.js",
    "answer.js",
    "api.js",
    "app.js",
    "bulk.js",
    "chart.js",
    "dialog.js",
    "dom.js",
    "empty.js",
    "events.js",
    "format.js",
    "list.js",
    "live.js",
    "notice.js",
    "operation.js",
    "overview.js",
    "router.js",
    "table.js",
    "timeline.js",
    "token.js",
    "vendor/uPlot.LICENSE",
    "vendor/uPlot.iife.min.js",
    "vendor/uPlot.min.css",
];

fn media_type(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "text/plain; charset=utf-8",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_that_a_file_of_the_page_names_is_served() {
        for (name, bytes) in FILES {
            let text = std::str::from_utf8(bytes).unwrap();
            let of_markup = text.split("assets/").skip(1).filter(|_| name.ends_with(".html"));
            let of_script = text.split("from \"./").skip(1).filter(|_| name.ends_with(".js"));
            for named in of_markup.chain(of_script) {
                let named = named.split('"').next().unwrap();
                assert!(asset(&format!("/assets/{named}")).is_some(), "{name} names {named}");
            }
        }
    }

    #[test]
    fn every_file_in_the_folder_is_served() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/admin/page");
        for folder in [folder.to_owned(), format!("{folder}/vendor")] {
            for file in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
                let name = file.file_name().into_string().unwrap();
                let is_served =
                    FILES.iter().any(|(known, _)| known.rsplit('/').next() == Some(&name));
                assert!(is_served || file.path().is_dir(), "{name} is in no list");
            }
        }
    }

    // Without a host in them the files cannot ask one.
    #[test]
    fn no_file_names_another_host_but_in_a_comment_or_a_namespace() {
        let known = ["http://www.w3.org/2000/svg", "https://github.com/leeoniya/uPlot (v1.6.32)"];
        for (name, bytes) in FILES {
            let mut text = std::str::from_utf8(bytes).unwrap().to_owned();
            known.iter().for_each(|address| text = text.replace(address, ""));
            assert!(!text.contains("://"), "{name} names another host");
        }
    }

    #[test]
    fn nothing_else_is_served() {
        for path in
            ["", "/assets/", "/assets/index.html", "/assets/../page.rs", "//", "/assets//app.js"]
        {
            assert_eq!(asset(path), None, "{path}");
        }
    }

    #[test]
    fn no_file_turns_text_into_markup() {
        let sinks = [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
        ];
        for (name, bytes) in FILES.iter().filter(|(name, _)| name.ends_with(".js")) {
            let text = std::str::from_utf8(bytes).unwrap();
            assert!(!sinks.iter().any(|sink| text.contains(sink)), "{name}");
        }
    }
}
