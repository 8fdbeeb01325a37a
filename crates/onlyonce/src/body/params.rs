//! Parameters of a media type or a disposition: `; name=value; name="value"`.

use super::Odd;

/// The names, in lower case, and values. Doubled names, escapes and more than [`PARAMS_MAX`] are odd, and so is a
/// name with a star: to readers of RFC 2231 and RFC 5987, `charset*` and `charset*0` are spellings of `charset`.
pub(super) fn parse(text: &[u8]) -> Result<Vec<(String, &[u8])>, Odd> {
    let mut params: Vec<(String, &[u8])> = Vec::new();
    let mut rest = text.trim_ascii();
    while !rest.is_empty() {
        let ((name, value), after) = one(rest.strip_prefix(b";").ok_or(Odd)?.trim_ascii_start())?;
        if params.len() == PARAMS_MAX || params.iter().any(|(known, _)| *known == name) {
            return Err(Odd);
        }
        params.push((name, value));
        rest = after.trim_ascii_start();
    }
    Ok(params)
}

type Param<'a> = (String, &'a [u8]);

fn one(text: &[u8]) -> Result<(Param<'_>, &[u8]), Odd> {
    let (name, rest) = token(text)?;
    if name.contains(&b'*') {
        return Err(Odd);
    }
    let rest = rest.strip_prefix(b"=").ok_or(Odd)?;
    let (value, rest) = match rest {
        [b'"', quoted @ ..] => until_quote(quoted)?,
        _ => token(rest)?,
    };
    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
    Ok(((name, value), rest))
}

fn token(text: &[u8]) -> Result<(&[u8], &[u8]), Odd> {
    let end = text.iter().position(|byte| !is_token(*byte)).unwrap_or(text.len());
    match end {
        0 => Err(Odd),
        _ => Ok(text.split_at(end)),
    }
}

/// A backslash is an escape to some readers and a character to others.
fn until_quote(text: &[u8]) -> Result<(&[u8], &[u8]), Odd> {
    let end = memchr::memchr2(b'"', b'\\', text).ok_or(Odd)?;
    match text[end] {
        b'"' => Ok((&text[..end], &text[end + 1..])),
        _ => Err(Odd),
    }
}

/// Each name is compared with all before it, so this bound is what keeps long lists cheap.
const PARAMS_MAX: usize = 64;

/// RFC 9110, section 5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_lower_cased_and_quotes_removed() {
        let params = parse(b"; Name=\"a; b\" ;filename=c.txt").unwrap();
        assert_eq!(params, [("name".into(), &b"a; b"[..]), ("filename".into(), &b"c.txt"[..])]);
        assert_eq!(parse(b" "), Ok(vec![]));
    }

    #[test]
    fn what_readers_disagree_about_is_odd() {
        let odd =
            ["name=a", ";", ";=a", ";a", ";a=", ";a=\"b", r#";a="\"b""#, ";a=b c", ";a=1;A=2"];
        for text in odd {
            assert_eq!(parse(text.as_bytes()), Err(Odd), "{text}");
        }
    }

    /// Each name is compared with those before it: without the bound this takes minutes.
    // threat K9
    #[test]
    fn more_parameters_than_anybody_sends_are_odd_at_once() {
        let many = |count: usize| (0..count).map(|n| format!(";p{n}=1")).collect::<String>();
        assert_eq!(parse(many(64).as_bytes()).unwrap().len(), 64);
        assert_eq!(parse(many(65).as_bytes()), Err(Odd));
        assert_eq!(parse(many(131_072).as_bytes()), Err(Odd));
    }
}
