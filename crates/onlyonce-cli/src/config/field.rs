//! One value of the file, and the ways to read it.

use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{Remark, Remarks};
use super::listen::listen_address;
use super::names::{Name, Section, nearest};
use super::units;

/// What variables of the environment hold.
pub(super) type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// What values are read with.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) env: Env<'a>,
    /// Where their file begins among all files of the configuration.
    pub(super) begins_at: usize,
}

/// One value of the file under a name that is known.
#[derive(Clone, Copy)]
pub(super) struct Field<'a> {
    pub(super) name: &'static Name,
    /// Where the name is, as a byte of all files.
    pub(super) named_at: usize,
    /// Where the value is.
    pub(super) at: usize,
    value: &'a DeValue<'a>,
    context: Context<'a>,
}

/// Gives each value whose name belongs in the table to `set`, and gathers what is wrong.
pub(super) fn each<'a>(
    table: &'a DeTable<'a>,
    section: &Section,
    context: Context<'a>,
    mut set: impl FnMut(Field<'a>) -> Result<(), Remarks>,
) -> Result<(), Remarks> {
    let mut wrong = Remarks::default();
    for (name, value) in table {
        let field = known(name, value, section, context).map_err(Remarks::from);
        wrong.gather(field.and_then(&mut set));
    }
    wrong.none()
}

fn known<'a>(
    name: &Spanned<toml::de::DeString<'a>>,
    value: &'a Spanned<DeValue<'a>>,
    section: &Section,
    context: Context<'a>,
) -> Result<Field<'a>, Remark> {
    let (text, named_at) = (name.get_ref(), context.begins_at + name.span().start);
    match section.find(text) {
        None => Err(Remark::new(named_at, section.unknown(text))),
        Some(name) if name.is_later() => Err(not_built(named_at, &format!("`{text}`"))),
        Some(name) => {
            let at = context.begins_at + value.span().start;
            Ok(Field { name, named_at, at, value: value.get_ref(), context })
        }
    }
}

/// The sentence about what a later version will have.
pub(super) fn not_built(at: usize, what: &str) -> Remark {
    Remark::new(at, format!("{what} is not built yet; remove it"))
}

