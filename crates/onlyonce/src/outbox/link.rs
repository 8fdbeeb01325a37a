//! A connection that is made when there is a message, and made anew after one that got no answer.

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where a sink keeps its connection.
#[derive(Debug)]
pub(super) struct Link<C> {
    kept: Mutex<Option<Arc<C>>>,
    /// Held while a connection is made: the others need the same one.
    making: tokio::sync::Mutex<()>,
}

impl<C> Link<C> {
    /// Not connected yet.
    pub(super) fn new() -> Self {
        Self { kept: Mutex::new(None), making: tokio::sync::Mutex::new(()) }
    }

    /// The connection that is kept, or the one that `connect` makes.
    pub(super) async fn lend<E>(
        &self,
        connect: impl Future<Output = Result<C, E>>,
    ) -> Result<Lent<'_, C>, E> {
        let _making = self.making.lock().await;
        let kept = self.kept().clone();
        let connection = match kept {
            Some(connection) => connection,
            None => {
                let made = Arc::new(connect.await?);
                self.kept().insert(made).clone()
            }
        };
        Ok(Lent { link: self, connection, is_sound: false })
    }

    fn kept(&self) -> MutexGuard<'_, Option<Arc<C>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection in use. Dropped without [`Lent::give_back`], as when a send is given up in the middle, it is forgotten:
/// nobody knows whether it will ever answer.
pub(super) struct Lent<'a, C> {
    link: &'a Link<C>,
    connection: Arc<C>,
    is_sound: bool,
}

impl<C> Lent<'_, C> {
    /// It has answered.
    pub(super) fn give_back(mut self) {
        self.is_sound = true;
    }
}

impl<C> Deref for Lent<'_, C> {
    type Target = C;

    fn deref(&self) -> &C {
        &self.connection
    }
}

impl<C> Drop for Lent<'_, C> {
    fn drop(&mut self) {
        if !self.is_sound {
            self.link.kept().take_if(|kept| Arc::ptr_eq(kept, &self.connection));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::ready;

    use super::*;

    async fn lent(link: &Link<u32>, number: u32) -> Lent<'_, u32> {
        link.lend(ready(Ok::<_, Infallible>(number))).await.unwrap()
    }

    #[tokio::test]
    async fn a_connection_is_kept_while_it_answers() {
        let link = Link::new();
        lent(&link, 1).await.give_back();
        assert_eq!(*lent(&link, 2).await, 1);
        // That one was dropped without an answer.
        assert_eq!(*lent(&link, 3).await, 3);
    }

    #[tokio::test]
    async fn a_late_failure_does_not_forget_the_connection_that_came_after() {
        let link = Link::new();
        let (first, second) = (lent(&link, 1).await, lent(&link, 2).await);
        drop(first);
        lent(&link, 3).await.give_back();
        drop(second);
        assert_eq!(*lent(&link, 4).await, 3);
    }
}
