//! Every name that a configuration may have: the one list that the reader, its suggestions and the docs share.

mod kind;
mod list;

pub(super) use self::kind::{Choice, Kind};
pub use self::list::{
    ADMIN, AUDIT, JWT, OTLP, POLICY, RECONCILE, ROUTE, SEAL, TLS, TOP, UPSTREAM_TLS, VELOCITY,
    WEBHOOK,
};

use self::list::ALL;

/// One name of a configuration.
#[derive(Clone, Copy, Debug)]
pub struct Name {
    /// As it is written in the file.
    pub name: &'static str,
    /// What it may be, as the end of a sentence: "`ttl` is …".
    pub values: &'static str,
    /// What it is where the file does not say, as TOML; empty where there is no such value.
    pub default: &'static str,
    /// What it decides.
    pub meaning: &'static str,
    is_later: bool,
}

impl Name {
    const fn new(
        name: &'static str,
        values: &'static str,
        default: &'static str,
        meaning: &'static str,
    ) -> Self {
        Self { name, values, default, meaning, is_later: false }
    }

    /// A name that is kept free for what is not built yet.
    const fn later(name: &'static str, meaning: &'static str) -> Self {
        Self { name, values: "", default: "", meaning, is_later: true }
    }

    /// What its values are.
    pub(super) fn kind(&self) -> Option<Kind> {
        Kind::of(self.values)
    }

    /// Whether its table is nothing without it.
    pub(super) fn is_needed(&self) -> bool {
        self.meaning.to_ascii_lowercase().ends_with("needed")
    }

    /// Whether what it decides is not built yet: it is refused, by name.
    pub fn is_later(&self) -> bool {
        self.is_later
    }
}

/// The tables, by the name that they have in the table around them.
pub(super) const TABLES: [(&str, &Section); 12] = [
    ("admin", &ADMIN),
    ("seal", &SEAL),
    ("tls", &TLS),
    ("upstream_tls", &UPSTREAM_TLS),
    ("otlp", &OTLP),
    ("audit", &AUDIT),
    ("policy", &POLICY),
    ("route", &ROUTE),
    ("reconcile", &RECONCILE),
    ("webhook", &WEBHOOK),
    ("velocity", &VELOCITY),
    ("jwt", &JWT),
];

/// A table of the file, and the names that belong there.
#[derive(Debug)]
pub struct Section {
    /// Where it is, as the end of a sentence: "it belongs …".
    pub place: &'static str,
    names: &'static [&'static [Name]],
}

impl Section {
    /// The names that belong here.
    pub fn names(&self) -> impl Iterator<Item = &'static Name> + use<> {
        self.names.iter().copied().flatten()
    }

    /// The name that is written so.
    pub fn find(&self, text: &str) -> Option<&'static Name> {
        self.names().find(|name| name.name == text)
    }

    /// Why `text` is no name here: where else it belongs, or which name is near.
    pub(super) fn unknown(&self, text: &str) -> String {
        let others = ALL.iter().filter(|section| section.find(text).is_some());
        let places: Vec<_> = others.map(|section| section.place).collect();
        match nearest(text, self.names().map(|name| name.name)) {
            Some(near) if !places.is_empty() && strsim::osa_distance(text, near) == 1 => {
                format!(
                    "unknown name `{text}`; did you mean `{near}`? `{text}` belongs {}, and is something else",
                    places.join(" or ")
                )
            }
            _ if !places.is_empty() => {
                format!("`{text}` does not belong here, but {}", places.join(" or "))
            }
            Some(near) => format!("unknown name `{text}`; did you mean `{near}`?"),
            None => format!("unknown name `{text}`"),
        }
    }
}

/// The word that was probably meant: few letters away, or one has the other as a part (`timeout`, `max_wait`).
pub(crate) fn nearest<'a>(text: &str, words: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let text = text.to_ascii_lowercase().replace('-', "_");
    let typos_max = 1 + text.chars().count().min(LETTERS_MAX) / 4;
    let typos = |word: &str| {
        let word = word.to_ascii_lowercase();
        match is_part(&text, &word) || is_part(&word, &text) {
            true => 1,
            false => strsim::osa_distance(&text, &word),
        }
    };
    words
        .map(|word| (typos(word), word))
        .filter(|(typos, word)| *typos <= typos_max && *typos < word.len())
        .min_by_key(|(typos, _)| *typos)
        .map(|(_, word)| word)
}

fn is_part(part: &str, word: &str) -> bool {
    word.split('_').any(|piece| piece == part)
}

const LETTERS_MAX: usize = 16;
