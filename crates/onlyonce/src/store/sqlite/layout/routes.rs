//! The texts of routes: each is written once, and rows name it by number.

use std::collections::HashMap;
use std::sync::Arc;

use crate::store::sqlite::index::id_hash::Keyed;
use crate::store::sqlite::layout::rows::Routes;

/// The routes that have a row, those of the open batch included.
pub(crate) struct Interned {
    pub(crate) routes: Routes,
    by_text: HashMap<Arc<str>, i64>,
    pub(crate) keyed: Keyed,
}

impl Interned {
    pub(crate) fn new(routes: Routes) -> Self {
        let by_text = routes.iter().map(|(route, row)| (route.clone(), row)).collect();
        Self { routes, by_text, keyed: Keyed::new() }
    }

    pub(crate) fn get(&self, route: &str) -> Option<i64> {
        self.by_text.get(route).copied()
    }

    pub(crate) fn push(&mut self, route: Arc<str>) -> i64 {
        let row = self.routes.push(route.clone());
        self.by_text.insert(route, row);
        row
    }

    pub(crate) fn len(&self) -> usize {
        self.routes.len()
    }

    /// Forgets those that a rollback took back.
    pub(crate) fn truncate(&mut self, length: usize) {
        self.routes.truncate(length);
        self.by_text.retain(|_, row| *row <= length as i64);
    }
}
