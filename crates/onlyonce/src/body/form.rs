//! Url-encoded forms and queries.

use std::borrow::Cow;

use super::{Odd, put, put_optional};
use crate::hex;

/// The form's fields, decoded and stably sorted by name.
///
/// A field without `=` is not one with an empty value, and an empty field is kept: readers differ there. A form with
/// a list, whose names have `[]`, is odd: Rack and Rails read `items[][id]` by its order among all other fields. So is
/// one with very many fields: sorting them takes a hundred times the memory of the body.
pub(crate) fn canonical(body: &[u8]) -> Result<Vec<u8>, Odd> {
    let mut fields = decoded(body)?;
    if fields.iter().any(|(name, _)| is_list(name)) {
        return Err(Odd);
    }
    fields.sort_by(|one, two| one.0.cmp(&two.0));
    let mut out = Vec::with_capacity(2 * body.len());
    for (name, value) in &fields {
        put(&mut out, name);
        put_optional(&mut out, value.as_deref());
    }
    Ok(out)
}

/// The form's fields, decoded, in order.
pub(crate) fn decoded(body: &[u8]) -> Result<Vec<Decoded<'_>>, Odd> {
    if memchr::memchr_iter(b'&', body).count() >= FIELDS_MAX {
        return Err(Odd);
    }
    fields(body).map(Field::decoded).collect()
}

/// The decoded values of every field or parameter with this name, in order.
pub(crate) fn values<'a>(
    text: &'a [u8],
    name: &str,
) -> impl Iterator<Item = Result<Cow<'a, [u8]>, Odd>> {
    let named =
        move |field: &Field<'_>| decode(field.name).is_ok_and(|found| found == name.as_bytes());
    fields(text).filter(named).map(|field| decode(field.value.unwrap_or_default()))
}

struct Field<'a> {
    name: &'a [u8],
    value: Option<&'a [u8]>,
}

/// A field's name, and its value if it has one.
pub(crate) type Decoded<'a> = (Cow<'a, [u8]>, Option<Cow<'a, [u8]>>);

impl<'a> Field<'a> {
    fn decoded(self) -> Result<Decoded<'a>, Odd> {
        Ok((decode(self.name)?, self.value.map(decode).transpose()?))
    }
}

fn fields(text: &[u8]) -> impl Iterator<Item = Field<'_>> {
    text.split(|byte| *byte == b'&').map(|field| match memchr::memchr(b'=', field) {
        Some(at) => Field { name: &field[..at], value: Some(&field[at + 1..]) },
        None => Field { name: field, value: None },
    })
}

/// The fields of a form that are compared by their names.
const FIELDS_MAX: usize = 10_000;

fn is_list(name: &[u8]) -> bool {
    memchr::memmem::find(name, b"[]").is_some()
}

/// Bytes, not text: `%FE` and `%FF` must not meet in one replacement character.
fn decode(text: &[u8]) -> Result<Cow<'_, [u8]>, Odd> {
    if memchr::memchr2(b'%', b'+', text).is_none() {
        return Ok(Cow::Borrowed(text));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, after @ ..] = rest {
        rest = match (first, after) {
            (b'+', _) => plain(&mut bytes, b' ', after),
            (b'%', [high, low, after @ ..]) => {
                plain(&mut bytes, hex::pair(*high, *low).ok_or(Odd)?, after)
            }
            (b'%', _) => return Err(Odd),
            _ => plain(&mut bytes, *first, after),
        };
    }
    Ok(Cow::Owned(bytes))
}

