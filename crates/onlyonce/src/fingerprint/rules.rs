//! What of a request counts.

use super::Pointer;

/// How requests are compared.
///
/// `include` and `exclude` apply to JSON bodies that are compared by meaning, and are ignored elsewhere: in other
/// modes, for other media types, and where a body falls back to its bytes.
///
/// ```
/// use onlyonce::fingerprint::FingerprintRules;
///
/// let rules = FingerprintRules { exclude: vec!["/sent_at".parse()?], ..FingerprintRules::default() };
/// # Ok::<(), onlyonce::fingerprint::PointerError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FingerprintRules {
    /// Whether bodies are compared, and by what. Default: by meaning where it is known.
    pub mode: FingerprintMode,
    /// Only the values at these places count, if there are any places. An absent value is not `null`. Default: none.
    pub include: Vec<Pointer>,
    /// The values at these places do not count, not even where they are included. Default: none.
    pub exclude: Vec<Pointer>,
}

/// What of the body is compared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FingerprintMode {
    /// Its meaning for JSON, forms and multipart, else its bytes.
    #[default]
    Auto,
    /// Its bytes.
    Raw,
    /// Nothing: any request with a known key is answered with what is stored. Only for clients that are trusted
    /// to never use a key twice.
    None,
}
