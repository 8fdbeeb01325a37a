//! Tells the service manager how it goes: the protocol of sd_notify(3), a datagram to the socket in `NOTIFY_SOCKET`.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The service manager, if there is one that listens.
pub(super) struct ServiceManager {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// How often it wants to hear that the process lives.
    watchdog: Option<Duration>,
}

impl ServiceManager {
    pub(super) fn from_environment() -> Self {
        let variable = |name: &str| std::env::var(name).ok();
        let is_for_us =
            variable("WATCHDOG_PID").is_none_or(|pid| pid.parse() == Ok(std::process::id()));
        let within_us = variable("WATCHDOG_USEC").and_then(|text| text.parse().ok());
        let watchdog = within_us.filter(|within_us| is_for_us && *within_us > 0);
        Self {
            socket: variable("NOTIFY_SOCKET").and_then(|path| connect(&path)),
            watchdog: watchdog.map(Duration::from_micros),
        }
    }

    pub(super) fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={}\n", status.replace('\n', " ")));
    }

    pub(super) fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let now_us = now.tv_sec.saturating_mul(1_000_000).saturating_add(now.tv_nsec / 1000);
        self.send(&format!(
            "RELOADING=1\nMONOTONIC_USEC={now_us}\nSTATUS=reading the configuration again\n"
        ));
    }

    pub(super) fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=waiting for what is under way\n");
    }

    /// Says for ever, twice in the time that the watchdog grants, that the main thread runs.
    pub(super) async fn keep_alive(&self) {
        let Some(within) = self.watchdog else {
            return std::future::pending().await;
        };
        let mut ticks = tokio::time::interval(within / 2);
        loop {
            ticks.tick().await;
            self.send("WATCHDOG=1\n");
        }
    }

    /// A manager that does not listen is its own affair.
    fn send(&self, message: &str) {
        if let Some((socket, address)) = &self.socket {
            let _ = socket.send_to_addr(message.as_bytes(), address);
        }
    }
}

/// A path, or `@` and a name in the abstract namespace.
fn connect(path: &str) -> Option<(UnixDatagram, SocketAddr)> {
    let address = match path.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(path),
    };
    Some((UnixDatagram::unbound().ok()?, address.ok()?))
}
