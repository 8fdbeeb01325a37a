//! `[seal]`: the keys that answers and keys are sealed with in the store.

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
    match field.is_elsewhere()? {
        true => field.confidentially_parsed(),
        false => Err(field.refused()),
    }
}

const KEYS_MAX: usize = 16;
