//! A trail that somebody changed.

use std::path::Path;

use onlyonce::store::audit::verify;
use onlyonce::store::sqlite::SqliteTrail;
use onlyonce::{Action, Once};

use super::lab::{Lab, answer, by, faults};

/// How a database writes what a tampering needs, and how it names the rows of one chain.
pub(crate) struct Dialect {
    pub(crate) bytes: fn(&str) -> String,
    /// What is added to a time to make it a little later.
    pub(crate) moment: &'static str,
    /// A condition that chooses the chain.
    pub(crate) chain: String,
    /// The columns of a row besides its number.
    pub(crate) columns: &'static str,
}

/// Numbers that differ from run to run only by their seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

impl Dialect {
    /// A change of a chain with entries 1 to `last`, as SQL.
    pub(crate) fn tampering(&self, random: &mut Random, last: u64) -> String {
        let chain = &self.chain;
        let row = 1 + random.below(last);
        let other = 1 + (row + random.below(last - 1)) % last;
        let copy = |to: &str, from: u64| {
            let columns = self.columns;
            format!(
                "INSERT INTO audit (sequence, {columns}) SELECT {to}, {columns} FROM audit
                 WHERE {chain} AND sequence = {from}"
            )
        };
        match random.below(10) {
            0..4 => self.changed_row(random, row),
            4 => format!("DELETE FROM audit WHERE {chain} AND sequence = {row}"),
            5 => format!("DELETE FROM audit WHERE {chain} AND sequence >= {row}"),
            6 => copy(&(last + 1 + random.below(3)).to_string(), row),
            7 => format!(
                "UPDATE audit SET sequence = {last} + 1000 WHERE {chain} AND sequence = {row};
                 UPDATE audit SET sequence = {row} WHERE {chain} AND sequence = {other};
                 UPDATE audit SET sequence = {other} WHERE {chain} AND sequence = {last} + 1000"
            ),
            8 => self.changed_head(random, last),
            _ => format!(
                "DELETE FROM audit WHERE {chain} AND sequence = {row};
                 UPDATE audit SET sequence = -sequence + 100000 WHERE {chain} AND sequence > {row};
                 UPDATE audit SET sequence = 100000 - sequence - 1 WHERE {chain} AND sequence > 90000"
            ),
        }
    }

    fn changed_row(&self, random: &mut Random, row: u64) -> String {
        let digits = |random: &mut Random, bytes: usize| {
            (0..bytes).map(|_| format!("{:02x}", random.below(256))).collect::<String>()
        };
        let changed = match random.below(12) {
            0 => format!("hash = {}", (self.bytes)(&digits(random, 32))),
            1 => format!("at = at + {}", self.moment),
            2 => "kind = CASE kind WHEN 'claimed' THEN 'executed' ELSE 'claimed' END".to_owned(),
            3 => format!("id = {}", (self.bytes)(&digits(random, 16))),
            4 => format!("key = {}", (self.bytes)(&digits(random, 32))),
            5 => "route = route || 's'".to_owned(),
            6 => format!("principal = {}", (self.bytes)(&digits(random, 32))),
            7 => "attempt = coalesce(attempt, 0) + 1".to_owned(),
            8 => "status = CASE WHEN status = 500 THEN 200 ELSE 500 END".to_owned(),
            9 => "count = coalesce(count, 0) + 1".to_owned(),
            10 => "who = coalesce(who, '') || 'x', why = coalesce(why, 'because')".to_owned(),
            _ => "ids = coalesce(ids, '[[\"/a\",\"b\"]]') || ' '".to_owned(),
        };
        format!("UPDATE audit SET {changed} WHERE {} AND sequence = {row}", self.chain)
    }

