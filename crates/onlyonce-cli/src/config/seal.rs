//! `[seal]`: the keys that answers and keys are sealed with in the store.

use std::fs::File;
use std::io::Read;

use onlyonce::store::sealed::SealKey;

use super::error::{Remark, Remarks};
use super::field::Field;
use super::names::SEAL;

/// The keys in the order of the file: the first seals, all of them open.
pub(super) fn read(field: Field<'_>) -> Result<Vec<SealKey>, Remarks> {
    let mut keys = Vec::new();
    field.each(&SEAL, |field| {
        keys = field.all(key)?;
        Ok(())
    })?;
    match keys.len() {
        0 => Err(field.wrong("it needs `keys`, such as keys = [\"env:ONLYONCE_SEAL\"]").into()),
        1..=KEYS_MAX => Ok(keys),
        _ => Err(field.wrong("it has more than 16 keys").into()),
    }
}

/// Never written in the file itself: whoever reads the configuration would read the store.
fn key(field: Field<'_>) -> Result<SealKey, Remark> {
    let text = field.text()?;
    let key = match text.split_once(':') {
        Some(("env", _)) => field.confidential()?,
        Some(("file", path)) => from_file(path)
            .map_err(|error| field.wrong(&format!("the file {path:?} cannot be read: {error}")))?,
        _ => return Err(field.refused()),
    };
    key.parse().map_err(|error| field.because(&error))
}

fn from_file(path: &str) -> std::io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

const KEYS_MAX: usize = 16;
/// More than any spelling of a key has.
const FILE_BYTES_MAX: u64 = 1024;
