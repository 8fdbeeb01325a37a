//! Who holds locks on a file, read from the kernel's list: taking the lock to try it would refuse a gateway that starts
//! at this moment.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The processes that hold a lock of this kind on the file; empty if there is no such file. Processes of another PID
/// namespace are not listed by the kernel.
pub(super) fn holders(path: &Path, kind: Kind) -> Vec<u32> {
    let (Ok(file), Ok(list)) = (fs::metadata(path), fs::read_to_string("/proc/locks")) else {
        return Vec::new();
    };
    let device = (rustix::fs::major(file.dev()), rustix::fs::minor(file.dev()));
    let mut holders = of_file(&list, kind, device, file.ino());
    holders.sort_unstable();
    holders.dedup();
    holders
}

/// What a process is called.
pub(super) fn name(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm"));
    name.map_or_else(|_| "?".to_owned(), |name| name.trim_end().to_owned())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `flock`, by which a store is owned.
    Flock,
    /// The locks of SQLite.
    Posix,
}

/// Lines such as `1: FLOCK  ADVISORY  WRITE 8009 fe:00:5334331 0 EOF`; `->` marks one that waits.
fn of_file(list: &str, kind: Kind, (major, minor): (u32, u32), inode: u64) -> Vec<u32> {
    let word = match kind {
        Kind::Flock => "FLOCK",
        Kind::Posix => "POSIX",
    };
    let file = format!("{major:02x}:{minor:02x}:{inode}");
    let held = list.lines().filter_map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        let is_it = words.get(1) == Some(&word) && words.get(5) == Some(&file.as_str());
        is_it.then(|| words.get(4)?.parse().ok()).flatten()
    });
    held.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_locks_that_are_held_on_the_file_count() {
        let list = "1: FLOCK  ADVISORY  WRITE 8009 fe:00:77 0 EOF\n\
                    1: -> FLOCK  ADVISORY  WRITE 8010 fe:00:77 0 EOF\n\
                    2: POSIX  ADVISORY  READ 8011 fe:00:77 120 120\n\
                    3: FLOCK  ADVISORY  WRITE 8012 fe:00:78 0 EOF\n";
        assert_eq!(of_file(list, Kind::Flock, (0xfe, 0), 77), [8009]);
        assert_eq!(of_file(list, Kind::Posix, (0xfe, 0), 77), [8011]);
    }
}
