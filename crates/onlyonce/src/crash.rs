//! Named places at which a process can be made to die, for the tests that kill it. Without the feature `crashpoints`
//! there is nothing here.

/// The places, and their names for `ONLYONCE_CRASH`. This is the only list of them.
macro_rules! points {
    ($($(#[doc = $doc:literal])* $point:ident = $name:literal,)*) => {
        /// A place at which the process can be made to die.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[cfg_attr(
            all(not(feature = "tower"), not(feature = "crashpoints")),
            expect(dead_code, reason = "some places are in the layer")
        )]
        #[cfg_attr(
            not(feature = "crashpoints"),
            expect(unreachable_pub, reason = "public for the tests that name them")
        )]
        pub enum CrashPoint {
            $($(#[doc = $doc])* $point,)*
        }

        #[cfg(feature = "crashpoints")]
        impl CrashPoint {
            /// Every place, in the order in which an operation meets them.
            pub const ALL: &[Self] = &[$(Self::$point,)*];

            /// Its name in `ONLYONCE_CRASH`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$point => $name,)*
                }
            }
        }
    };
}

points! {
    /// Before the claim is made.
    BeforeClaim = "before_claim",
    /// The claim is on its way, and has no answer yet.
    ClaimSent = "claim_sent",
    /// The store has taken the claim, and nothing was sent.
    AfterClaim = "after_claim",
    /// A record without an owner was taken over.
    AfterTakeover = "after_takeover",
    /// The request is on its way to the service.
    AfterDispatch = "after_dispatch",
    /// The service has answered.
    AfterUpstream = "after_upstream",
    /// The outcome is on its way to the store.
    SettleSent = "settle_sent",
    /// The outcome is in the store, and nobody was told.
    AfterSettle = "after_settle",
    /// The answer is ready for the client.
    BeforeReply = "before_reply",
    /// The renewal of leases is on its way.
    InRenewal = "in_renewal",
    /// The records of silent owners are looked for.
    InReap = "in_reap",
    /// The record of a silent owner was marked unknown.
    AfterReap = "after_reap",
    /// A sweep is on its way.
    InSweep = "in_sweep",
}

#[cfg(not(feature = "crashpoints"))]
mod off {
    use super::CrashPoint;

    /// Nothing.
    #[inline(always)]
    pub(crate) fn crash_point(_: CrashPoint) {}

    /// The call itself.
    #[inline(always)]
    pub(crate) fn crash_during<F>(_: CrashPoint, call: F) -> F {
        call
    }
}

#[cfg(feature = "crashpoints")]
mod on {
    use std::io::Write;
    use std::pin::pin;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;
    use std::{env, process, thread};

    use rustix::process::{Signal, getpid, kill_process};
    use rustix::time::{ClockId, clock_gettime};

    use super::CrashPoint;

    /// What `ONLYONCE_CRASH=POINT:N:ACTION` asks for: at the Nth time that POINT is met, `kill`, `stop`, `abort`, or
    /// `sleep_MS`.
    #[derive(Debug)]
    struct Plan {
        point: &'static str,
        left: AtomicU32,
        action: Action,
    }

    #[derive(Clone, Copy, Debug)]
    enum Action {
        Kill,
        Stop,
        Abort,
        Sleep(Duration),
    }

    /// Does what was asked for, if this is the place and the time.
    pub(crate) fn crash_point(point: CrashPoint) {
        if let Some(action) = due(point) {
            act(point, action);
        }
    }

    /// Makes the call, and once it is on its way does what was asked for, at any moment of the next milliseconds.
    pub(crate) async fn crash_during<F: Future>(point: CrashPoint, call: F) -> F::Output {
        let mut call = pin!(call);
        let mut is_met = false;
        std::future::poll_fn(|cx| {
            let polled = call.as_mut().poll(cx);
            let is_sent = polled.is_pending() && !std::mem::replace(&mut is_met, true);
            if let Some(action) = is_sent.then(|| due(point)).flatten() {
                thread::spawn(move || {
                    thread::park_timeout(Duration::from_micros(u64::from(jitter()) % JITTER_US));
                    act(point, action);
                });
            }
            polled
        })
        .await
    }

    fn due(point: CrashPoint) -> Option<Action> {
        let plan = plan()?;
        let is_last = plan.point == point.name() && plan.left.fetch_sub(1, Ordering::SeqCst) == 1;
        is_last.then_some(plan.action)
    }

    fn act(point: CrashPoint, action: Action) {
        let now = clock_gettime(ClockId::Monotonic);
        let line = format!("crash point {} at {}.{:09}\n", point.name(), now.tv_sec, now.tv_nsec);
        // One write, so that the line is whole. Without a reader there is nobody to tell.
        let _ = std::io::stderr().write_all(line.as_bytes());
        match action {
            // The process ends, or stands still, before the call returns.
            Action::Kill => signal(Signal::KILL),
            Action::Stop => signal(Signal::STOP),
            Action::Abort => process::abort(),
            Action::Sleep(pause) => thread::park_timeout(pause),
        }
    }

    fn signal(signal: Signal) {
        // Nobody is refused a signal to itself.
        let _ = kill_process(getpid(), signal);
    }

    fn plan() -> Option<&'static Plan> {
        static PLAN: OnceLock<Option<Plan>> = OnceLock::new();
        let read = || {
            let text = env::var("ONLYONCE_CRASH").ok()?;
            let plan = parse(&text);
            Some(plan.unwrap_or_else(|| panic!("ONLYONCE_CRASH is not POINT:N:ACTION: {text}")))
        };
        PLAN.get_or_init(read).as_ref()
    }

    fn parse(text: &str) -> Option<Plan> {
        let mut words = text.split(':');
        let (point, left, action) = (words.next()?, words.next()?, words.next()?);
        let point = CrashPoint::ALL.iter().find(|known| known.name() == point)?;
        let action = match action {
            "kill" => Action::Kill,
            "stop" => Action::Stop,
            "abort" => Action::Abort,
            other => {
                Action::Sleep(Duration::from_millis(other.strip_prefix("sleep_")?.parse().ok()?))
            }
        };
        Some(Plan { point: point.name(), left: AtomicU32::new(left.parse().ok()?), action })
    }

    fn jitter() -> u32 {
        clock_gettime(ClockId::Monotonic).tv_nsec.unsigned_abs() as u32 / 1_000
    }

    /// How long after the call was made the process may still live.
    const JITTER_US: u64 = 3_000;

    #[cfg(test)]
    mod tests {
        use super::parse;

        #[test]
        fn a_plan_names_a_known_point_a_count_and_an_action() {
            for good in ["after_claim:3:kill", "in_sweep:1:stop", "before_reply:2:sleep_50"] {
                assert!(parse(good).is_some(), "{good}");
            }
            for bad in ["after_claim", "nowhere:1:kill", "after_claim:x:kill", "in_reap:1:sleep"] {
                assert!(parse(bad).is_none(), "{bad}");
            }
        }
    }
}

#[cfg(not(feature = "crashpoints"))]
pub(crate) use self::off::{crash_during, crash_point};
#[cfg(feature = "crashpoints")]
pub(crate) use self::on::{crash_during, crash_point};
