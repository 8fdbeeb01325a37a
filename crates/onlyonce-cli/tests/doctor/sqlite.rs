use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::{Told, doctor_of, run};

/// A gateway with a store in `folder`, in front of nothing.
struct Served(Child);

impl Served {
    fn start(folder: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_onlyonce"))
            .args(["serve", "--listen", "127.0.0.1:0", "--upstream", "http://127.0.0.1:9"])
            .args(["--store", &url(folder)])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        assert!(ready.starts_with("onlyonce ready"), "{ready}");
        Self(child)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn file(folder: &Path) -> PathBuf {
    folder.join("onlyonce.db")
}

fn url(folder: &Path) -> String {
    format!("sqlite:{}", file(folder).display())
}

/// A folder with a store that no process has open.
fn store() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut gateway = Served::start(folder.path());
    let pid = rustix::process::Pid::from_child(&gateway.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    gateway.0.wait().unwrap();
    folder
}

fn told(folder: &Path) -> Told {
    doctor_of(&url(folder))
}

/// Every file with its length, its inode and the time of its last write.
fn files(folder: &Path) -> BTreeMap<PathBuf, (u64, u64, i64, i64)> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let about = |entry: fs::DirEntry| {
        let found = entry.metadata().unwrap();
        (entry.path(), (found.len(), found.ino(), found.mtime(), found.mtime_nsec()))
    };
    entries.map(about).collect()
}

#[test]
fn a_good_file_holds_and_is_not_touched() {
    let folder = store();
    let before = files(folder.path());
    told(folder.path()).is_sound();
    assert_eq!(files(folder.path()), before);
}

#[test]
fn it_works_beside_a_running_gateway_and_names_its_process() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Served::start(folder.path());
    let told = told(folder.path());
    told.is_sound();
    let (_, lock) = told.of("lock")[0];
    let owner = format!("process {} (onlyonce)", gateway.0.id());
    assert!(lock["found"].as_str().unwrap().starts_with(&owner), "{lock}");
}

#[test]
fn a_store_that_is_not_made_yet_is_not_made() {
    let folder = tempfile::tempdir().unwrap();
    told(folder.path()).is_sound();
    assert!(files(folder.path()).is_empty());
}

#[test]
fn a_damaged_page_is_named() {
    let folder = store();
    let db = rusqlite::Connection::open(file(folder.path())).unwrap();
    db.execute_batch("CREATE TABLE filler AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000) SELECT i FROM n; DROP TABLE filler;").unwrap();
    drop(db);
    // Where the list of free pages is.
    let damaged = fs::OpenOptions::new().write(true).open(file(folder.path())).unwrap();
    damaged.write_all_at(&[0x5a; 4096], 4096 * 3).unwrap();
    told(folder.path()).breaks("usable", "file", "is damaged");
}

#[test]
fn a_file_that_is_cut_short_empty_foreign_or_newer_is_named() {
    let folder = store();
    let path = file(folder.path());
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..4096]).unwrap();
    told(folder.path()).breaks("usable", "file", "cut short");
    fs::write(&path, b"").unwrap();
    told(folder.path()).breaks("usable", "file", "is empty");
    fs::write(&path, [b'x'; 8192]).unwrap();
    told(folder.path()).breaks("usable", "file", "not an onlyonce store");
    let mut newer = whole;
    newer[63] = 99;
    fs::write(&path, newer).unwrap();
    told(folder.path()).breaks("usable", "file", "has format 99");
}

#[test]
fn a_file_that_is_gone_is_named() {
    let folder = store();
    fs::remove_file(file(folder.path())).unwrap();
    told(folder.path()).breaks("usable", "file", "is gone");
}

#[test]
fn a_file_that_others_may_read_is_named() {
    let folder = store();
    fs::set_permissions(file(folder.path()), fs::Permissions::from_mode(0o644)).unwrap();
    told(folder.path()).breaks("private", "file mode", "644");
}

#[test]
fn a_file_with_two_names_is_named() {
    let folder = store();
    fs::hard_link(file(folder.path()), folder.path().join("other.db")).unwrap();
    told(folder.path()).breaks("authority", "names", "2 names");
}

