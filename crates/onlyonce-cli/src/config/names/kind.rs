//! What a value is, read from the sentence that says so to people: there is no second list that could fall behind.
//!
//! A sentence begins with one of the words of [`Kind::of`], or it is a choice: words in quotes, numbers, `header:NAME`
//! and the like, with commas, "or" and "and" between them. What follows a semicolon or "such as" is for people alone.

/// What a value is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    /// A JSON pointer.
    Pointer,
    Duration {
        is_above_zero: bool,
    },
    Size {
        is_above_zero: bool,
    },
    Number {
        least: u64,
        most: Option<u64>,
    },
    /// Two numbers.
    Pair,
    /// One of these.
    Choice(Vec<Choice>),
    /// The table whose name it has.
    Table,
    List {
        of: Box<Self>,
        most: Option<u64>,
    },
    /// One, or a list.
    OneOrList(Box<Self>),
}

/// One of the things that a value may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    Word(String),
    Number(u64),
    Range(u64, u64),
    /// A text that begins so, `header:`.
    Prefix(String),
}

impl Kind {
    /// What `values`, the end of the sentence "`ttl` is …", says. `None` if it says nothing that is known here.
    pub(crate) fn of(values: &str) -> Option<Self> {
        let said = without_examples(values);
        let is_above_zero = said.contains("above zero");
        if let Some((one, _)) = said.split_once(" or a list of ") {
            return Self::of(one).map(Box::new).map(Self::OneOrList);
        }
        if let Some(members) = said.strip_prefix("a list of ") {
            return list(members);
        }
        match said {
            _ if said.starts_with("a duration") => Some(Self::Duration { is_above_zero }),
            _ if said.starts_with("a size") => Some(Self::Size { is_above_zero }),
            _ if said.starts_with("a number") => Some(number(said)),
            _ if said.starts_with("two numbers") => Some(Self::Pair),
            _ if said.starts_with("a table") => Some(Self::Table),
            _ if said.starts_with("a JSON pointer") => Some(Self::Pointer),
            _ if TEXTS.iter().any(|start| said.starts_with(start)) => Some(Self::Text),
            // In quotes, and no choice: the shape of a text, such as "METHODS /path".
            _ => choices(said).or_else(|| said.starts_with('"').then_some(Self::Text)),
        }
    }
}

/// How the sentence about a text begins.
const TEXTS: [&str; 5] = ["a text", "a file", "an address", "a rate", "http://"];

fn without_examples(values: &str) -> &str {
    let ends = ["; ", ", such as ", " such as "].map(|mark| values.find(mark));
    let end = ends.into_iter().flatten().min().unwrap_or(values.len());
    &values[..end]
}

fn number(said: &str) -> Kind {
    match range(said) {
        Some((least, most)) => Kind::Number { least, most: Some(most) },
        None => Kind::Number { least: 0, most: None },
    }
}

/// The numbers of "… from 1 to 10".
fn range(said: &str) -> Option<(u64, u64)> {
    let (_, range) = said.split_once(" from ")?;
    let (least, most) = range.split_once(" to ")?;
    Some((least.parse().ok()?, most.parse().ok()?))
}

fn list(members: &str) -> Option<Kind> {
    let counted = members.strip_prefix("at most ").and_then(|rest| rest.split_once(' '));
    let (most, members) = match counted {
        Some((most, members)) => (Some(most.parse().ok()?), members),
        None => (None, members),
    };
    let of = match members {
        _ if members.starts_with("JSON pointers") => Kind::Pointer,
        "rules" => Kind::Table,
        _ if members.starts_with("tables") => Kind::Table,
        // One word that is not in quotes is the name of a kind of text: methods, origins.
        _ if members.bytes().all(|byte| byte.is_ascii_lowercase()) => Kind::Text,
        _ => choices(members).or_else(|| members.starts_with('"').then_some(Kind::Text))?,
    };
    Some(Kind::List { of: Box::new(of), most })
}

fn choices(said: &str) -> Option<Kind> {
    let with_commas = said.replace(" or ", ", ").replace(" and ", ", ");
    let parts = with_commas.split(", ").map(|part| part.trim_matches([',', ' ']));
    let choices: Option<Vec<_>> = parts.filter(|part| !part.is_empty()).map(choice).collect();
    choices.filter(|choices| !choices.is_empty()).map(Kind::Choice)
}

fn choice(part: &str) -> Option<Choice> {
    let part = part.split(" for ").next().unwrap_or(part);
    let quoted = part.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    if let Some((least, most)) = range(part) {
        return Some(Choice::Range(least, most));
    }
    match (quoted, part.split_once(':')) {
        (Some(word), _) => is_word(word).then(|| Choice::Word(word.to_owned())),
        (None, Some((place, name))) => (is_word(place) && is_word(name.trim_start_matches('/')))
            .then(|| Choice::Prefix(format!("{place}:"))),
        (None, None) => match part.parse() {
            Ok(number) => Some(Choice::Number(number)),
            Err(_) => is_word(part).then(|| Choice::Word(part.to_owned())),
        },
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(text: &str) -> Choice {
        Choice::Word(text.to_owned())
    }

    fn prefix(text: &str) -> Choice {
        Choice::Prefix(text.to_owned())
    }

    #[test]
    fn a_sentence_says_what_a_value_is() {
        let list = |of, most| Kind::List { of: Box::new(of), most };
        let cases = [
            ("a duration, such as \"24h\"", Kind::Duration { is_above_zero: false }),
            ("a size above zero, such as \"1MiB\"", Kind::Size { is_above_zero: true }),
            ("a number from 1 to 10", Kind::Number { least: 1, most: Some(10) }),
            ("a number; 0 for no limit", Kind::Number { least: 0, most: None }),
            ("\"METHODS /path\", such as \"POST /a\"", Kind::Text),
            (
                "\"sqlite:FILE\", \"memory:\", or \"env:NAME\" for what that variable holds",
                Kind::Text,
            ),
            ("\"a\", \"b\" or \"c\"", Kind::Choice(vec![word("a"), word("b"), word("c")])),
            ("422 or 409", Kind::Choice(vec![Choice::Number(422), Choice::Number(409)])),
            ("a list of methods, such as [\"POST\"]", list(Kind::Text, None)),
            (
                "a list of at most 8 JSON pointers into it, such as [\"/a\"]",
                list(Kind::Pointer, Some(8)),
            ),
            (
                "a list of \"path\", header:NAME or json:/pointer",
                list(Kind::Choice(vec![word("path"), prefix("header:"), prefix("json:")]), None),
            ),
            (
                "a list of statuses from 400 to 599, and \"5xx\" for every server error, such as [401]",
                list(Kind::Choice(vec![Choice::Range(400, 599), word("5xx")]), None),
            ),
            (
                "\"auto\", header:NAME or a list of the latter",
                Kind::OneOrList(Box::new(Kind::Choice(vec![word("auto"), prefix("header:")]))),
            ),
            ("a list of rules, such as { limit = 5 }", list(Kind::Table, None)),
        ];
        for (sentence, kind) in cases {
            assert_eq!(Kind::of(sentence), Some(kind), "{sentence}");
        }
    }

    #[test]
    fn a_sentence_that_says_nothing_known_is_no_kind() {
        for sentence in ["", "whatever you like", "something, or something else", "a colour"] {
            assert_eq!(Kind::of(sentence), None, "{sentence}");
        }
    }
}
