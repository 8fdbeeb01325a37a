//! The disk below a store file, and who may read the file.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{StatVfsMountFlags, statfs, statvfs};

use super::report::{Finding, Promise};

/// What is known of a file and its file system.
#[derive(Clone, Copy, Debug)]
pub(super) struct Disk {
    /// The number by which the kernel knows the kind of file system.
    kind: u64,
    free_bytes: u64,
    is_read_only: bool,
    /// Permission bits of the file; `None` if there is none.
    mode: Option<u32>,
}

impl Disk {
    /// Of `path`, or of its directory if there is no such file.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let mode = fs::metadata(path).ok().map(|found| found.mode() & 0o777);
        let there = if mode.is_some() { path } else { path.parent().unwrap_or(path) };
        let (kind, space) = (statfs(there)?, statvfs(there)?);
        Ok(Self {
            kind: kind.f_type.cast_unsigned(),
            free_bytes: space.f_bavail.saturating_mul(space.f_frsize),
            is_read_only: space.f_flag.contains(StatVfsMountFlags::RDONLY),
            mode,
        })
    }

    pub(super) fn judge(&self) -> Vec<Finding> {
        let mut findings = vec![self.judge_kind(), self.judge_space()];
        findings.extend(self.mode.map(judge_mode));
        findings
    }

    fn judge_kind(&self) -> Finding {
        let (promise, setting) = (Promise::Durable, "file system");
        let known = KINDS.iter().find(|(kind, _, _)| *kind == self.kind);
        match known {
            Some((_, name, Why::Memory)) => Finding::broken(
                promise,
                setting,
                format!("{name} is memory: at a restart of the machine every key is forgotten"),
                "put the file on a local disk",
            ),
            Some((_, name, Why::Network)) => Finding::broken(
                promise,
                setting,
                format!("{name} is not a local disk: its locks and syncs cannot be relied on"),
                "put the file on a local disk, or use postgres:// for many nodes",
            ),
            Some((_, name, Why::Container)) => Finding::at_risk(
                promise,
                setting,
                format!("{name}: if this is the layer of a container, the file goes with it"),
                "put the file on a volume",
            ),
            None => Finding::holds(promise, setting, "a local disk"),
        }
    }

    fn judge_space(&self) -> Finding {
        let (promise, setting, mib) = (Promise::Capacity, "disk", self.free_bytes >> 20);
        let fix =
            "make room, or move the file to a larger disk; `onlyonce plan` says how much it needs";
        if self.is_read_only {
            let told = "the file system is mounted read-only: no request with a key is taken";
            return Finding::broken(promise, setting, told, "mount it read-write");
        }
        match self.free_bytes {
            ..FREE_BYTES_MIN => {
                let told = format!(
                    "{mib} MiB are free: it is nearly full, and a full one refuses every request with a key"
                );
                Finding::broken(promise, setting, told, fix)
            }
            FREE_BYTES_MIN..FREE_BYTES_LOW => {
                let told = format!("{mib} MiB are free; the log alone may take 256 MiB");
                Finding::at_risk(promise, setting, told, fix)
            }
            _ => Finding::holds(promise, setting, format!("{mib} MiB are free")),
        }
    }
}

fn judge_mode(mode: u32) -> Finding {
    let (promise, setting) = (Promise::Private, "file mode");
    if mode & 0o077 == 0 {
        return Finding::holds(
            promise,
            setting,
            format!("{mode:03o}: its owner alone may read it"),
        );
    }
    let told = format!(
        "{mode:03o}: other users of this machine may open a file with keys and answers in clear"
    );
    Finding::broken(
        promise,
        setting,
        told,
        "chmod 600 the file, and the -wal and -shm files beside it",
    )
}

enum Why {
    Memory,
    Network,
    Container,
}

/// From linux/magic.h.
const KINDS: [(u64, &str, Why); 9] = [
    (0x0102_1994, "tmpfs", Why::Memory),
    (0x8584_58f6, "ramfs", Why::Memory),
    (0x6969, "NFS", Why::Network),
    (0xff53_4d42, "CIFS", Why::Network),
    (0xfe53_4d42, "SMB", Why::Network),
    (0x6573_5546, "FUSE", Why::Network),
    (0x0102_1997, "9P", Why::Network),
    (0x00c3_6400, "Ceph", Why::Network),
    (0x794c_7630, "overlayfs", Why::Container),
];
const FREE_BYTES_MIN: u64 = 64 << 20;
const FREE_BYTES_LOW: u64 = 512 << 20;