fn plain<'a>(bytes: &mut Vec<u8>, byte: u8, after: &'a [u8]) -> &'a [u8] {
    bytes.push(byte);
    after
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    // R44: FPR-25
    #[test]
    fn fields_are_sorted_by_name_and_repeats_keep_their_order() {
        let form = |text: &str| canonical(text.as_bytes()).unwrap();
        assert_eq!(form("amount=1000&currency=usd"), form("currency=usd&amount=1000"));
        assert_eq!(form("a=1&b=2&a=3"), form("b=2&a=1&a=3"));
        assert_ne!(form("a=1&a=3"), form("a=3&a=1"));
    }

    // R44
    #[test]
    fn spellings_of_one_value_are_equal() {
        let form = |text: &str| canonical(text.as_bytes()).unwrap();
        assert_eq!(form("a%62=c+d"), form("ab=%63%20d"));
        assert_eq!(form("%c3%a9=1"), form("é=1"));
    }

    // R44, threat G14
    #[test]
    fn different_forms_never_meet() {
        let forms = [
            "", "&", "a", "a=", "a=1", "a=1&", "a=%26b=2", "a=1&b=2", "a=%FE", "a=%FF", "a==",
            "%3D=1",
        ];
        for (at, one) in forms.iter().enumerate() {
            for two in &forms[at + 1..] {
                assert_ne!(canonical(one.as_bytes()), canonical(two.as_bytes()), "{one} {two}");
            }
        }
    }

    // threat G14
    #[test]
    fn very_many_fields_are_odd() {
        let form = |fields: usize| canonical(vec!["a=1"; fields].join("&").as_bytes());
        assert!(form(FIELDS_MAX).is_ok());
        assert_eq!(form(FIELDS_MAX + 1), Err(Odd));
    }

    #[test]
    fn a_broken_percent_sequence_is_odd() {
        for text in ["a=%", "a=%4", "a=%zz", "%=1", "a=1&b=%+1"] {
            assert_eq!(canonical(text.as_bytes()), Err(Odd), "{text}");
        }
    }

    /// Rack and Rails begin a new item where a name comes back: sorted, the two forms would be one.
    // R44, threat G14
    #[test]
    fn a_form_with_lists_of_objects_is_odd() {
        let orders = [
            "items[][id]=1&items[][qty]=2&items[][id]=3",
            "items[][id]=1&items[][id]=3&items[][qty]=2",
        ];
        let odd = ["a[]=1&b=2", "a%5B%5D=1", "a%5b]=1", "b=2&a[][c]"];
        for text in orders.into_iter().chain(odd) {
            assert_eq!(canonical(text.as_bytes()), Err(Odd), "{text}");
        }
        for text in ["a[b]=1", "a=[]", "a[=1&b]=2"] {
            assert!(canonical(text.as_bytes()).is_ok(), "{text}");
        }
    }

    #[test]
    fn a_field_is_found_by_its_decoded_name() {
        let found = |text: &'static str| values(text.as_bytes(), "a b").collect::<Vec<_>>();
        assert_eq!(
            found("x=1&a+b=%31&a%20b&c=%"),
            [Ok(Cow::from(&b"1"[..])), Ok(Cow::from(&b""[..]))]
        );
        assert_eq!(found("a+b=%"), [Err(Odd)]);
        assert_eq!(found("a=b"), []);
    }

    type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

    fn pairs() -> impl Strategy<Value = Pairs> {
        let text = || {
            vec(
                prop_oneof![
                    Just(b'a'),
                    Just(b'&'),
                    Just(b'='),
                    Just(b'+'),
                    Just(b'%'),
                    any::<u8>()
                ],
                0..3,
            )
        };
        let name = text().prop_filter("a list is odd", |name| !is_list(name));
        vec((name, text()), 0..5)
    }

    /// Each byte plain, as `+`, or as a percent sequence of either case, as `choices` says.
    fn rendered(pairs: &Pairs, choices: &[u8]) -> String {
        let mut choices = choices.iter().cycle();
        let mut text = |bytes: &[u8]| {
            bytes.iter().map(|byte| spelled(*byte, *choices.next().unwrap())).collect::<String>()
        };
        let fields: Vec<String> =
            pairs.iter().map(|(name, value)| format!("{}={}", text(name), text(value))).collect();
        fields.join("&")
    }

    fn spelled(byte: u8, choice: u8) -> String {
        match choice % 3 {
            0 if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
            0 if byte == b' ' => "+".into(),
            1 => format!("%{byte:02x}"),
            _ => format!("%{byte:02X}"),
        }
    }

    fn sorted(mut pairs: Pairs) -> Pairs {
        pairs.sort_by(|one, two| one.0.cmp(&two.0));
        pairs
    }

    proptest! {
        // R44, threat G14
        #[test]
        fn forms_are_equal_exactly_when_their_fields_are(one in pairs(), two in pairs(), choices in vec(any::<u8>(), 1..9)) {
            let [first, again, second] = [(&one, &choices[..]), (&one, &[0]), (&two, &[0])]
                .map(|(pairs, choices)| canonical(rendered(pairs, choices).as_bytes()).unwrap());
            prop_assert_eq!(&first, &again);
            // An empty list is written as one empty field, but never as a field with a sign.
            prop_assert_eq!(first == second, sorted(one) == sorted(two));
        }

        // R44
        #[test]
        fn order_counts_only_among_repeats(pairs in pairs()) {
            let moved = sorted(pairs.clone());
            let [one, two] = [pairs, moved].map(|pairs| canonical(rendered(&pairs, &[0]).as_bytes()));
            prop_assert_eq!(one, two);
        }
    }
}
