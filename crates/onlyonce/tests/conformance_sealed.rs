//! A store under a seal passes the suite as the store below does.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

use std::path::PathBuf;
use std::sync::Mutex;

use onlyonce::store::conformance::{Factory, Fresh, ManualClock, exercise};
use onlyonce::store::memory::MemoryStore;
use onlyonce::store::sealed::{Seal, SealKey, Sealed};
use onlyonce::store::sqlite::{SqliteOptions, SqliteStore};

fn seal() -> Seal {
    Seal::new(vec![SealKey::new([1; 32])])
}

struct Memory;

impl Factory for Memory {
    type Store = Sealed<MemoryStore>;

    async fn fresh(&self) -> Fresh<Self::Store> {
        let clock = ManualClock::new();
        let store = MemoryStore::with_clock(clock.clone());
        Fresh::new(Sealed::new(store, seal())).with_clock(clock)
    }
}

/// Every store in a folder of its own; cases run one after the other, so the last is the one at hand.
#[derive(Default)]
struct Files(Mutex<Option<(tempfile::TempDir, ManualClock)>>);

impl Files {
    async fn open(&self) -> Sealed<SqliteStore> {
        let (path, clock): (PathBuf, _) = {
            let last = self.0.lock().unwrap();
            let (folder, clock) = last.as_ref().expect("a store was made");
            (folder.path().join("onlyonce.db"), clock.clone())
        };
        let store = SqliteStore::open_with(path, SqliteOptions::new().with_clock(clock)).await;
        Sealed::new(store.expect("the store opens"), seal())
    }
}

impl Factory for Files {
    type Store = Sealed<SqliteStore>;

    async fn fresh(&self) -> Fresh<Self::Store> {
        let clock = ManualClock::new();
        let folder = tempfile::tempdir().unwrap();
        *self.0.lock().unwrap() = Some((folder, clock.clone()));
        Fresh::new(self.open().await).with_clock(clock)
    }

    async fn crash(&self, store: Self::Store) -> Option<Self::Store> {
        drop(store);
        Some(self.open().await)
    }

    fn rounds(&self) -> usize {
        1
    }
}

// R184
#[tokio::test]
async fn memory_under_a_seal_passes_all_that_needs_no_disk() {
    exercise(&Memory).await.assert_passed();
}

// R184
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sqlite_under_a_seal_passes() {
    let report = exercise(&Files::default()).await;
    println!("{report}");
    report.assert_passed();
    assert!(report.skipped().all(|name| name.contains("damage")), "only damage is left out");
}
