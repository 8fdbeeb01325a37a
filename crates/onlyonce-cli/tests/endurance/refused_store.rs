//! A store that cannot be trusted is refused at the start, with a sentence that says what to do.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use proof::client;
use proof::disk::{Disk, Shim};
use rusqlite::Connection;
use servers::Redis;
use tempfile::TempDir;
use tokio::task::block_in_place;

use crate::BODY;
use crate::gateway::{self, Gateway};
use crate::upstream::{QUICK, Upstream};

/// A folder with a store in it that has a record.
async fn used_store() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let upstream = Upstream::start().await;
    let mut gateway = Gateway::start(folder.path(), upstream.address).await;
    let answer = client::post(gateway.address, QUICK, "operation-of-the-store", BODY).await;
    assert_eq!(answer.unwrap().status, 201);
    gateway.terminate();
    assert!(gateway.ended().await.success());
    let store = gateway::store(folder.path());
    (folder, store)
}

/// `onlyonce serve` on this store, which ends by itself if it is refused.
fn serve(store: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
    let store = format!("sqlite:{}", store.display());
    command.args(["serve", "--listen", "127.0.0.1:0"]);
    command.args(["--upstream", "http://127.0.0.1:9", "--store", &store]);
    command.stdin(Stdio::null());
    command
}

/// Refused with exit code 3 and this one sentence, where `{path}` is the store; and nothing was changed.
#[track_caller]
fn assert_refused(store: &Path, sentence: &str) {
    let before = fs::read(store).ok();
    assert_told(store, serve(store).output().unwrap(), sentence);
    assert!(fs::read(store).ok() == before, "the file was changed");
}

#[track_caller]
fn assert_told(store: &Path, output: Output, sentence: &str) {
    let told = String::from_utf8(output.stderr).unwrap();
    let sentence = sentence.replace("{path}", &store.display().to_string());
    let sentence = format!("onlyonce: the store cannot be opened: {sentence}\n");
    assert_eq!((output.status.code(), told), (Some(3), sentence));
    assert_eq!(output.stdout, b"");
}

// Two gateways behind one port would each get some of the retries, and each has a store of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_that_another_gateway_serves_is_refused() {
    let (folder, upstream) = (tempfile::tempdir().unwrap(), Upstream::start().await);
    let gateway = Gateway::start(folder.path(), upstream.address).await;
    let other = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", gateway::store(other.path()).display());
    let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
    command.args(["serve", "--listen", &gateway.address.to_string(), "--store", &store]);
    command.args(["--upstream", "http://127.0.0.1:9"]).stdin(Stdio::null());
    let output = command.output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{told}");
    assert!(told.contains(&format!("cannot listen on {}", gateway.address)), "{told}");
}

fn change(store: &Path, sql: &str) {
    let db = Connection::open(store).unwrap();
    db.execute_batch(sql).unwrap();
}

// threat E5
#[tokio::test]
async fn a_corrupt_store_is_refused() {
    let (_folder, store) = used_store().await;
    let sound = fs::read(&store).unwrap();
    fs::write(&store, &sound[..sound.len() / 2]).unwrap();
    assert_refused(
        &store,
        "{path} is damaged (it is cut short): restore it from a backup, and keep this copy",
    );
    let mut spoiled = sound.clone();
    spoiled[100..4096].fill(0x5a);
    fs::write(&store, spoiled).unwrap();
    assert_refused(
        &store,
        "{path} is damaged (its pages do not read): restore it from a backup, and keep this copy",
    );
    fs::write(&store, &sound).unwrap();
    change(&store, "UPDATE meta SET classes = classes || ' '");
    assert_refused(
        &store,
        "{path} is damaged (its meta row is wrong): restore it from a backup, and keep this copy",
    );
}

#[tokio::test]
async fn a_store_that_vanished_or_was_emptied_is_refused() {
    let (_folder, store) = used_store().await;
    fs::write(&store, "").unwrap();
    assert_refused(
        &store,
        "{path} is empty: restore it from a backup; if it never was a store, remove it and one is made",
    );
    fs::remove_file(&store).unwrap();
    assert_refused(
        &store,
        "{path} is gone, but {path}-lock shows that it existed: restore it from a backup, or remove {path}-lock to start empty and forget every key",
    );
}

