//! Kills the service at a moment that others see.

use std::process::Child;
use std::sync::Mutex;

use tokio::sync::Notify;

/// A moment of a charge, as the services around it see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// The database has ended so many transactions, and its answer is on the way.
    Reply(u32),
    /// The card network has the call, and has not charged.
    CardCalled,
    /// The card network has charged, and has not answered.
    CardCharged,
    /// The mail service has sent the mail, and has not answered.
    Mailed,
    /// The consumer has taken the event, and has not acknowledged it.
    Published,
}

/// Armed with a victim and a moment, it kills once.
#[derive(Debug, Default)]
pub(crate) struct Trigger {
    armed: Mutex<Option<(Moment, Child)>>,
    killed: Notify,
}

impl Trigger {
    pub(crate) fn arm(&self, moment: Moment, victim: Child) {
        *self.armed.lock().unwrap() = Some((moment, victim));
    }

    /// Waits until the victim is dead.
    pub(crate) async fn killed(&self) {
        self.killed.notified().await;
    }

    /// The moment is here; true if the victim was killed for it.
    pub(crate) fn reach(&self, moment: Moment) -> bool {
        let mut armed = self.armed.lock().unwrap();
        if !matches!(*armed, Some((wanted, _)) if wanted == moment) {
            return false;
        }
        self.kill(armed.take());
        true
    }

    /// The database has ended one more transaction; true if the victim was killed for it.
    pub(crate) fn reach_reply(&self) -> bool {
        let mut armed = self.armed.lock().unwrap();
        match &mut *armed {
            Some((Moment::Reply(1), _)) => self.kill(armed.take()),
            Some((Moment::Reply(left), _)) => {
                *left -= 1;
                return false;
            }
            _ => return false,
        }
        true
    }

    fn kill(&self, armed: Option<(Moment, Child)>) {
        let (_, mut victim) = armed.unwrap();
        victim.kill().unwrap();
        victim.wait().unwrap();
        self.killed.notify_one();
    }
}