impl<'a> Field<'a> {
    pub(super) fn text(self) -> Result<&'a str, Remark> {
        match self.value {
            DeValue::String(text) => Ok(text),
            _ => Err(self.other_kind()),
        }
    }

    /// The text, read as a `T`.
    pub(super) fn parsed<T>(self) -> Result<T, Remark>
    where
        T: FromStr<Err: std::error::Error + 'static>,
    {
        let parsed = self.text()?.parse();
        parsed.map_err(|error| self.because(&error))
    }

    /// What the text says, or the variable that it names, read as a `T` whose errors do not repeat it.
    pub(super) fn confidentially_parsed<T>(self) -> Result<T, Remark>
    where
        T: FromStr<Err: std::error::Error + 'static>,
    {
        let parsed = self.confidential()?.parse();
        parsed.map_err(|error| self.because(&error))
    }

    pub(super) fn listen_address(self) -> Result<SocketAddr, Remark> {
        listen_address(self.text()?).map_err(|error| self.because(&error))
    }

    pub(super) fn duration(self) -> Result<Duration, Remark> {
        let duration = units::duration(self.text()?);
        duration.map_err(|error| self.because(&error))
    }

    pub(super) fn duration_above_zero(self) -> Result<Duration, Remark> {
        match self.duration()? {
            Duration::ZERO => Err(self.refused()),
            duration => Ok(duration),
        }
    }

    pub(super) fn bytes(self) -> Result<usize, Remark> {
        let bytes = units::bytes(self.text()?);
        bytes.map_err(|error| self.because(&error))
    }

    pub(super) fn bytes_above_zero(self) -> Result<usize, Remark> {
        match self.bytes()? {
            0 => Err(self.refused()),
            bytes => Ok(bytes),
        }
    }

    pub(super) fn number(self) -> Result<usize, Remark> {
        let DeValue::Integer(integer) = self.value else {
            return Err(self.other_kind());
        };
        let number = usize::from_str_radix(integer.as_str(), integer.radix());
        number.map_err(|_| self.refused())
    }

    pub(super) fn count(self) -> Result<usize, Remark> {
        match self.number()? {
            count @ 1..=COUNT_MAX => Ok(count),
            _ => Err(self.refused()),
        }
    }

    /// What the text stands for among these words.
    pub(super) fn one_of<T: Copy>(self, words: &[(&str, T)]) -> Result<T, Remark> {
        let text = self.text()?;
        let found = words.iter().find(|(word, _)| *word == text);
        let (_, meant) =
            found.ok_or_else(|| self.none_of(text, words.iter().map(|(word, _)| *word)))?;
        Ok(*meant)
    }

    /// What the text says, or the variable (`env:`) or the file (`file:`) that it names. Never told in a message.
    pub(super) fn confidential(self) -> Result<String, Remark> {
        let text = self.text()?;
        let value = match text.split_once(':') {
            Some(("env", variable)) => {
                (self.context.env)(variable).ok_or_else(|| self.no_variable(variable))?
            }
            Some(("file", path)) => from_file(path).map_err(|error| {
                self.wrong(&format!("the file {path:?} cannot be read: {error}"))
            })?,
            _ => self.written_here(text)?,
        };
        match value.is_empty() {
            true => Err(self.wrong("it is empty; leave it out, or give it a value")),
            false => Ok(value),
        }
    }

    /// Whether the text names a variable or a file that holds the value.
    pub(super) fn is_elsewhere(self) -> Result<bool, Remark> {
        Ok(self.text()?.split_once(':').is_some_and(|(kind, _)| matches!(kind, "env" | "file")))
    }

    /// The name of a variable without `env:` would become the value, and everybody could guess it.
    fn written_here(self, text: &str) -> Result<String, Remark> {
        if let Some(variable) = shell_variable(text) {
            let message = format!("${variable} is not replaced here; write \"env:{variable}\"");
            return Err(self.wrong(&message));
        }
        match has_form_of_variable(text) {
            true => Err(self.wrong(
                "it has the form of the name of a variable, and would itself be the value; write \"env:\" before it",
            )),
            false => Ok(text.to_owned()),
        }
    }

    /// The members of a list, each a field of the same name.
    pub(super) fn members(self) -> Result<Vec<Self>, Remark> {
        let DeValue::Array(array) = self.value else {
            return Err(self.other_kind());
        };
        let member = |value: &'a Spanned<DeValue<'a>>| Self {
            at: self.context.begins_at + value.span().start,
            value: value.get_ref(),
            ..self
        };
        Ok(array.iter().map(member).collect())
    }

    /// Every member of a list, or everything that is wrong with them.
    pub(super) fn all<T>(
        self,
        read: impl Fn(Self) -> Result<T, Remark>,
    ) -> Result<Vec<T>, Remarks> {
        let mut wrong = Remarks::default();
        let members = self.members()?.into_iter();
        let read = members.filter_map(|member| wrong.gather(read(member))).collect();
        wrong.none()?;
        Ok(read)
    }

    pub(super) fn is_list(self) -> bool {
        matches!(self.value, DeValue::Array(_))
    }

    pub(super) fn table(self) -> Result<&'a DeTable<'a>, Remark> {
        match self.value {
            DeValue::Table(table) => Ok(table),
            _ => Err(self.other_kind()),
        }
    }

    /// Gives each value of the table that this is to `set`, and gathers what is wrong.
    pub(super) fn each(
        self,
        section: &Section,
        set: impl FnMut(Self) -> Result<(), Remarks>,
    ) -> Result<(), Remarks> {
        each(self.table()?, section, self.context, set)
    }

    /// A remark about the value.
    pub(super) fn wrong(self, message: &str) -> Remark {
        Remark::new(self.at, format!("`{}`: {message}", self.name.name))
    }

    /// A remark about the value, with all that led to it.
    pub(super) fn because(self, error: &dyn std::error::Error) -> Remark {
        let causes = std::iter::successors(error.source(), |cause| cause.source());
        let message = causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"));
        self.wrong(&message)
    }

    /// A remark that says what the value may be.
    pub(super) fn refused(self) -> Remark {
        let Name { name, values, .. } = self.name;
        Remark::new(self.at, format!("`{name}` is {values}"))
    }

    fn other_kind(self) -> Remark {
        let Name { name, values, .. } = self.name;
        let kind = match self.value {
            DeValue::String(_) => "a text",
            DeValue::Integer(_) | DeValue::Float(_) => "a number",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a time",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        Remark::new(self.at, format!("`{name}` is {values}; this is {kind}"))
    }

    fn none_of<'w>(self, text: &str, words: impl Iterator<Item = &'w str>) -> Remark {
        let Name { name, values, .. } = self.name;
        let meant = nearest(text, words).map(|word| format!("; did you mean {word:?}?"));
        let message = format!("`{name}` is {values}, not {text:?}{}", meant.unwrap_or_default());
        Remark::new(self.at, message)
    }

    fn no_variable(self, variable: &str) -> Remark {
        self.wrong(&format!("the environment has no variable {variable:?}"))
    }
}

/// The variable that a shell or a template would put here: `$NAME` or `${NAME}`.
fn shell_variable(text: &str) -> Option<&str> {
    let name = text.strip_prefix('$')?;
    let name = name.strip_prefix('{').and_then(|name| name.strip_suffix('}')).unwrap_or(name);
    let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    (is_name && !name.is_empty()).then_some(name)
}

/// Whether the text is written as variables are: `STRIPE_WHSEC`.
fn has_form_of_variable(text: &str) -> bool {
    let is_of_name = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    text.bytes().all(is_of_name)
        && text.contains('_')
        && text.starts_with(|c: char| c.is_ascii_uppercase())
}

/// Without the line end that editors put behind a text.
fn from_file(path: &str) -> std::io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    text.truncate(text.trim_end_matches(['\r', '\n']).len());
    Ok(text)
}

/// More than any secret or address has.
const FILE_BYTES_MAX: u64 = 64 << 10;
const COUNT_MAX: usize = 10_000_000;
