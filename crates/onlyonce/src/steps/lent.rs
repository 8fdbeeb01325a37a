//! A value that is lent to a closure, and comes back when the closure drops it.
//!
//! A closure that borrowed its transaction could not be part of a future that is `Send`: the compiler cannot say so yet for
//! async closures with borrowed parameters.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

/// The value, while it is lent.
pub(super) struct Lent<T> {
    value: Option<T>,
    home: Home<T>,
}

/// Where the value comes back to.
pub(super) struct Home<T>(Arc<Mutex<Option<T>>>);

pub(super) fn lend<T>(value: T) -> (Lent<T>, Home<T>) {
    let home = Arc::new(Mutex::new(None));
    (Lent { value: Some(value), home: Home(home.clone()) }, Home(home))
}

impl<T> Home<T> {
    /// The value, if it has come back.
    pub(super) fn take(&self) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl<T> Deref for Lent<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect(LENT)
    }
}

impl<T> DerefMut for Lent<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect(LENT)
    }
}

impl<T> Drop for Lent<T> {
    fn drop(&mut self) {
        let home = &self.home.0;
        *home.lock().unwrap_or_else(PoisonError::into_inner) = self.value.take();
    }
}

impl<T> fmt::Debug for Lent<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lent(..)")
    }
}

const LENT: &str = "the value is there until it is dropped";
