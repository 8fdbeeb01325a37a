//! What a configuration promises.

use onlyonce::store::redis::Promise;
use servers::Redis;

use crate::lab::{open, raw};

// threats D1, D3
#[tokio::test]
async fn each_configuration_says_what_it_forgets() {
    for (settings, is_durable, says) in [
        (&["--appendonly", "yes", "--appendfsync", "always"][..], true, "before it answers"),
        (&["--appendonly", "yes", "--appendfsync", "everysec"], false, "the last second"),
        (&["--appendonly", "yes", "--appendfsync", "no"], false, "half minute"),
        (&["--appendonly", "no"], false, "keeps nothing on disk"),
        (&["--appendonly", "no", "--save", "60 1"], false, "last snapshot"),
        (
            &[
                "--appendonly",
                "yes",
                "--appendfsync",
                "always",
                "--no-appendfsync-on-rewrite",
                "yes",
            ],
            false,
            "it syncs nothing (no-appendfsync-on-rewrite)",
        ),
        (
            &[
                "--appendonly",
                "yes",
                "--appendfsync",
                "always",
                "--maxmemory-policy",
                "allkeys-lru",
            ],
            false,
            "evicts keys (allkeys-lru)",
        ),
        (
            &[
                "--appendonly",
                "yes",
                "--appendfsync",
                "always",
                "--maxmemory-policy",
                "volatile-ttl",
                "--maxmemory",
                "9mb",
            ],
            false,
            "when memory is short (volatile-ttl)",
        ),
    ] {
        let promise = promised(settings).await;
        assert_eq!(promise.is_durable(), is_durable, "{settings:?}");
        let text = promise.to_string();
        assert!(text.contains(says), "{settings:?}: {text}");
        assert!(!text.contains('\n'));
        assert_eq!(
            text.starts_with("best effort"),
            text.contains("a crash of Redis") || text.contains("on disk (")
        );
    }
}

#[tokio::test]
async fn a_server_that_does_not_tell_its_configuration_promises_nothing() {
    let server = Redis::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    let mut forbid = redis::cmd("ACL");
    forbid.arg("SETUSER").arg("default").arg("-config").exec(&mut raw(&server)).unwrap();
    let promise = open(&server).await.promise();
    assert!(!promise.is_durable());
    assert!(promise.to_string().contains("does not let us read its configuration"));
}

async fn promised(settings: &[&str]) -> Promise {
    let server = Redis::start(settings);
    open(&server).await.promise()
}
