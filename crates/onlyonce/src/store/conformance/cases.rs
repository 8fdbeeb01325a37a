//! The table of the cases.

mod check_value;
mod claim;
mod crash;
mod damage;
mod inspect;
mod late;
mod model;
mod owner;
mod race;
mod renew;
mod repeat;
mod response;
mod revision;
mod scan;
mod sweep;
mod time;
mod unsure;
mod watch;

use super::{Case, Factory, Running};

/// Every case: its module, its name, and the promise that it tests.
macro_rules! suite {
    ($($module:ident { $($name:ident: $promise:literal,)+ })+) => {
        /// Every case, in the order in which they are run.
        pub const fn cases() -> &'static [Case] {
            &[$($(Case { name: stringify!($name), promise: $promise },)+)+]
        }

        /// # Panics
        /// If no case has that name: a [`Case`] that was not made here.
        pub(super) fn start<'a, F: Factory>(name: &str, factory: &'a F) -> Running<'a> {
            match name {
                $($(stringify!($name) => Box::pin($module::$name(factory)),)+)+
                _ => panic!("the suite has no case named {name}"),
            }
        }
    };
}

suite! {
    claim {
        a_claim_of_an_absent_id_inserts_it: "Inserts the draft if its id is absent",
        a_claim_leaves_other_ids_alone: "Inserts the draft if its id is absent",
        a_repeat_of_a_claim_is_mine: "Repeat it, same draft, after `Unsure`",
        a_claim_of_a_running_record_returns_it: "else returns what is there",
        a_claim_of_an_unknown_record_returns_it: "else returns what is there",
        a_claim_of_a_released_record_returns_it: "released records are the engine's to judge",
        a_claim_of_a_completed_record_returns_it: "else returns what is there",
        a_claim_of_an_expired_record_returns_it: "expired records are the engine's to judge",
        a_claim_that_is_no_longer_running_is_not_mine: "running with the token of the draft",
        a_claim_after_its_not_after_inserts_nothing: "reaches the store later than this inserts nothing",
        a_claim_at_its_not_after_is_in_time: "if `not_after` has not passed",
        a_repeat_after_its_not_after_is_mine: "Repeat it, same draft, after `Unsure`",
    }
    owner {
        a_settle_by_another_token_is_stale: "It has this token and one of these states",
        a_release_by_another_token_is_stale: "It has this token and one of these states",
        an_unknown_mark_by_another_token_is_stale: "It has this token and one of these states",
        a_return_by_another_token_is_stale: "It has this token and one of these states",
        an_owner_writes_only_from_the_states_it_names: "It has this token and one of these states",
        a_completed_record_is_not_settled_otherwise: "a guard that fails is an answer, `Stale`",
        a_completed_record_is_not_released: "a guard that fails is an answer, `Stale`",
        a_released_record_does_not_become_unknown: "a guard that fails is an answer, `Stale`",
        an_owner_settles_what_became_unknown_or_released: "the owner's token kept",
        no_swap_makes_a_record_that_is_absent: "if `guard` still holds",
        a_swap_leaves_other_ids_alone: "Makes the record what `to` says",
    }
    revision {
        another_writes_what_it_read: "It is exactly as it was read",
        a_reap_of_a_changed_record_is_stale: "It is exactly as it was read",
        a_release_of_a_changed_record_is_stale: "It is exactly as it was read",
        a_take_of_a_changed_record_is_stale: "It is exactly as it was read",
        a_decree_on_a_changed_record_is_stale: "It is exactly as it was read",
        a_deletion_of_a_changed_record_is_stale: "It is exactly as it was read",
        every_write_changes_the_revision: "Names one write of one record",
        a_revision_does_not_come_back_when_a_record_is_deleted_and_made_anew: "It never comes back for an id, not even after the record was deleted and made anew",
    }
    renew {
        a_renewal_extends_the_lease: "Extends the lease of each running record that still has its token",
        a_renewal_changes_the_revision: "changes its revision",
        a_renewal_by_another_token_is_lost: "The record is no longer this owner's",
        a_renewal_of_what_does_not_run_is_lost: "or no longer running",
        beats_come_in_the_order_of_their_entries: "One beat per entry, in their order",
    }
    response {
        a_body_is_kept_byte_for_byte: "Every byte of it",
        a_large_body_is_kept_whole: "The largest body that it keeps",
        headers_are_kept_with_their_repeats_in_order: "What a retry is answered with",
        trailers_are_kept: "What followed it; gRPC has its status there",
        a_body_that_is_not_kept_keeps_its_reason: "A body that is kept, or the reason why it is not",
        who_settled_it_is_kept: "Who wrote the outcome",
        a_record_that_replaces_another_is_kept_as_it_is: "Exactly this record, times and all",
    }
    repeat {
        a_repeated_settle_is_done: "or the record already was what this write makes it",
        a_settle_with_other_content_is_stale: "already was what this write makes it, and nothing else",
        a_repeated_release_is_done: "or the record already was what this write makes it",
        a_repeated_unknown_mark_is_done: "or the record already was what this write makes it",
        a_repeated_return_is_done: "or the record already was what this write makes it",
        a_return_to_another_moment_is_stale: "already was what this write makes it, and nothing else",
        a_repeated_reap_is_done: "or the record already was what this write makes it",
        a_repeated_release_of_an_unknown_is_done: "or the record already was what this write makes it",
        a_repeated_take_is_done: "or the record already was what this write makes it",
        a_repeated_decree_is_done: "or the record already was what this write makes it",
        a_repeated_replacement_is_done: "or the record already was what this write makes it",
    }
    time {
        the_time_to_live_counts_from_completion: "Final; forgotten after its ttl",
        a_released_record_is_kept_for_its_ttl: "its ttl from now",
        an_unknown_outcome_is_since_the_stores_now: "Times are the store's, taken when it writes",
        an_attempt_returns_to_its_earlier_unknown: "since an earlier moment that it returns to",
        an_attempt_returns_to_its_earlier_release: "at the moment that it returns to",
        a_take_is_the_attempt_it_says: "A new attempt",
        a_take_of_nothing_earlier_is_first_claimed_now: "`None`: now",
        a_take_after_its_not_after_writes_nothing: "reaches the store later than this inserts nothing",
        a_write_keeps_what_it_does_not_name: "Makes the record what `to` says",
        time_ends_and_does_not_wrap: "All arithmetic saturates",
        time_does_not_run_backward_when_the_clock_is_set_back: "the store's time of this answer",
        load_sees_every_write_that_was_answered: "It must see every write that was answered before it was called",
    }
    sweep {
        an_expired_record_is_there_until_it_is_swept: "expired records are the engine's to judge",
        a_sweep_deletes_what_has_expired: "Deletes records whose time to live is over",
        a_sweep_spares_what_has_not_expired: "Deletes records whose time to live is over",
        a_sweep_goes_by_the_moment_it_is_given: "at `until`, whatever the store's own clock says",
        a_sweep_spares_running_and_unknown_records: "Never a running or unknown one",
        a_record_that_was_taken_does_not_expire_with_what_it_was: "Deletes records whose time to live is over",
        a_sweep_deletes_no_more_than_its_limit: "Deletes at most `limit` records",
        a_sweep_says_whether_more_had_expired: "Whether more were expired than the limit let it delete",
    }
    scan {
        pages_have_no_gaps_and_no_doubles: "The records, each once",
        a_scan_lists_only_the_states_it_asks_for: "The records in the given states",
        a_scan_of_nothing_ends_at_once: "`None` after the last",
        a_scan_sees_what_was_there_throughout: "The records in the given states, a page at a time",
    }
    inspect {
        the_records_of_a_prefix_are_found: "records whose ids begin with `prefix`",
        a_census_counts_what_needs_attention: "How many records there are",
    }
    watch {
        a_settle_wakes: "The future ends after the next write of the record",
        a_release_wakes: "The future ends after the next write of the record",
        a_release_of_an_unknown_wakes: "The future ends after the next write of the record",
        an_unknown_mark_wakes: "The future ends after the next write of the record",
        a_decree_wakes: "The future ends after the next write of the record",
        every_watcher_wakes: "The future ends after the next write of the record",
        a_watcher_that_gives_up_does_not_silence_others: "The future ends after the next write of the record",
        who_subscribes_then_loads_misses_nothing: "subscribe, then load",
    }
    check_value {
        the_first_check_value_of_a_name_is_kept: "if `from` is kept there (`None`: if nothing is)",
        a_check_value_is_replaced_by_who_names_it: "if `from` is kept there",
        a_check_value_is_no_record: "Keeps the text `to` under `name`",
        of_many_first_check_values_one_is_kept: "in one step",
        a_check_value_survives_a_crash: "as durably as a record",
    }
    race {
        a_claim_is_won_by_one_of_many_racers: "Inserts the draft if its id is absent",
        copies_of_one_claim_that_race_are_all_mine: "it must wait behind the one that may still be in flight",
        a_record_is_taken_by_one_of_many_racers: "if `guard` still holds",
        a_settle_or_a_take_wins_and_not_both: "if `guard` still holds",
        a_settle_that_races_the_reaper_is_kept: "an owner's write",
        a_taken_record_survives_the_sweep_that_races_it: "Deletes records whose time to live is over",
        a_claim_that_races_a_sweep_sees_a_record: "Inserts the draft, else returns what is there",
        copies_of_one_settle_that_race_are_all_done: "It must be harmless",
    }
    unsure {
        a_claim_whose_answer_was_lost_is_mine_when_repeated: "*Unsure* is resolved by repeating the identical call",
        a_claim_that_was_lost_is_won_when_repeated: "*Unsure* is resolved by repeating the identical call",
        a_settle_whose_answer_was_lost_is_done_when_repeated: "*Unsure* is resolved by repeating the identical call",
        a_release_whose_answer_was_lost_is_done_when_repeated: "*Unsure* is resolved by repeating the identical call",
        an_unknown_mark_whose_answer_was_lost_is_done_when_repeated: "*Unsure* is resolved by repeating the identical call",
        a_take_whose_answer_was_lost_is_done_when_repeated: "*Unsure* is resolved by repeating the identical call",
        a_decree_whose_answer_was_lost_is_done_when_repeated: "*Unsure* is resolved by repeating the identical call",
        a_claim_that_arrives_twice_inserts_once: "It must be harmless",
        a_settle_that_arrives_twice_writes_once: "It must be harmless",
        a_renewal_that_arrives_twice_is_kept: "It must be harmless",
        a_call_whose_future_was_dropped_is_resolved_by_repeating_it: "a future that was dropped or timed out included, is `Unsure`",
    }
    late {
        a_late_claim_after_release_and_not_after_inserts_nothing: "reaches the store later than this inserts nothing",
        a_late_claim_after_the_settle_changes_nothing: "else returns what is there",
        a_late_settle_after_a_takeover_is_stale: "It has this token and one of these states",
        a_late_release_after_a_takeover_is_stale: "It has this token and one of these states",
        a_late_release_after_the_settle_is_stale: "It has this token and one of these states",
        a_late_unknown_mark_after_the_settle_is_stale: "It has this token and one of these states",
        a_late_renewal_after_a_takeover_is_lost: "The record is no longer this owner's",
        a_late_take_after_anothers_take_is_stale: "It is exactly as it was read",
        a_late_take_after_its_own_return_is_stale: "It is exactly as it was read",
        a_late_reap_after_a_renewal_is_stale: "It is exactly as it was read",
    }
    model {
        any_history_goes_as_in_the_model: "It knows no policy: what may follow what is the engine's to say",
    }
    crash {
        every_state_survives_a_crash: "An answer is given only after the write it reports is as durable as the store promises",
        a_running_record_is_never_absent_after_a_crash: "An answer is given only after the write it reports is as durable as the store promises",
        a_response_survives_a_crash_byte_for_byte: "An answer is given only after the write it reports is as durable as the store promises",
        what_was_deleted_stays_deleted_after_a_crash: "An answer is given only after the write it reports is as durable as the store promises",
        tokens_fence_after_a_crash_as_before: "It has this token and one of these states",
    }
    damage {
        a_damaged_record_is_an_error_and_never_absent: "A record that cannot be read is an error for its id. It is never absent",
        a_damaged_record_is_not_renewed: "A record that cannot be read is an error for its id",
        damage_to_one_record_is_not_damage_to_another: "is an error for its id",
    }
}
