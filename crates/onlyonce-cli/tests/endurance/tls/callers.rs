//! Clients that are told apart by their certificates.

use super::client::{Client, look_up};
use super::{Authority, Lab, MUTUAL};
use crate::upstream::{LARGE, QUICK};

const BY_NAME: &str =
    "[[route]]\nmatch = \"POST /quick\"\nprincipal = \"mtls\"\nanonymous = \"reject\"\n";
const BY_KEY: &str =
    "[[route]]\nmatch = \"POST /large\"\nprincipal = [\"mtls:spki\", \"header:X-Api-Key\"]\n";
const KEY: &str = "operation-0000000000000001";

// R26
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_no_certificate_of_the_authority_is_not_let_in() {
    let t = Lab::start(&format!("{MUTUAL}{BY_NAME}")).await;
    let stranger = Authority::new(t.folder.path(), "stranger");
    stranger.client("foreign", "/O=shop/CN=alice");
    t.authority.expired("old", "/O=shop/CN=alice");
    t.authority.client("alice", "/O=shop/CN=alice");
    let address = t.gateway.address;
    for own in [None, Some("foreign"), Some("old")] {
        let refused = t.client(own).post(address, QUICK, KEY).await;
        assert!(refused.is_err(), "{own:?}: {refused:?}");
        assert!(t.upstream.executions(KEY).is_empty(), "{own:?}");
    }
    // The client trusts another authority than the gateway's.
    let alice = t.path("alice");
    let wary = Client::new(&t.path("stranger.pem"), Some(alice));
    assert!(wary.connect(address).await.is_err());
    let answer = t.client(Some("alice")).post(address, QUICK, "another-operation-1").await.unwrap();
    assert_eq!(answer.status, 201);
}

// R26; DESIGN section 8
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewed_certificate_is_the_same_caller_and_another_subject_is_not() {
    let t = Lab::start(&format!("{MUTUAL}{BY_NAME}{BY_KEY}")).await;
    let address = t.gateway.address;
    t.authority.client("alice", "/O=shop/CN=alice");
    let alice = t.client(Some("alice"));
    let [first, pinned] = [
        alice.post(address, QUICK, KEY).await.unwrap(),
        alice.post(address, LARGE, KEY).await.unwrap(),
    ];
    assert_eq!((first.status.as_u16(), first.is_replay()), (201, false));
    let seen = alice.get(address, look_up(QUICK, KEY)).await;
    assert_eq!(seen.status, 200, "{seen:?}");

    // The same key, in another certificate.
    t.authority.renew("alice", "/O=shop/CN=alice");
    let alice = t.client(Some("alice"));
    for (path, before) in [(QUICK, &first), (LARGE, &pinned)] {
        let again = alice.post(address, path, KEY).await.unwrap();
        assert!(again.is_replay() && again.body == before.body, "{path}");
    }
    // Another key.
    t.authority.client("renewed", "/O=shop/CN=alice");
    let renewed = t.client(Some("renewed"));
    let again = renewed.post(address, QUICK, KEY).await.unwrap();
    assert!(again.is_replay() && again.body == first.body, "{again:?}");
    let other = renewed.post(address, LARGE, KEY).await.unwrap();
    assert!(!other.is_replay() && other.body != pinned.body, "by its key it is another caller");

    t.authority.client("bob", "/O=shop/CN=bob");
    let bob = t.client(Some("bob"));
    assert_eq!(bob.get(address, look_up(QUICK, KEY)).await.status, 404);
    let other = bob.post(address, QUICK, KEY).await.unwrap();
    assert!(!other.is_replay() && other.body != first.body);
    // Parts of a name are not letters of a text.
    t.authority.client("alias", "/O=sho/CN=palice");
    assert!(!t.client(Some("alias")).post(address, QUICK, KEY).await.unwrap().is_replay());
    let executed = t.upstream.executions(KEY).len();
    assert_eq!(executed, 5, "alice twice, renewed once, bob, alias");
}

// R26
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_authority_makes_another_caller_and_no_subject_makes_none() {
    let both = MUTUAL.replace("authority.pem", "both.pem");
    let t = Lab::start(&format!("{MUTUAL}{BY_NAME}{BY_KEY}")).await;
    let second = Authority::new(t.folder.path(), "second");
    let roots = ["authority.pem", "second.pem"].map(|file| std::fs::read(t.path(file)).unwrap());
    std::fs::write(t.path("both.pem"), roots.concat()).unwrap();
    t.configure(&format!("{both}{BY_NAME}{BY_KEY}"));
    assert!(t.reload().await.contains("is in force"));
    t.authority.client("alice", "/O=shop/CN=alice");
    second.client("impostor", "/O=shop/CN=alice");
    second.client("nameless", "/");
    let address = t.gateway.address;
    let first = t.client(Some("alice")).post(address, QUICK, KEY).await.unwrap();
    let other = t.client(Some("impostor")).post(address, QUICK, KEY).await.unwrap();
    assert!(!other.is_replay() && other.body != first.body, "{other:?}");
    let nameless = t.client(Some("nameless"));
    let unclear = nameless.post(address, QUICK, KEY).await.unwrap();
    assert_eq!(
        (unclear.status.as_u16(), unclear.problem().as_deref()),
        (400, Some("principal_unclear"))
    );
    let by_key = nameless.post(address, LARGE, KEY).await.unwrap();
    assert_eq!(by_key.status, 201);
    assert_eq!(t.upstream.executions(KEY).len(), 3);
}

// threat K14
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_certificates_are_two_callers_without_a_word_in_the_configuration() {
    let t = Lab::start(MUTUAL).await;
    let address = t.gateway.address;
    t.authority.client("alice", "/O=shop/CN=alice");
    t.authority.client("bob", "/O=shop/CN=bob");
    t.authority.client("nameless", "/");
    let [alice, bob, nameless] = ["alice", "bob", "nameless"].map(|name| t.client(Some(name)));
    let first = alice.post(address, QUICK, KEY).await.unwrap();
    assert_eq!((first.status.as_u16(), first.is_replay()), (201, false));
    let other = bob.post(address, QUICK, KEY).await.unwrap();
    assert!(!other.is_replay() && other.body != first.body, "{other:?}");
    let again = alice.post(address, QUICK, KEY).await.unwrap();
    assert!(again.is_replay() && again.body == first.body, "{again:?}");
    let unclear = nameless.post(address, QUICK, KEY).await.unwrap();
    let told = (unclear.status.as_u16(), unclear.problem());
    assert_eq!(told, (400, Some("principal_unclear".to_owned())));
    assert_eq!(t.upstream.executions(KEY).len(), 2);
}
