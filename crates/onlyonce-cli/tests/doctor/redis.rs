use servers::Redis;

use crate::doctor_of;

const GOOD: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

fn with(settings: &[&str]) -> Redis {
    let all: Vec<_> = GOOD.iter().chain(settings).copied().collect();
    Redis::start(&all)
}

#[test]
fn a_redis_that_syncs_every_write_and_evicts_nothing_holds() {
    let redis = with(&[]);
    doctor_of(&redis.url()).is_sound();
    assert_eq!(redis.command("DBSIZE"), ":0", "nothing was written");
}

#[test]
fn a_redis_that_keeps_nothing_on_disk_is_named() {
    let redis = Redis::start(&[]);
    doctor_of(&redis.url()).breaks(
        "durable",
        "appendonly",
        "no: nothing is on disk (save is empty)",
    );
    redis.command("CONFIG SET save \"60 1\"");
    doctor_of(&redis.url()).breaks("durable", "appendonly", "since the last snapshot");
}

#[test]
fn a_redis_that_syncs_seldom_is_named() {
    let redis = Redis::start(&["--appendonly", "yes", "--appendfsync", "everysec"]);
    doctor_of(&redis.url()).breaks("durable", "appendfsync", "everysec");
    redis.command("CONFIG SET appendfsync no");
    doctor_of(&redis.url()).breaks("durable", "appendfsync", "half minute");
    redis.command("CONFIG SET appendfsync always");
    redis.command("CONFIG SET no-appendfsync-on-rewrite yes");
    doctor_of(&redis.url()).breaks("durable", "no-appendfsync-on-rewrite", "nothing is synced");
}

#[test]
fn a_redis_that_evicts_or_is_full_is_named() {
    let redis = with(&["--maxmemory-policy", "allkeys-lru"]);
    doctor_of(&redis.url()).breaks("kept", "maxmemory-policy", "allkeys-lru");
    redis.command("CONFIG SET maxmemory-policy noeviction");
    redis.command("CONFIG SET maxmemory 1mb");
    doctor_of(&redis.url()).breaks("capacity", "maxmemory", "refuses every request");
}

#[test]
fn a_replica_and_a_primary_with_one_are_named() {
    let primary = with(&[]);
    let port = primary.port().to_string();
    let replica = with(&["--replicaof", "127.0.0.1", &port]);
    doctor_of(&replica.url()).breaks("authority", "role", "replica");
    let is_connected = (0..600).any(|_| {
        let is_it = doctor_of(&primary.url()).code == 1;
        if !is_it {
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        is_it
    });
    assert!(is_connected, "the replica never connected: {}", replica.log());
    doctor_of(&primary.url()).breaks("failover", "replicas", "1 are connected");
}

#[test]
fn a_redis_that_hides_its_settings_is_named() {
    let redis = with(&[]);
    redis.command("ACL SETUSER default -config");
    doctor_of(&redis.url()).breaks("durable", "CONFIG GET", "nobody knows");
}

#[test]
fn a_cluster_is_named() {
    let redis = with(&["--cluster-enabled", "yes"]);
    doctor_of(&redis.url()).breaks("usable", "server", "cluster");
}

#[test]
fn a_clock_that_is_wrong_is_named() {
    let redis = Redis::start_with_clock(&GOOD);
    redis.set_clock_ahead(10);
    let told = doctor_of(&redis.url());
    told.holds();
    told.risks("kept", "clock", " s ahead of this machine's");
    redis.set_clock_ahead(-3600);
    doctor_of(&redis.url()).breaks("kept", "clock", "s behind this machine's");
}

#[test]
fn records_of_an_earlier_build_are_named() {
    let redis = with(&[]);
    redis.command("SET oo:{0}:beat 1");
    doctor_of(&redis.url()).breaks("usable", "server", "earlier build");
}