#[tokio::test]
async fn what_is_no_store_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("notes.txt");
    fs::write(&text, "not a store ".repeat(100)).unwrap();
    assert_refused(&text, "{path} is not an onlyonce store: give another path");
    let directory = folder.path().join("directory");
    fs::create_dir(&directory).unwrap();
    assert_refused(&directory, "{path} cannot be used: Is a directory (os error 21)");
}

#[tokio::test]
async fn a_store_of_a_newer_version_is_refused() {
    let (_folder, store) = used_store().await;
    change(&store, "PRAGMA user_version = 5");
    assert_refused(
        &store,
        "{path} has format 5, and this build reads up to 4: run the version that wrote it",
    );
}

#[tokio::test]
async fn a_store_of_an_unreleased_build_is_refused() {
    let (_folder, store) = used_store().await;
    let changes = [
        (3, "DROP TABLE audit; DROP TABLE audit_head; PRAGMA user_version = 3"),
        (2, "ALTER TABLE meta ADD COLUMN highest INTEGER; PRAGMA user_version = 2"),
        (1, "DROP TABLE check_value; PRAGMA user_version = 1"),
    ];
    for (format, sql) in changes {
        change(&store, sql);
        let sentence = format!(
            "{{path}} has format {format} of an unreleased build, and this build reads only format 4: \
             use a new file. Retries of keys in the old one will be executed again"
        );
        assert_refused(&store, &sentence);
    }
}

#[tokio::test]
async fn a_store_that_was_moved_is_refused() {
    let (_folder, store) = used_store().await;
    move_to(&store, "postgres://ledger");
    assert_refused(&store, "{path} was moved to postgres://ledger: open that one");
}

/// Notes in the store that its records are elsewhere, as a move does.
fn move_to(store: &Path, to: &str) {
    let db = Connection::open(store).unwrap();
    let sql = "SELECT classes FROM meta";
    let classes: String = db.query_row(sql, [], |row| row.get(0)).unwrap();
    let checked = [&[1][..], to.as_bytes(), classes.as_bytes()];
    let crc = crc32c(&checked.concat()).to_le_bytes();
    let changed = db.execute("UPDATE meta SET moved_to = ?1, crc = ?2", (to, crc));
    assert_eq!(changed.unwrap(), 1);
}

fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0x82F6_3B78 * (crc & 1)))
    })
}

// threat B9
#[tokio::test]
async fn a_store_that_another_process_uses_is_refused() {
    let (folder, store) = used_store().await;
    let upstream = Upstream::start().await;
    let _other = Gateway::start(folder.path(), upstream.address).await;
    let output = serve(&store).output().unwrap();
    assert_told(
        &store,
        output,
        "{path} is in use: a store file has one process; stop the other one first",
    );
}

#[tokio::test]
async fn a_store_that_another_program_locks_is_refused() {
    let (_folder, store) = used_store().await;
    let other = Connection::open(&store).unwrap();
    other.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE").unwrap();
    let output = serve(&store).output().unwrap();
    assert_told(&store, output, "{path} is locked by another program: end it and try again");
}

// threat K35: as two containers would have it that share the file and not its folder.
#[tokio::test]
async fn a_store_that_is_mounted_without_its_folder_is_refused() {
    let (folder, store) = used_store().await;
    if !may_mount() {
        println!("skipped: this user may not mount anything, not even for itself");
        return;
    }
    let other = folder.path().join("other");
    fs::create_dir(&other).unwrap();
    let mounted = other.join("onlyonce.db");
    fs::write(&mounted, "").unwrap();
    let serve = serve(&mounted);
    let mut command = Command::new("unshare");
    command.args([OWN_MOUNTS, "sh", "-c", "mount --bind \"$0\" \"$1\" && shift && exec \"$@\""]);
    command.arg(&store).arg(&mounted).arg(serve.get_program()).args(serve.get_args());
    assert_told(
        &mounted,
        command.output().unwrap(),
        "{path} is mounted without its folder, so that its lock and its log (-wal) are not where others look for them: \
         mount the folder that it is in",
    );
}

#[tokio::test]
async fn a_store_with_two_names_is_refused() {
    let (folder, store) = used_store().await;
    fs::hard_link(&store, folder.path().join("other.db")).unwrap();
    assert_refused(
        &store,
        "{path} has 2 names (hard links), and each has a lock of its own: find the others with find / -xdev -samefile \
         {path}, and remove them",
    );
}

