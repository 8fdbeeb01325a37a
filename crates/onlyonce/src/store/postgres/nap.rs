//! A wait that is shorter than the runtime's own timer can make: that one counts milliseconds.

use std::time::Duration;

#[cfg(target_os = "linux")]
pub(super) use self::linux::Nap;
#[cfg(not(target_os = "linux"))]
pub(super) use self::none::Nap;

#[cfg(target_os = "linux")]
mod linux {
    use std::io;
    use std::os::fd::OwnedFd;

    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use tokio::io::unix::AsyncFd;

    use super::Duration;

    /// One sleeper.
    pub(in super::super) struct Nap {
        timer: Option<AsyncFd<OwnedFd>>,
    }

    impl Nap {
        /// On the runtime of the caller. Without a timer there are no naps.
        pub(in super::super) fn new() -> Self {
            Self { timer: timer().ok() }
        }

        /// Sleeps for `length`, less than a second.
        pub(in super::super) async fn sleep(&self, length: Duration) {
            if let Some(timer) = &self.timer {
                // A timer that fails is a nap that is over.
                let _ = sleep(timer, length).await;
            }
        }
    }

    #[expect(
        deprecated,
        reason = "its successor is for any type and so unsafe; a descriptor that is owned stays open"
    )]
    fn timer() -> io::Result<AsyncFd<OwnedFd>> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        AsyncFd::new(timerfd_create(TimerfdClockId::Monotonic, flags)?)
    }

    async fn sleep(timer: &AsyncFd<OwnedFd>, length: Duration) -> io::Result<()> {
        let once = Timespec { tv_sec: 0, tv_nsec: length.subsec_nanos().max(1).into() };
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let spec = Itimerspec { it_interval: never, it_value: once };
        timerfd_settime(timer, TimerfdTimerFlags::empty(), &spec)?;
        loop {
            let mut ready = timer.readable().await?;
            let mut rings = [0; 8];
            let rung = ready.try_io(|timer| Ok(rustix::io::read(timer, &mut rings)?));
            if let Ok(rung) = rung {
                return rung.map(drop);
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod none {
    use super::Duration;

    /// No sleeper.
    pub(in super::super) struct Nap;

    impl Nap {
        pub(in super::super) fn new() -> Self {
            Self
        }

        pub(in super::super) async fn sleep(&self, _: Duration) {}
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::clock::{Clock, SystemClock};

    #[tokio::test(flavor = "current_thread")]
    async fn a_nap_lasts_as_long_as_it_was_asked_to_and_again() {
        let nap = Nap::new();
        for length in [300, 50, 700].map(Duration::from_micros) {
            let begun = SystemClock.boot();
            nap.sleep(length).await;
            let slept = SystemClock.boot() - begun;
            assert!(slept >= length, "{slept:?} of {length:?}");
        }
    }
}
