//! Every file of the corpus runs through its target: what a fuzzer has found once stays found.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::path::PathBuf;

use fuzz_targets::TARGETS;

/// Runs the corpus of a target, and says how many files it has.
fn replay(name: &str) -> usize {
    let (_, target) = TARGETS.iter().find(|(known, _)| *known == name).unwrap();
    let mut files: Vec<_> =
        fs::read_dir(corpus(name)).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    for file in &files {
        let data = fs::read(file).unwrap();
        assert!(data.len() <= FILE_BYTES_MAX, "{} is too large", file.display());
        println!("{}", file.display());
        target(&data);
    }
    files.len()
}

fn corpus(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name)
}

macro_rules! replays {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                let files = replay(stringify!($name));
                assert!((FILES_MIN..=FILES_MAX).contains(&files), "{files} files");
            }
        )*

        #[test]
        fn every_target_has_a_corpus_and_a_binary() {
            let replayed = [$(stringify!($name)),*];
            assert_eq!(replayed, TARGETS.map(|(name, _)| name));
            let manifest = fs::read_to_string(corpus("../Cargo.toml")).unwrap();
            for name in replayed {
                assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
            }
        }
    };
}

replays! {
    admin_query
    canonical_json
    config
    http_edge
    key_header
    multipart
    record
    redis_reply
    webhook
}

/// Fewer are no corpus, more belong in a minimised one.
const FILES_MIN: usize = 10;
const FILES_MAX: usize = 300;
const FILE_BYTES_MAX: usize = 64 * 1024;
