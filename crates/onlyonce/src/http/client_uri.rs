//! The path that the client sent, where a router has changed it before the layer.

use std::borrow::Cow;

use http::Uri;
use http::request::Parts;

/// Put this among the extensions of a request to say which URI the client sent, where something in front of the layer
/// changes it: scope and fingerprint then use this path and query.
///
/// In axum 0.8 there is nothing to do for routers. A path that is a suffix of what the client sent is taken for what a
/// router left of it: where middleware rewrites a path in this way and means something else by it, insert a `ClientUri`
/// with the path that shall count. See [`Once::layer`](crate::Once::layer).
///
/// ```
/// use http::{Request, Uri};
/// use onlyonce::http::ClientUri;
///
/// let mut request = Request::post("/accounts/1/charges").body(())?;
/// let sent = request.uri().clone();
/// request.extensions_mut().insert(ClientUri(sent));
/// *request.uri_mut() = Uri::from_static("/charges"); // what a router makes of it
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientUri(pub Uri);

/// The path and query that scope and fingerprint count.
#[derive(Debug)]
pub(super) struct Sent<'a> {
    pub(super) path: Cow<'a, str>,
    pub(super) query: Option<Cow<'a, str>>,
}

impl<'a> Sent<'a> {
    pub(super) fn of(head: &'a Parts) -> Self {
        let seen = &head.uri;
        let Some(client) = client_uri(head) else {
            return Self {
                path: Cow::Borrowed(seen.path()),
                query: seen.query().map(Cow::Borrowed),
            };
        };
        let queries = (client.query(), seen.query().unwrap_or_default());
        Self {
            path: joined(client.path(), seen.path(), is_rest(client.path(), seen.path())),
            query: match queries {
                (None, "") => None,
                (client, seen) => {
                    let client = client.unwrap_or_default();
                    Some(joined(client, seen, client == seen))
                }
            },
        }
    }
}

/// The URI that the client sent, if something in front of the layer has passed it on.
fn client_uri(head: &Parts) -> Option<&Uri> {
    let ours = head.extensions.get::<ClientUri>().map(|client| &client.0);
    ours.or_else(|| head.extensions.get::<axum::extract::OriginalUri>().map(|original| &original.0))
}

/// Whether `seen` is the client's path without its beginning.
fn is_rest(client: &str, seen: &str) -> bool {
    seen == "/" || client.ends_with(seen)
}

/// The client's text if it contains the text that the layer sees, else both with a space between: a text that was
/// changed in another way may say more than the client's own, such as a tenant from a header. Neither has a space.
fn joined<'a>(client: &'a str, seen: &str, is_contained: bool) -> Cow<'a, str> {
    match is_contained {
        true => Cow::Borrowed(client),
        false => Cow::Owned(format!("{client} {seen}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // threat K2
    #[test]
    fn what_the_client_sent_counts_and_what_was_made_of_it_only_if_it_says_more() {
        let cases = [
            ("/a/1/charges", "/charges", "/a/1/charges", None),
            ("/a/1", "/", "/a/1", None),
            ("/a/1/", "/", "/a/1/", None),
            ("/charges", "/charges", "/charges", None),
            ("/charges", "/tenant/charges", "/charges /tenant/charges", None),
            ("/charges?x=1", "/charges?x=1", "/charges", Some("x=1")),
            ("/charges?x=1", "/charges", "/charges", Some("x=1 ")),
            ("/charges", "/charges?x=1", "/charges", Some(" x=1")),
            ("/charges?", "/charges", "/charges", Some("")),
        ];
        for (client, seen, path, query) in cases {
            let (mut head, ()) = http::Request::post(seen).body(()).unwrap().into_parts();
            head.extensions.insert(ClientUri(client.parse().unwrap()));
            let sent = Sent::of(&head);
            assert_eq!((&*sent.path, sent.query.as_deref()), (path, query), "{client} {seen}");
        }
    }

    #[test]
    fn our_own_word_goes_before_that_of_axum() {
        let (mut head, ()) = http::Request::post("/c").body(()).unwrap().into_parts();
        head.extensions.insert(axum::extract::OriginalUri(Uri::from_static("/a/c")));
        assert_eq!(Sent::of(&head).path, "/a/c");
        head.extensions.insert(ClientUri(Uri::from_static("/b/a/c")));
        assert_eq!(Sent::of(&head).path, "/b/a/c");
    }
}
