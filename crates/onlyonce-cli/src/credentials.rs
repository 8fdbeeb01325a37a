//! What in a request may say who asks: the one list.
//!
//! 1. A few headers are credentials that are the same in each retry. All of them together are the caller.
//! 2. A header with a word such as `token` in its name looks like a credential. Nobody guesses whether it names the caller.
//! 3. Some headers only look like one, and some cookies are known to name nobody: they do not count.
//!
//! Names of gRPC metadata are names of headers, and those that end in `-bin` are found by the same words.

use http::header::{self, HeaderName};

/// What a header says of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It is the credential at this place of [`REPEATING`].
    Credential(usize),
    /// It has cookies, each of which may name the caller.
    Cookies,
    /// It looks like a credential, and may name the caller.
    Unknown,
    /// Nothing.
    Nothing,
}

/// What this header says of its caller.
pub(crate) fn role(header: &HeaderName) -> Role {
    let name = header.as_str();
    if COMMON.contains(&name) || !has_word(name) {
        return Role::Nothing;
    }
    match REPEATING.iter().position(|known| known == header) {
        Some(place) => Role::Credential(place),
        None if header == header::COOKIE => Role::Cookies,
        None if is_no_credential(name) => Role::Nothing,
        None => Role::Unknown,
    }
}

/// Headers that are the same in each retry of a caller.
pub(crate) static REPEATING: [HeaderName; REPEATING_COUNT] = [
    header::AUTHORIZATION,
    HeaderName::from_static("x-api-key"),
    // One key of Stripe's speaks for many accounts, and these say for which.
    HeaderName::from_static("stripe-account"),
    HeaderName::from_static("stripe-context"),
];
pub(crate) const REPEATING_COUNT: usize = 4;

/// What nearly every request has, and is no credential: to compare whole names is quicker than to look for words in them.
const COMMON: [&str; 16] = [
    "host",
    "user-agent",
    "accept",
    "content-type",
    "content-length",
    "idempotency-key",
    "accept-encoding",
    "accept-language",
    "connection",
    "origin",
    "referer",
    "te",
    "traceparent",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-request-id",
];

/// A name with one of these in it looks like that of a credential.
const WORDS: [&str; 29] = [
    "account",
    "assertion",
    "auth",
    "client-cert",
    "client-dn",
    "client-id",
    "client-s-dn",
    "clientcert",
    "consumer",
    "cookie",
    "credential",
    "customer",
    "email",
    "identity",
    "jwt",
    "key",
    "login",
    "oidc",
    "passw",
    "principal",
    "secret",
    "session",
    "signature",
    "ssl-cert",
    "ssl-client",
    "stripe-context",
    "tenant",
    "token",
    "user",
];

/// Every keyed request has a dozen names, and few of them have a word: most places of a name end at one look into a table.
fn has_word(name: &str) -> bool {
    let mut rest = name.as_bytes();
    while let [first, second, third, ..] = rest {
        let first = usize::from(*first);
        let (seconds, thirds) = (LETTERS[first].seconds, LETTERS[first].thirds);
        let may_begin = seconds >> (second & LOW_BITS) & thirds >> (third & LOW_BITS) & 1 == 1;
        if may_begin && LETTERS[first].words().any(|word| rest.starts_with(word.as_bytes())) {
            return true;
        }
        rest = &rest[1..];
    }
    false
}

/// The words that begin with one letter.
#[derive(Clone, Copy)]
struct Letter {
    /// Their second letters, and their third ones, a bit each. Other characters may share a bit with a letter.
    seconds: u32,
    thirds: u32,
    /// Their places among [`WORDS`].
    begin: usize,
    end: usize,
}

impl Letter {
    fn words(&self) -> impl Iterator<Item = &'static str> {
        WORDS[self.begin..self.end].iter().copied()
    }
}

static LETTERS: [Letter; 256] = {
    let mut letters = [Letter { seconds: 0, thirds: 0, begin: 0, end: 0 }; 256];
    let mut at = 0;
    while at < WORDS.len() {
        let word = WORDS[at].as_bytes();
        let letter = &mut letters[word[0] as usize];
        if letter.end == 0 {
            letter.begin = at;
        }
        assert!(letter.end == 0 || letter.end == at, "the words are in the order of the alphabet");
        letter.end = at + 1;
        letter.seconds |= 1 << (word[1] & LOW_BITS);
        letter.thirds |= 1 << (word[2] & LOW_BITS);
        at += 1;
    }
    letters
};
/// What tells letters apart.
const LOW_BITS: u8 = 0b1_1111;

/// Whether a name with such a word is known to be no credential's.
fn is_no_credential(name: &str) -> bool {
    let names_software = name.strip_suffix("user-agent").is_some_and(|rest| !has_word(rest));
    names_software || name.contains("idempoten") || NO_CREDENTIALS.contains(&name)
}

