//! Parts that are equal, parts that are not, and bodies that are odd.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

// R43: FPR-23
#[test]
fn the_boundary_does_not_count() {
    let parts = [text("a", "1"), file("f", "x.bin", "image/png", "\0\r\n--\u{1}")];
    assert_eq!(read(&render(&parts, "one"), "one"), read(&render(&parts, "--two"), "--two"));
}

// R43, threat G14
#[test]
fn name_file_name_type_bytes_and_order_count() {
    let bodies = [
        vec![file("f", "x", "a/b", "1")],
        vec![file("g", "x", "a/b", "1")],
        vec![file("f", "y", "a/b", "1")],
        vec![file("f", "x", "a/c", "1")],
        vec![file("f", "x", "a/b", "2")],
        vec![text("f", "1")],
        vec![text("f", "1"), text("g", "2")],
        vec![text("g", "2"), text("f", "1")],
        vec![],
    ];
    let forms: Vec<_> =
        bodies.iter().map(|parts| read(&render(parts, "b"), "b").unwrap()).collect();
    for (at, form) in forms.iter().enumerate() {
        assert!(!forms[at + 1..].contains(form), "{at}");
    }
}

// R43
#[test]
fn headers_of_a_part_may_be_spelled_and_ordered_otherwise() {
    let one = "--b\r\nContent-Disposition: form-data; name=\"a\"\r\nContent-Type: a/b\r\n\r\n1\r\n--b--\r\n";
    let two = "--b\r\ncontent-type:a/b\r\ncontent-disposition: Form-Data;name=a\r\n\r\n1\r\n--b--";
    assert_eq!(read(one, "b").unwrap(), read(two, "b").unwrap());
}

// R43, threat G14
#[test]
fn anything_odd_is_left_to_the_bytes() {
    let head = "Content-Disposition: form-data; name=\"a\"";
    let odd = [
        String::new(),
        "--b".into(),
        format!("preamble\r\n--b\r\n{head}\r\n\r\n1\r\n--b--\r\n"),
        format!("--b\r\n{head}\r\n\r\n1\r\n--b--\r\nepilogue"),
        format!("--b \r\n{head}\r\n\r\n1\r\n--b--\r\n"),
        format!("--b\r\n{head}\r\n\r\n1\r\n--bc--\r\n"),
        format!("--b\r\n{head}\r\n\r\n1\r\n"),
        format!("--b\n{head}\n\n1\n--b--\n"),
        format!("--b\r\n{head}\r\n{head}\r\n\r\n1\r\n--b--\r\n"),
        format!("--b\r\n{head}\r\n folded\r\n\r\n1\r\n--b--\r\n"),
        // To some readers this is a part without anything in it, and to others a field with the name `--b`.
        format!("--b\r\n--b: x\r\n{head}\r\n\r\n1\r\n--b--\r\n"),
        format!("--b\r\n{head}; filename*=UTF-8''x\r\n\r\n1\r\n--b--\r\n"),
        "--b\r\n\r\n1\r\n--b--\r\n".into(),
        "--b\r\nContent-Type: a/b\r\n\r\n1\r\n--b--\r\n".into(),
        "--b\r\nContent-Disposition: form-data\r\n\r\n1\r\n--b--\r\n".into(),
        "--b\r\nContent-Disposition: attachment; name=a\r\n\r\n1\r\n--b--\r\n".into(),
    ];
    for body in odd {
        assert_eq!(read(&body, "b"), Err(Odd), "{body:?}");
    }
    assert_eq!(canonical(render(&[text("a", "1")], "b").as_bytes(), None), Err(Odd));
}

// R17
#[test]
fn a_field_is_found_by_name_and_a_file_is_not() {
    let body = render(&[text("k", "1"), file("k", "x", "a/b", "2"), text("j", "3")], "b");
    assert_eq!(values(body.as_bytes(), Some(b"b"), "k"), Ok(vec![&b"1"[..]]));
}

proptest! {
    // R43, threat G14
    #[test]
    fn parts_are_equal_exactly_when_their_content_is(one in sent(), two in sent()) {
        let [first, again, second] = [(&one, "x1"), (&one, "y2"), (&two, "x1")]
            .map(|(parts, boundary)| read(&render(parts, boundary), boundary).unwrap());
        prop_assert_eq!(&first, &again);
        prop_assert_eq!(first == second, one == two);
    }

    // threat G14
    #[test]
    fn no_bytes_make_it_panic(body in "(--b|\r\n|--|Content-Disposition: form-data|; name=|\"|a|:){0,20}") {
        let _ = read(&body, "b");
    }
}

#[derive(Debug, Clone, PartialEq)]
struct Sent {
    name: String,
    file: Option<(String, String)>,
    content: String,
}

fn sent() -> impl Strategy<Value = Vec<Sent>> {
    let file = proptest::option::of(("[ab;]{0,2}", "[ab/]{1,3}"));
    let part = ("[ab;= ]{0,2}", file, "(\r|\n|-|a|:){0,6}");
    vec(part.prop_map(|(name, file, content)| Sent { name, file, content }), 0..4)
}

fn text(name: &str, content: &str) -> Sent {
    Sent { name: name.into(), file: None, content: content.into() }
}

fn file(name: &str, filename: &str, media: &str, content: &str) -> Sent {
    Sent { file: Some((filename.into(), media.into())), ..text(name, content) }
}

fn render(parts: &[Sent], boundary: &str) -> String {
    let parts: String = parts.iter().map(|part| render_part(part, boundary)).collect();
    format!("{parts}--{boundary}--\r\n")
}

fn render_part(Sent { name, file, content }: &Sent, boundary: &str) -> String {
    let rest = match file {
        Some((filename, media)) => format!("; filename=\"{filename}\"\r\nContent-Type: {media}"),
        None => String::new(),
    };
    format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"{rest}\r\n\r\n{content}\r\n"
    )
}

fn read(body: &str, boundary: &str) -> Result<Vec<u8>, Odd> {
    canonical(body.as_bytes(), Some(boundary.as_bytes()))
}