#[tokio::test]
async fn a_store_in_a_missing_folder_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    assert_refused(
        &folder.path().join("missing/onlyonce.db"),
        "the directory of {path} does not exist: make it first",
    );
}

// threat E3
#[tokio::test]
async fn a_store_on_a_disk_that_takes_no_file_is_refused() {
    let (folder, store) = used_store().await;
    let shim = Shim::build(folder.path()).unwrap();
    for path in [store, folder.path().join("onlyonce.db.new")] {
        let disk = Disk::new(folder.path(), "onlyonce.db").unwrap();
        disk.arm("full-on 1 *").unwrap();
        let mut command = serve(&path);
        disk.under(&shim, &mut command);
        let output = command.output().unwrap();
        assert_ne!(disk.faults(), [""; 0], "the disk was never full");
        assert_told(&path, output, "the disk of {path} is full: make room");
    }
}

// threat E3
#[tokio::test]
async fn a_store_on_a_disk_that_takes_no_byte_is_refused() {
    let (folder, _) = used_store().await;
    let disk = folder.path().join("disk");
    fs::create_dir(&disk).unwrap();
    if !may_mount() {
        println!("skipped: this user may not mount a small file system, not even of its own");
        return;
    }
    let output = serve_on_full(folder.path(), &disk, "onlyonce.db");
    assert_told(&disk.join("onlyonce.db"), output, "the disk of {path} is full: make room");
    let output = serve_on_full(folder.path(), &disk, "new.db");
    // The file is made under another name first.
    assert_told(&disk.join("new.db-new"), output, "the disk of {path} is full: make room");
}

fn may_mount() -> bool {
    let tried = Command::new("unshare").args([OWN_MOUNTS, "true"]).output();
    tried.is_ok_and(|tried| tried.status.success())
}

/// `onlyonce serve` on a disk that is full, and that nobody else sees, with the stores of `folder` on it.
fn serve_on_full(folder: &Path, disk: &Path, store: &str) -> Output {
    let fill = "mount -t tmpfs -o size=2m none \"$0\" && cp onlyonce.db* \"$0\" || exit 9
                cat /dev/zero >\"$0/filler\" 2>/dev/null
                exec \"$@\"";
    let serve = serve(&disk.join(store));
    let mut command = Command::new("unshare");
    command.args([OWN_MOUNTS, "sh", "-c", fill]);
    command.arg(disk).arg(serve.get_program()).args(serve.get_args());
    command.current_dir(folder).output().unwrap()
}

/// As root of a namespace of its own, and with mounts of its own.
const OWN_MOUNTS: &str = "-rm";

// R118; threats D1, D3
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn payments_are_not_kept_by_a_redis_that_may_lose_them() {
    let folder = tempfile::tempdir().unwrap();
    let upstream = Upstream::start().await;
    let careless = block_in_place(|| Redis::start(&["--appendonly", "yes"]));
    let careful = ["--appendonly", "yes", "--appendfsync", "always"];
    let careful = block_in_place(|| Redis::start(&careful));
    let route = "[[route]]\nmatch = \"POST /pay\"\npreset = \"payments\"\n";
    fs::write(folder.path().join("pay.toml"), route).unwrap();
    let payments = |redis: &Redis| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
        let upstream = format!("http://{}", upstream.address);
        command.args([
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--config",
            "pay.toml",
            "--upstream",
            &upstream,
        ]);
        command.args(["--store", &redis.url()]).current_dir(folder.path()).stdin(Stdio::null());
        command
    };
    let refused = payments(&careless).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let told = String::from_utf8(refused.stderr).unwrap();
    assert!(
        told.contains("\"POST /pay\" has the preset payments") && told.contains("--accept-loss"),
        "{told}"
    );
    for (mut command, is_best_effort) in [
        (payments(&careful), false),
        (
            {
                let mut command = payments(&careless);
                command.arg("--accept-loss");
                command
            },
            true,
        ),
    ] {
        let gateway =
            Gateway::running(folder.path(), command.args(["--admin", "127.0.0.1:0"])).await;
        let best_effort = gateway.metric("onlyonce_store_best_effort ").await;
        assert_eq!(best_effort, usize::from(is_best_effort));
        assert!(gateway.errors().starts_with("{\"timestamp\""), "it says which promise holds");
    }
}