/// What looks like a credential, and is none of a caller's.
const NO_CREDENTIALS: [&str; 28] = [
    // Tokens against forged requests of browsers: they come beside a credential, and are none.
    "anti-csrf-token",
    "csrf-token",
    "csrftoken",
    "requestverificationtoken",
    "x-atlassian-token",
    "x-csrf-token",
    "x-csrftoken",
    "x-xsrf-token",
    "xsrf-token",
    // Of browsers: a click, a handshake, an anonymous voucher.
    "sec-fetch-user",
    "sec-private-state-token",
    "sec-private-state-token-crypto-version",
    "sec-websocket-key",
    // A puzzle that a person has solved.
    "g-recaptcha-response-token",
    "x-captcha-token",
    "x-recaptcha-token",
    // A payment is no caller: a retry may carry another one.
    "payment-signature",
    // For the proxy itself, which does not send it on.
    "proxy-authenticate",
    "proxy-authorization",
    // The host, by its name in HTTP/2.
    "authority",
    // A retry may come in another session of the protocol, which is no authentication.
    "mcp-session-id",
    // Of hosting platforms: the site, the address of the client, the platform itself.
    "x-appengine-user-ip",
    "x-nf-account-id",
    "x-nf-account-tier",
    "x-vercel-proxy-signature",
    "x-vercel-proxy-signature-ts",
    // Of software that says what it is.
    "x-okta-user-agent-extended",
    // An attribute of an event, by which brokers choose a partition.
    "ce-partitionkey",
];

/// The name of the first cookie of this field that may name the caller, if there is one; empty for a cookie without a name.
pub(crate) fn cookie_of_a_caller(field: &[u8]) -> Option<&[u8]> {
    let pairs = field.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    let mut names = pairs.filter_map(|pair| {
        let (name, value) = cookie(pair);
        (!is_empty_cookie(value)).then_some(name)
    });
    names.find(|name| !is_cookie_of_nobody(name))
}

/// Name and value of a cookie. Browsers take one without `=` for a value that has no name.
pub(crate) fn cookie(pair: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memchr(b'=', pair) {
        Some(equals) => (pair[..equals].trim_ascii(), pair[equals + 1..].trim_ascii()),
        None => (b"", pair.trim_ascii()),
    }
}

/// Whether a cookie with this value is as good as none.
pub(crate) fn is_empty_cookie(value: &[u8]) -> bool {
    matches!(value, b"" | b"\"\"")
}

fn is_cookie_of_nobody(name: &[u8]) -> bool {
    COOKIES_OF_NOBODY.iter().any(|known| known.as_bytes() == name)
        || BEGINNINGS_OF_NOBODY.iter().any(|known| name.starts_with(known.as_bytes()))
        || (name.starts_with(b"mp_") && name.ends_with(b"_mixpanel"))
}

/// Cookies of analytics, advertising, consent, load balancers and checks for bots: no service knows its users by them.
const COOKIES_OF_NOBODY: [&str; 58] = [
    // Google Analytics, Tag Manager and Ads
    "_ga",
    "_gali",
    "_gat",
    "_gid",
    "__gads",
    "__gpi",
    // Meta, Microsoft, TikTok, Snap, Pinterest, Reddit, LinkedIn
    "_fbc",
    "_fbp",
    "MUID",
    "_clck",
    "_clsk",
    "_uetsid",
    "_uetvid",
    "_tt_enable_cookie",
    "_ttp",
    "_scid",
    "_scid_r",
    "_pin_unauth",
    "_rdt_uuid",
    "bcookie",
    "li_gc",
    "lidc",
    // HubSpot, Segment, Optimizely, Datadog, Visual Website Optimizer, New Relic
    "__hssc",
    "__hssrc",
    "__hstc",
    "hubspotutk",
    "ajs_anonymous_id",
    "optimizelyEndUserId",
    "_dd_s",
    "_vwo_uuid",
    "_vwo_uuid_v2",
    "NRBA_SESSION",
    // Shopify's and Stripe's own statistics and checks for fraud
    "_shopify_s",
    "_shopify_y",
    "__stripe_mid",
    "__stripe_sid",
    // Consent
    "CookieConsent",
    "OptanonAlertBoxClosed",
    "OptanonConsent",
    "cookieyes-consent",
    "euconsent-v2",
    // Load balancers
    "ARRAffinity",
    "ARRAffinitySameSite",
    "AWSALB",
    "AWSALBCORS",
    "AWSALBTG",
    "AWSALBTGCORS",
    "AWSELB",
    "AWSELBCORS",
    "GCLB",
    "__cflb",
    // Checks for bots
    "__cf_bm",
    "__cfruid",
    "_cfuvid",
    "cf_clearance",
    "_abck",
    "ak_bmsc",
    "datadome",
];

/// How such cookies begin that have an id in their name.
const BEGINNINGS_OF_NOBODY: [&str; 15] = [
    // Google
    "_ga_",
    "_gac_",
    "_gat_",
    "_gcl_",
    "__utm",
    // Hotjar, Matomo, Mixpanel, Amplitude, PostHog, Intercom's visitors
    "_hj",
    "_pk_cvar.",
    "_pk_hsr.",
    "_pk_id.",
    "_pk_ref.",
    "_pk_ses.",
    "amplitude_id_",
    "AMP_MKTG_",
    "ph_phc_",
    // Imperva
    "visid_incap_",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_common_are_no_credentials_by_the_other_rules_either() {
        for name in COMMON {
            assert!(!has_word(name) || is_no_credential(name), "{name}");
        }
    }

    #[test]
    fn every_word_is_found_wherever_it_stands() {
        for word in WORDS {
            for name in
                [word.to_owned(), format!("x-{word}"), format!("x{word}-id"), format!("my_{word}")]
            {
                assert!(has_word(&name), "{name}");
            }
            assert!(!has_word(&word[..word.len() - 1]) || word == "client-s-dn", "{word}");
        }
        for name in
            ["", "x", "te", "x-tok-en", "content-md5", "keep-alive", "x-real-ip", "cdn-loop"]
        {
            assert!(!has_word(name), "{name}");
        }
        for exception in NO_CREDENTIALS {
            let is_needed = has_word(exception);
            assert!(is_needed && is_no_credential(exception), "{exception}");
        }
    }
}
