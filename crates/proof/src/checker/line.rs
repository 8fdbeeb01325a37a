//! One line of a history.

use serde_json::Value;

/// What a line says.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) t: u64,
    pub(super) kind: Kind,
    pub(super) process: String,
    pub(super) caller: String,
    pub(super) key: String,
    pub(super) class: String,
    pub(super) attempt: Option<u64>,
    pub(super) fp: String,
    pub(super) via: String,
    pub(super) why: String,
    pub(super) status: Option<u64>,
    /// A digest of the answer: of an `ok`, or of what an `effect` will answer.
    pub(super) body: String,
    pub(super) replayed: bool,
    /// The caller and the key in the answer.
    pub(super) names: Option<(String, String)>,
    pub(super) what: String,
    pub(super) on: String,
    pub(super) from: Option<u64>,
    pub(super) settle: u64,
    pub(super) text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Invoke,
    Ok,
    Fail,
    Info,
    Effect,
    Arrival,
    Fault,
    Quiet,
}

impl Kind {
    pub(super) fn is_of_operation(self) -> bool {
        !matches!(self, Self::Fault | Self::Quiet)
    }

    pub(super) fn is_answer(self) -> bool {
        matches!(self, Self::Ok | Self::Fail | Self::Info)
    }

    pub(super) fn is_of_service(self) -> bool {
        matches!(self, Self::Effect | Self::Arrival)
    }

    fn read(name: &str) -> Option<Self> {
        Some(match name {
            "invoke" => Self::Invoke,
            "ok" => Self::Ok,
            "fail" => Self::Fail,
            "info" => Self::Info,
            "effect" => Self::Effect,
            "arrival" => Self::Arrival,
            "fault" => Self::Fault,
            "quiet" => Self::Quiet,
            _ => return None,
        })
    }
}

impl Line {
    /// `None` if it is not a line of a history.
    pub(super) fn read(text: &str) -> Option<Self> {
        let line: Value = serde_json::from_str(text).ok()?;
        let word = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        let names = line["names"].as_array().map(|names| {
            let name = |nth: usize| names.get(nth).and_then(Value::as_str).unwrap_or_default();
            (name(0).to_owned(), name(1).to_owned())
        });
        Some(Self {
            t: line["t"].as_u64()?,
            kind: Kind::read(line["kind"].as_str()?)?,
            process: word("process"),
            caller: word("caller"),
            key: word("key"),
            class: word("class"),
            attempt: line["attempt"].as_u64(),
            fp: word("fp"),
            via: word("via"),
            why: word("why"),
            status: line["status"].as_u64(),
            body: word("body"),
            replayed: line["replayed"].as_bool().unwrap_or_default(),
            names,
            what: word("what"),
            on: word("on"),
            from: line["from"].as_u64(),
            settle: line["settle"].as_u64().unwrap_or_default(),
            text: text.trim().to_owned(),
        })
    }

    /// The name under which it is counted: a fault by what was done, a refusal by its reason.
    pub(super) fn counted_as(&self) -> String {
        match self.kind {
            Kind::Fault => format!("fault {}", self.what),
            Kind::Fail | Kind::Info => self.why.clone(),
            Kind::Invoke => "requests".to_owned(),
            Kind::Ok => "ok".to_owned(),
            Kind::Effect => "effects".to_owned(),
            Kind::Arrival => "recognised repetitions".to_owned(),
            Kind::Quiet => "quiet".to_owned(),
        }
    }
}