#[test]
fn a_journal_mode_that_another_program_has_set_is_named() {
    let folder = store();
    let db = rusqlite::Connection::open(file(folder.path())).unwrap();
    db.pragma_update(None, "journal_mode", "delete").unwrap();
    drop(db);
    told(folder.path()).breaks("durable", "journal mode and synchronous", "not WAL");
}

#[test]
fn another_program_that_has_the_file_open_is_named() {
    let folder = store();
    let db = rusqlite::Connection::open(file(folder.path())).unwrap();
    db.execute_batch("BEGIN; SELECT * FROM meta").unwrap();
    let told = told(folder.path());
    told.holds();
    told.risks("authority", "other programs", &format!("process {}", std::process::id()));
}

/// Runs the command where a small file system in memory is mounted on `folder`.
fn in_small_memory(folder: &Path, mount: &str) -> Told {
    let mut command = Command::new("unshare");
    let script = format!(
        "cp {file} /dev/shm/onlyonce-$$ && mount -t tmpfs -o size=2m none {folder} && cp /dev/shm/onlyonce-$$ {file}; \
         rm /dev/shm/onlyonce-$$; chmod 600 {file}; {mount}; exec \"$@\"",
        folder = folder.display(),
        file = file(folder).display(),
    );
    command.args(["--map-root-user", "--mount", "sh", "-c", &script, "sh"]);
    command.arg(env!("CARGO_BIN_EXE_onlyonce")).args(["doctor", "--store", &url(folder)]);
    run(&mut command)
}

#[test]
fn a_file_system_in_memory_and_a_disk_that_is_nearly_full_are_named() {
    let folder = store();
    let told = in_small_memory(folder.path(), "true");
    told.breaks("durable", "file system", "tmpfs is memory");
    told.breaks("capacity", "disk", "nearly full");
}

#[test]
fn a_file_system_that_is_mounted_read_only_is_named() {
    let folder = store();
    let remount = format!("mount -o remount,ro {}", folder.path().display());
    in_small_memory(folder.path(), &remount).breaks("capacity", "disk", "read-only");
}

#[test]
fn too_few_open_files_are_named() {
    let folder = store();
    let mut command = Command::new("prlimit");
    command.args(["--nofile=128:128", env!("CARGO_BIN_EXE_onlyonce"), "doctor"]);
    let told = run(command.args(["--store", &url(folder.path())]));
    told.breaks("capacity", "open files", "128 files");
}

#[test]
fn the_limit_of_the_running_gateway_counts() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Served::start(folder.path());
    let pid = gateway.0.id().to_string();
    let set = Command::new("prlimit").args(["--nofile=200:200", "--pid", &pid]).status();
    assert!(set.unwrap().success());
    told(folder.path()).breaks("capacity", "open files", "the running gateway may open 200");
}

#[test]
fn records_of_the_future_are_named() {
    let folder = store();
    let db = rusqlite::Connection::open(file(folder.path())).unwrap();
    let classes: String = db.query_row("SELECT classes FROM meta", [], |row| row.get(0)).unwrap();
    assert_eq!(classes, "", "a new store has no records");
    drop(db);
    // A store whose only record was claimed by a clock that was a day ahead.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(claim_a_day_ahead(&file(folder.path())));
    told(folder.path()).breaks("kept", "clock", "in the future");
}

/// A clock that someone has set a day forward.
struct Ahead;

impl onlyonce::clock::Clock for Ahead {
    fn wall(&self) -> onlyonce::clock::StoreTime {
        onlyonce::clock::SystemClock.wall().plus_ms(24 * 60 * 60 * 1000)
    }

    fn boot(&self) -> std::time::Duration {
        onlyonce::clock::SystemClock.boot()
    }
}

async fn claim_a_day_ahead(path: &Path) {
    use onlyonce::scope::Principal;
    use onlyonce::store::sqlite::{SqliteOptions, SqliteStore};
    use onlyonce::{Once, Operation, Outcome};

    let options = SqliteOptions::new().with_clock(Ahead);
    let store = SqliteStore::open_with(path, options).await.unwrap();
    let once = Once::builder(store.clone()).with_clock(Ahead).build();
    let operation = Operation::new("test", Principal::of("test", b"one"), "key-1").unwrap();
    let outcome = once.run(operation, |_| async { Ok(1) }).await.unwrap();
    assert!(matches!(outcome, Outcome::Fresh(1)));
    store.close().await;
}