    fn changed_head(&self, random: &mut Random, last: u64) -> String {
        let hash = (self.bytes)(&"ab".repeat(32));
        let chain = &self.chain;
        match random.below(6) {
            0 => format!("UPDATE audit_head SET sequence = sequence - 1 WHERE {chain}"),
            1 => format!("UPDATE audit_head SET sequence = sequence + 1 WHERE {chain}"),
            2 => format!("UPDATE audit_head SET hash = {hash} WHERE {chain}"),
            3 => format!("DELETE FROM audit_head WHERE {chain}"),
            4 => {
                let from = 1 + random.below(last);
                format!("UPDATE audit_head SET from_sequence = {from} WHERE {chain}")
            }
            _ => format!("UPDATE audit_head SET from_hash = {hash} WHERE {chain}"),
        }
    }
}

/// Fills a trail with entries of many kinds.
pub(crate) async fn fill(lab: &Lab) {
    for key in ["a", "b", "c", "d", "e", "f"] {
        let _ = lab.run(key, "ch_1").await;
        let _ = lab.run(key, "ch_2").await;
        let _ = lab.entries(key, 3).await;
        let id = lab.unknown(&format!("{key}-unknown")).await;
        let settle = Action::Settle(answer("\"ch_9\""));
        lab.once.operations().change(id, &settle, &by()).await.unwrap();
    }
}

/// Ends the engine and its store.
pub(crate) async fn stop(once: Once) {
    once.shutdown(std::time::Duration::from_secs(5)).await;
}

#[tokio::test]
async fn two_hundred_tamperings_of_two_hundred_are_told_of_a_file() {
    let lab = Lab::sqlite().await;
    fill(&lab).await;
    let last = lab.whole().await;
    let Lab { once, directory, .. } = lab;
    stop(once).await;
    let original = directory.path().join("store.db");
    let columns =
        "hash, at, kind, id, key, route, principal, attempt, status, count, who, why, ids";
    let dialect =
        Dialect { bytes: |hex| format!("x'{hex}'"), moment: "1", chain: "1".to_owned(), columns };
    let mut random = Random(0x5EED);
    for n in 0..200 {
        let copy = directory.path().join("copy.db");
        std::fs::copy(&original, &copy).unwrap();
        assert_eq!(faults(&SqliteTrail::open(&copy).unwrap()).await, 0, "the copy is whole");
        let sql = dialect.tampering(&mut random, last);
        tamper(&copy, &sql);
        let told = faults(&SqliteTrail::open(&copy).unwrap()).await;
        assert!(told > 0, "tampering {n} was not told: {sql}");
    }
}

#[tokio::test]
async fn an_end_that_was_cut_off_with_its_head_is_told_by_the_head_that_was_kept() {
    let lab = Lab::sqlite().await;
    fill(&lab).await;
    let kept = lab.once.operations().audit_heads().await.unwrap();
    let Lab { once, directory, .. } = lab;
    stop(once).await;
    let path = directory.path().join("store.db");
    let text: Vec<_> = kept.iter().map(ToString::to_string).collect();
    let kept: Vec<_> = text.iter().map(|head| head.parse().unwrap()).collect();
    tamper(
        &path,
        "DELETE FROM audit WHERE sequence > 10;
         UPDATE audit_head SET sequence = 10, hash = (SELECT hash FROM audit WHERE sequence = 10)",
    );
    let trail = SqliteTrail::open(&path).unwrap();
    assert!(verify(&trail, &[]).await.unwrap().is_whole(), "as the docs say");
    assert_eq!(verify(&trail, &kept).await.unwrap().broken.len(), 1);
    tamper(&path, "DELETE FROM audit; DELETE FROM audit_head");
    let trail = SqliteTrail::open(&path).unwrap();
    assert_eq!(verify(&trail, &kept).await.unwrap().broken[0].what, "the whole chain is gone");
}

fn tamper(path: &Path, sql: &str) {
    let db = rusqlite::Connection::open(path).unwrap();
    db.execute_batch(sql).unwrap_or_else(|error| panic!("{error}: {sql}"));
}
