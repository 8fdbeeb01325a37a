//! Each of these stores has one defect. The suite names it, every time, and accuses nobody else.

#[path = "conformance_wrong_stores/defect.rs"]
mod defect;
#[path = "conformance_wrong_stores/store.rs"]
mod store;
#[path = "conformance_wrong_stores/ways.rs"]
mod ways;

use defect::Defect;
use onlyonce::store::conformance::{Case, Report, Verdict, exercise};
use store::WrongStores;
use tokio::runtime::Runtime;

// threat J17
#[test]
fn a_store_without_a_defect_passes_every_case() {
    let report = report(None);
    report.assert_passed();
    assert_eq!(report.skipped().count(), 0, "{report}");
}

#[test]
fn a_store_that_panics_fails_the_case_at_hand() {
    for name in ["a_claim_leaves_other_ids_alone", RACE] {
        let why = why(Defect::ClaimPanics, name);
        assert_eq!(why, "panicked: it has a bad day");
    }
}

#[test]
fn a_store_that_never_answers_fails_the_case_in_time() {
    for name in ["a_claim_leaves_other_ids_alone", RACE] {
        assert_eq!(why(Defect::ClaimHangs, name), "no end after 30s");
    }
}

/// A wrong store, the case named for its defect, and the other cases that notice it too.
macro_rules! wrong_stores {
    ($($test:ident: $defect:ident fails $named:ident $(and $($other:ident),+)?;)+) => {
        $(#[test]
        fn $test() {
            fails(Defect::$defect, &[stringify!($named), $($(stringify!($other),)+)?]);
        })+
    };
}

