//! What every store keeps, case by case, through [`Store`](crate::store::Store) alone.
//!
//! A store's tests name a function that makes a fresh [`TestStore`](super::TestStore) and get one test per case:
//!
//! ```text
//! async fn make() -> impl countersign::testing::TestStore { … }
//! countersign::contract_tests!(make);
//! ```

mod decide;
mod durable;
mod grants;
mod log;
mod reading;
mod records;
mod run;
mod submit;

pub use decide::*;
pub use durable::*;
pub use grants::*;
pub use log::*;
pub use reading::*;
pub use records::*;
pub use run::*;
pub use submit::*;

/// Makes one test per case of the contract, each on a fresh store from the given async function.
#[macro_export]
macro_rules! contract_tests {
    ($make:path) => {
        $crate::contract_tests! { $make;
            an_allowed_call_waits_to_be_claimed
            a_denied_call_is_refused_and_ends
            an_asked_call_opens_one_hold
            a_call_refused_before_judging_keeps_its_refusal
            the_same_key_and_arguments_are_the_same_call
            a_key_with_other_arguments_is_refused
            a_key_counts_for_its_principal_and_run_only
            where_nobody_can_be_asked_the_call_is_refused_or_marked
            too_many_pending_calls_are_refused_at_once
            too_many_questions_of_running_tools_are_refused
            a_flood_leaves_other_agents_alone
            an_allowed_call_may_be_claimed_at_once
            a_stale_policy_judges_nothing
            a_call_id_is_taken_once
            an_approval_lets_the_call_run
            a_denial_ends_the_call
            an_answer_stands_in_for_the_tool
            the_first_decision_wins
            a_decision_for_other_bytes_is_refused
            a_quorum_counts_distinct_people
            what_is_unknown_is_not_found
            a_late_decision_finds_the_hold_expired
            an_edit_that_asks_again_opens_another_hold
            an_edit_under_an_old_policy_is_turned_away
            an_edit_into_a_doubt_asks_again
            a_new_grant_releases_an_open_hold
            a_failed_approver_closes_the_hold
            a_cancelled_call_never_runs
            one_of_many_deciders_wins
            a_call_is_claimed_once
            one_of_many_claimants_wins
            a_halt_stops_claims_and_ends_nothing
            a_halt_of_one_agent_stops_no_other
            a_lease_is_renewed_by_its_own_fence_only
            a_running_tool_may_ask
            a_hold_id_is_taken_once
            a_result_is_stored_and_replayed
            a_failed_run_keeps_its_error
            a_lost_lease_is_a_doubt
            a_repeatable_call_gets_another_attempt
            a_doubt_is_resolved_by_a_person
            a_late_result_settles_its_doubt
            a_doubt_makes_identical_calls_ask_until_all_are_settled
            a_doubt_is_its_principals_own
            an_unclaimed_approval_lapses
            a_session_grant_comes_before_a_global_one
            a_grant_kept_in_mind_is_never_stored
            uses_are_consumed_at_claim
            a_revoked_grant_stops_the_claim
            a_grant_never_leaves_its_scope
            a_wide_grant_covers_its_tool_on_its_server
            a_folder_grant_covers_what_lies_below
            an_expired_grant_covers_nothing
            no_save_undoes_a_revoke
            a_denial_is_remembered_in_its_run
            calls_are_listed_by_every_filter
            calls_come_in_pages
            holds_inside_a_run_are_listed
            openings_are_found_together
            due_calls_are_listed_when_their_time_has_come
            absent_things_read_as_nothing
            every_chain_verifies
            a_tail_resumes_without_gap_or_double
            events_are_found_by_chain_session_and_call
            a_checkpoint_signs_what_moved
            many_heads_are_signed_by_several_checkpoints
            the_policy_is_kept_and_announced
            a_record_is_written_only_as_expected
            an_expired_record_is_gone
            records_are_listed_by_prefix_in_pages
            the_bell_rings_after_every_commit
            reopening_keeps_everything
        }
    };
    ($make:path; $($case:ident)*) => {
        $(
            #[tokio::test]
            async fn $case() {
                let fresh = $make().await;
                $crate::testing::contract::$case(&fresh).await;
            }
        )*
    };
}