wrong_stores! {
    claim_checks_then_inserts: ClaimChecksThenInserts fails
        a_claim_is_won_by_one_of_many_racers and
        a_claim_that_races_a_sweep_sees_a_record;
    claim_replaces_expired: ClaimReplacesExpired fails
        a_claim_of_an_expired_record_returns_it;
    claim_replaces_released: ClaimReplacesReleased fails
        a_claim_of_a_released_record_returns_it and
        a_claim_of_an_expired_record_returns_it,
        a_claim_that_is_no_longer_running_is_not_mine,
        any_history_goes_as_in_the_model;
    claim_replaces_unknown: ClaimReplacesUnknown fails
        a_claim_of_an_unknown_record_returns_it and
        a_claim_of_an_expired_record_returns_it,
        a_claim_that_is_no_longer_running_is_not_mine,
        any_history_goes_as_in_the_model;
    claim_repeated_is_not_mine: ClaimRepeatedIsNotMine fails
        a_repeat_of_a_claim_is_mine and
        a_repeat_after_its_not_after_is_mine,
        copies_of_one_claim_that_race_are_all_mine,
        a_claim_whose_answer_was_lost_is_mine_when_repeated,
        a_claim_that_arrives_twice_inserts_once,
        a_call_whose_future_was_dropped_is_resolved_by_repeating_it;
    claim_is_always_mine: ClaimIsAlwaysMine fails
        a_claim_of_a_running_record_returns_it and
        a_claim_of_an_unknown_record_returns_it,
        a_claim_of_a_released_record_returns_it,
        a_claim_of_a_completed_record_returns_it,
        a_claim_of_an_expired_record_returns_it,
        a_claim_that_is_no_longer_running_is_not_mine,
        a_claim_after_its_not_after_inserts_nothing,
        a_claim_is_won_by_one_of_many_racers,
        a_claim_that_races_a_sweep_sees_a_record,
        a_late_claim_after_release_and_not_after_inserts_nothing,
        a_late_claim_after_the_settle_changes_nothing,
        any_history_goes_as_in_the_model;
    claim_ignores_not_after: ClaimIgnoresNotAfter fails
        a_claim_after_its_not_after_inserts_nothing and
        a_late_claim_after_release_and_not_after_inserts_nothing;
    claim_ends_too_soon: ClaimEndsTooSoon fails
        a_claim_at_its_not_after_is_in_time;
    claim_forgets_the_route: ClaimForgetsTheRoute fails
        a_claim_of_an_absent_id_inserts_it;
    ids_are_halved: IdsAreHalved fails
        a_claim_leaves_other_ids_alone and
        pages_have_no_gaps_and_no_doubles,
        a_scan_sees_what_was_there_throughout,
        the_records_of_a_prefix_are_found;
    take_ignores_not_after: TakeIgnoresNotAfter fails
        a_take_after_its_not_after_writes_nothing;
    take_forgets_its_origin: TakeForgetsItsOrigin fails
        a_take_is_the_attempt_it_says and
        any_history_goes_as_in_the_model;
    load_remembers_absent: LoadRemembersAbsent fails
        load_sees_every_write_that_was_answered and
        a_revision_does_not_come_back_when_a_record_is_deleted_and_made_anew,
        who_subscribes_then_loads_misses_nothing,
        any_history_goes_as_in_the_model;
    load_hides_expired: LoadHidesExpired fails
        an_expired_record_is_there_until_it_is_swept and
        a_claim_of_an_expired_record_returns_it,
        a_sweep_goes_by_the_moment_it_is_given,
        a_sweep_deletes_no_more_than_its_limit;
    owner_needs_no_token: OwnerNeedsNoToken fails
        a_settle_by_another_token_is_stale and
        a_release_by_another_token_is_stale,
        an_unknown_mark_by_another_token_is_stale,
        a_return_by_another_token_is_stale,
        a_settle_or_a_take_wins_and_not_both,
        a_late_settle_after_a_takeover_is_stale,
        a_late_release_after_a_takeover_is_stale,
        any_history_goes_as_in_the_model,
        tokens_fence_after_a_crash_as_before;
    owner_needs_no_state: OwnerNeedsNoState fails
        an_owner_writes_only_from_the_states_it_names and
        a_completed_record_is_not_settled_otherwise,
        a_completed_record_is_not_released,
        a_released_record_does_not_become_unknown,
        a_settle_with_other_content_is_stale,
        a_return_to_another_moment_is_stale,
        a_late_release_after_the_settle_is_stale,
        a_late_unknown_mark_after_the_settle_is_stale,
        any_history_goes_as_in_the_model;
    revision_is_the_count: RevisionIsTheCount fails
        a_revision_does_not_come_back_when_a_record_is_deleted_and_made_anew and
        a_late_take_after_its_own_return_is_stale,
        any_history_goes_as_in_the_model;
    swap_checks_then_writes: SwapChecksThenWrites fails
        a_record_is_taken_by_one_of_many_racers and
        a_settle_or_a_take_wins_and_not_both,
        a_settle_that_races_the_reaper_is_kept;
    swap_writes_though_stale: SwapWritesThoughStale fails
        a_take_of_a_changed_record_is_stale and
        a_settle_by_another_token_is_stale,
        a_release_by_another_token_is_stale,
        an_unknown_mark_by_another_token_is_stale,
        a_return_by_another_token_is_stale,
        an_owner_writes_only_from_the_states_it_names,
        a_completed_record_is_not_settled_otherwise,
        a_completed_record_is_not_released,
        a_released_record_does_not_become_unknown,
        a_reap_of_a_changed_record_is_stale,
        a_release_of_a_changed_record_is_stale,
        a_decree_on_a_changed_record_is_stale,
        a_deletion_of_a_changed_record_is_stale,
        a_revision_does_not_come_back_when_a_record_is_deleted_and_made_anew,
        a_settle_with_other_content_is_stale,
        a_return_to_another_moment_is_stale,
        a_settle_or_a_take_wins_and_not_both,
        a_settle_that_races_the_reaper_is_kept,
        a_late_settle_after_a_takeover_is_stale,
        a_late_release_after_a_takeover_is_stale,
        a_late_release_after_the_settle_is_stale,
        a_late_unknown_mark_after_the_settle_is_stale,
        a_late_take_after_anothers_take_is_stale,
        a_late_take_after_its_own_return_is_stale,
        a_late_reap_after_a_renewal_is_stale,
        any_history_goes_as_in_the_model,
        tokens_fence_after_a_crash_as_before;
    swap_makes_what_is_absent: SwapMakesWhatIsAbsent fails
        no_swap_makes_a_record_that_is_absent and
        any_history_goes_as_in_the_model;
    write_forgets_the_attempt: WriteForgetsTheAttempt fails
        a_write_keeps_what_it_does_not_name and
        any_history_goes_as_in_the_model;
    reap_takes_the_token: ReapTakesTheToken fails
        an_owner_settles_what_became_unknown_or_released and
        another_writes_what_it_read,
        a_repeated_reap_is_done,
        a_settle_that_races_the_reaper_is_kept,
        an_unknown_mark_whose_answer_was_lost_is_done_when_repeated,
        a_call_whose_future_was_dropped_is_resolved_by_repeating_it,
        any_history_goes_as_in_the_model;
    settler_is_forgotten: SettlerIsForgotten fails
        who_settled_it_is_kept and
        a_repeated_decree_is_done,
        a_decree_whose_answer_was_lost_is_done_when_repeated,
        any_history_goes_as_in_the_model;
    unknown_is_since_the_claim: UnknownIsSinceTheClaim fails
        an_unknown_outcome_is_since_the_stores_now and
        a_repeated_return_is_done;
    time_wraps: TimeWraps fails
        time_ends_and_does_not_wrap;
    repeat_is_stale: RepeatIsStale fails
        a_repeated_settle_is_done and
        a_repeated_release_is_done,
        a_repeated_unknown_mark_is_done,
        a_repeated_return_is_done,
        a_repeated_reap_is_done,
        a_repeated_release_of_an_unknown_is_done,
        a_repeated_take_is_done,
        a_repeated_decree_is_done,
        a_repeated_replacement_is_done,
        copies_of_one_settle_that_race_are_all_done,
        a_settle_whose_answer_was_lost_is_done_when_repeated,
        a_release_whose_answer_was_lost_is_done_when_repeated,
        an_unknown_mark_whose_answer_was_lost_is_done_when_repeated,
        a_take_whose_answer_was_lost_is_done_when_repeated,
        a_decree_whose_answer_was_lost_is_done_when_repeated,
        a_settle_that_arrives_twice_writes_once,
        a_call_whose_future_was_dropped_is_resolved_by_repeating_it,
        any_history_goes_as_in_the_model;
    return_is_since_now: ReturnIsSinceNow fails
        an_attempt_returns_to_its_earlier_unknown and
        a_return_to_another_moment_is_stale,
        an_attempt_returns_to_its_earlier_release;
    renew_needs_no_token: RenewNeedsNoToken fails
        a_renewal_by_another_token_is_lost and
        a_late_renewal_after_a_takeover_is_lost,
        any_history_goes_as_in_the_model;
    renew_keeps_the_revision: RenewKeepsTheRevision fails
        a_renewal_changes_the_revision and
        a_reap_of_a_changed_record_is_stale,
        a_release_of_a_changed_record_is_stale,
        a_take_of_a_changed_record_is_stale,
        a_decree_on_a_changed_record_is_stale,
        a_deletion_of_a_changed_record_is_stale,
        every_write_changes_the_revision,
        a_late_reap_after_a_renewal_is_stale,
        any_history_goes_as_in_the_model;
    renew_keeps_the_lease: RenewKeepsTheLease fails
        a_renewal_extends_the_lease;
    renew_revives: RenewRevives fails
        a_renewal_of_what_does_not_run_is_lost and
        beats_come_in_the_order_of_their_entries,
        any_history_goes_as_in_the_model;
    beats_come_sorted: BeatsComeSorted fails
        beats_come_in_the_order_of_their_entries;
    ttl_counts_from_claim: TtlCountsFromClaim fails
        the_time_to_live_counts_from_completion and
        a_repeated_return_is_done,
        a_released_record_is_kept_for_its_ttl;
    time_runs_backward: TimeRunsBackward fails
        time_does_not_run_backward_when_the_clock_is_set_back;
    body_is_cut: BodyIsCut fails
        a_large_body_is_kept_whole;
    body_is_text: BodyIsText fails
        a_body_is_kept_byte_for_byte and
        a_large_body_is_kept_whole,
        a_response_survives_a_crash_byte_for_byte;
    headers_are_joined: HeadersAreJoined fails
        headers_are_kept_with_their_repeats_in_order and
        a_response_survives_a_crash_byte_for_byte;
    headers_lose_repeats: HeadersLoseRepeats fails
        headers_are_kept_with_their_repeats_in_order and
        a_response_survives_a_crash_byte_for_byte;
    trailers_are_dropped: TrailersAreDropped fails
        trailers_are_kept and
        a_response_survives_a_crash_byte_for_byte;
    reason_is_forgotten: ReasonIsForgotten fails
        a_body_that_is_not_kept_keeps_its_reason and
        a_record_that_replaces_another_is_kept_as_it_is,
        a_repeated_replacement_is_done;
    sweep_ignores_the_state: SweepIgnoresTheState fails
        a_sweep_spares_running_and_unknown_records and
        a_record_that_was_taken_does_not_expire_with_what_it_was,
        a_taken_record_survives_the_sweep_that_races_it,
        a_claim_that_races_a_sweep_sees_a_record;
    sweep_checks_then_deletes: SweepChecksThenDeletes fails
        a_taken_record_survives_the_sweep_that_races_it;
    sweep_ignores_its_limit: SweepIgnoresItsLimit fails
        a_sweep_deletes_no_more_than_its_limit and
        a_sweep_says_whether_more_had_expired;
    sweep_ignores_expiry: SweepIgnoresExpiry fails
        a_sweep_spares_what_has_not_expired and
        a_sweep_goes_by_the_moment_it_is_given;
    sweep_spares_released: SweepSparesReleased fails
        a_sweep_deletes_what_has_expired;
    sweep_never_says_more: SweepNeverSaysMore fails
        a_sweep_says_whether_more_had_expired;
    sweep_asks_the_clock: SweepAsksTheClock fails
        a_sweep_goes_by_the_moment_it_is_given;
    prefix_skips_the_last: PrefixSkipsTheLast fails
        the_records_of_a_prefix_are_found;
    census_counts_released: CensusCountsReleased fails
        a_census_counts_what_needs_attention;
    scan_skips_a_row: ScanSkipsARow fails
        pages_have_no_gaps_and_no_doubles and
        a_scan_lists_only_the_states_it_asks_for,
        a_scan_sees_what_was_there_throughout;
    watch_subscribes_when_polled: WatchSubscribesWhenPolled fails
        who_subscribes_then_loads_misses_nothing and
        a_settle_wakes,
        a_release_wakes,
        a_release_of_an_unknown_wakes,
        an_unknown_mark_wakes,
        a_decree_wakes,
        every_watcher_wakes,
        a_watcher_that_gives_up_does_not_silence_others;
    watch_wakes_one: WatchWakesOne fails
        every_watcher_wakes;
    watch_misses_release: WatchMissesRelease fails
        a_release_wakes;
    check_value_is_replaced: CheckValueIsReplaced fails
        the_first_check_value_of_a_name_is_kept and
        of_many_first_check_values_one_is_kept,
        a_check_value_survives_a_crash;
    check_value_needs_no_guard: CheckValueNeedsNoGuard fails
        a_check_value_is_replaced_by_who_names_it;
    check_value_checks_then_writes: CheckValueChecksThenWrites fails
        of_many_first_check_values_one_is_kept;
    crash_forgets_check_values: CrashForgetsCheckValues fails
        a_check_value_survives_a_crash;
    crash_loses_unknown: CrashLosesUnknown fails
        every_state_survives_a_crash;
    crash_loses_running: CrashLosesRunning fails
        a_running_record_is_never_absent_after_a_crash and
        tokens_fence_after_a_crash_as_before;
    crash_revives_deleted: CrashRevivesDeleted fails
        what_was_deleted_stays_deleted_after_a_crash;
    damaged_is_absent: DamagedIsAbsent fails
        a_damaged_record_is_an_error_and_never_absent and
        a_damaged_record_is_not_renewed,
        damage_to_one_record_is_not_damage_to_another;
}

fn fails(defect: Defect, expected: &[&str]) {
    let mut expected = expected.to_vec();
    expected.sort_unstable();
    for _ in 0..runs() {
        let report = report(Some(defect));
        let mut failed: Vec<_> = report.failed().collect();
        failed.sort_unstable();
        assert_eq!(failed, expected, "{report}");
    }
}

fn why(defect: Defect, name: &str) -> String {
    let case = Case::named(name).expect("the case is in the suite");
    match runtime().block_on(case.run(&WrongStores(Some(defect)))) {
        Verdict::Failed(why) => why,
        other => panic!("{name}: {other:?}"),
    }
}

fn report(defect: Option<Defect>) -> Report {
    runtime().block_on(exercise(&WrongStores(defect)))
}

/// On one thread and with time that passes only when nobody has anything to do: the same every time.
fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime starts")
}

fn runs() -> usize {
    let tier = std::env::var("ONLYONCE_TEST_TIER");
    if tier.is_ok_and(|tier| tier == "full") { 20 } else { 2 }
}

const RACE: &str = "a_claim_is_won_by_one_of_many_racers";
