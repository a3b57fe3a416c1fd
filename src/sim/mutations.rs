//! Tests of the checkers: each deliberate bug is caught within a few stated seeds that the core without it
//! passes, and it is caught with an expected verdict.

use std::ops::Range;

use crate::base::bugs::{Bug, Bugs};
use crate::sim::TraceMode;
use crate::sim::failure::FailureKind;
use crate::sim::plan::Profile;
use crate::sim::run::{SimOptions, run};

/// The runs in which a bug is caught.
struct Hunt {
    bug: Bug,
    profile: Profile,
    seconds: u64,
    seeds: Range<u64>,
    /// The verdicts with which it may be caught.
    expected: &'static [FailureKind],
}

impl Hunt {
    fn options(&self, seed: u64) -> SimOptions {
        SimOptions { profile: self.profile, ..SimOptions::new(seed, self.seconds) }
    }

    fn check(&self) {
        for seed in self.seeds.clone() {
            if let Err(failure) = run(&self.options(seed)) {
                panic!("without a bug: {failure}");
            }
        }
        let mutated = |seed| {
            // The trace of an expected failure costs a second run: keep a short one from the start.
            let trace = TraceMode::Last(1);
            run(&SimOptions { bugs: Bugs::one(self.bug), trace, ..self.options(seed) })
        };
        let caught: Vec<_> =
            self.seeds.clone().filter_map(|seed| Some((seed, mutated(seed).err()?))).collect();
        assert!(!caught.is_empty(), "{:?} passes seeds {:?}", self.bug, self.seeds);
        let by: Vec<u64> = caught.iter().map(|(seed, _)| *seed).collect();
        println!("{:?}: caught by {by:?} of {:?}, first {}", self.bug, self.seeds, caught[0].1.what);
        for (_, failure) in caught {
            assert!(self.expected.contains(&failure.kind), "{:?} is caught as {failure}", self.bug);
        }
    }
}

macro_rules! hunts {
    ($($name:ident: $bug:ident, $profile:ident, $seconds:literal s, seeds $seeds:expr, as $($kind:ident)|+;)*) => {
        fn named(name: &str) -> Option<Hunt> {
            Some(match name {
                $(stringify!($name) => {
                    let expected = &[$(FailureKind::$kind),+];
                    let (bug, profile) = (Bug::$bug, Profile::$profile);
                    Hunt { bug, profile, seconds: $seconds, seeds: $seeds, expected }
                })*
                _ => return None,
            })
        }
        $(
            #[test]
            fn $name() {
                named(stringify!($name)).expect("it is named").check();
            }
        )*
    };
}

/// Looks for seeds that catch a bug, after a change that made those in the list below pass:
/// `GEOLOCK_HUNT='k_a_dead_due_request_blocks 0..500' cargo test --profile sim --lib hunt_for_seeds --
/// --ignored --nocapture`.
#[test]
#[ignore = "a tool, which needs GEOLOCK_HUNT"]
fn hunt_for_seeds() {
    let asked = std::env::var("GEOLOCK_HUNT").expect("GEOLOCK_HUNT is NAME FROM..TO");
    let (name, seeds) = asked.split_once(' ').expect("a name and seeds");
    let hunt = named(name).expect("a name of the list");
    let (from, to) = seeds.split_once("..").expect("seeds are FROM..TO");
    let number = |text: &str| text.parse::<u64>().expect("a number");
    for seed in number(from)..number(to) {
        let bugs = Bugs::one(hunt.bug);
        if let Err(failure) = run(&SimOptions { bugs, trace: TraceMode::Last(1), ..hunt.options(seed) }) {
            let is_expected = hunt.expected.contains(&failure.kind);
            println!(
                "seed {seed}: {:?}, {}",
                failure.kind,
                if is_expected { "expected" } else { "NOT expected" }
            );
        }
    }
}

hunts! {
    a_transfer_while_held: TransferWhileHeld, BusyReaders, 5 s, seeds 0..1, as ConflictingHolders | Panic;
    b_send_before_durable: SendBeforeDurable, Crashes, 5 s, seeds 0..1, as LeftBeforeDurable;
    c_a_reader_overtakes_a_due_writer: ReaderOvertakesDueWriter, BusyReaders, 15 s, seeds 0..1, as Starved | Panic;
    d_a_lost_request_is_not_sent_again: LostRequestNotResent, Resets, 10 s, seeds 0..1, as Starved | NotAnswered | NotQuiet | Violation;
    e_no_grace: NoGrace, Crashes, 15 s, seeds 2..3, as ConflictingHolders | HoldLost | Contract;
    f_tokens_reused: TokensReused, Crashes, 10 s, seeds 0..1, as HandedOutAgain | TokenOrder | HoldLost | Violation;
    g_a_lease_end_is_not_durable: LeaseEndNotDurable, Crashes, 15 s, seeds 0..1, as LeaseEndNotDurable;
    h_only_the_first_waiter_is_published: PublishFirstOnly, Tangle, 15 s, seeds 0..1, as NotAnswered | Panic;
    i_shared_past_exclusive: SharedPastExclusive, ReadersEverywhere, 10 s, seeds 0..1, as Overtaken;
    j_vectors_from_memory: VectorFromMemory, Crashes, 5 s, seeds 0..1, as LeftBeforeDurable;
    k_a_dead_due_request_blocks: DeadDueBlocks, DeadWriter, 40 s, seeds 0..1, as Starved | GivenToUnreachable;
    l_relayed_on_connect_only: RelayOnConnectOnly, LongCut, 25 s, seeds 0..1, as Starved;
    m_a_grant_before_the_data: GrantBeforeData, Transactions, 10 s, seeds 0..1, as NotSerialised | LeftBeforeDurable;
    n_a_tombstone_dropped_too_early: TombstoneDroppedTooEarly, Removals, 10 s, seeds 0..1, as Resurrected | WrongReading;
    o_a_lease_by_the_wall_clock: LeaseByWallClock, Clocks, 10 s, seeds 0..1, as LeaseEndedEarly | Contract;
    p_an_entry_applied_twice: AppliedTwice, Transactions, 10 s, seeds 0..1, as WrongReading | Diverged | Panic;
    q_a_withdrawn_request_is_served: WithdrawnServed, Resets, 5 s, seeds 0..1, as GivenUnasked | Diverged;
    r_parts_for_who_cannot_be_reached: PartsToUnreachable, DeadWriter, 40 s, seeds 0..1, as GivenToUnreachable;
    s_a_stale_reclaim_is_accepted: StaleReclaim, Crashes, 15 s, seeds 83..84, as HoldLost | ConflictingHolders | TokenOrder;
    t_a_state_without_the_own_entries: StateWithoutOwn, LeftBehind, 10 s, seeds 402..403, as WrongReading | Resurrected | Diverged | ExpiredEarly;
    u_a_state_told_before_it_is_durable: StateToldBeforeDurable, LeftBehind, 10 s, seeds 403..404, as LeftBeforeDurable;
    v_an_expiry_that_removes: ExpiryByRemoval, LeftBehind, 10 s, seeds 400..401, as GhostCommit | ExpiredEarly;
    w_a_held_lock_goes_home: HeldGoesHome, General, 10 s, seeds 0..1, as GivenUnasked | Panic | LeftBeforeDurable;
    x_a_move_is_seen_before_it_is_logged: SeenBeforeLogged, Clocks, 10 s, seeds 0..1, as Panic;
    y_a_change_of_a_key_that_ended: ChangeOfEndedKey, Removals, 10 s, seeds 0..1, as WithoutEffect;
    z_a_cancel_is_forgotten: CancelForgotten, General, 5 s, seeds 0..1, as Contract | NotAnswered | Starved | NotQuiet;
    aa_one_that_does_not_serve_blocks: NotServingBlocks, Crashes, 10 s, seeds 0..1, as GivenToUnreachable | Starved;
    ab_a_force_is_not_durable: ForceNotDurable, General, 10 s, seeds 9..10, as LeaseEndNotDurable;
    ad_a_force_is_forgotten: ForceForgotten, General, 10 s, seeds 9..10, as ForcedKeeps;
    ae_waits_end_all_at_once: AllWaitsAtOnce, Crowds, 5 s, seeds 0..1, as TooMuchWork;
    af_what_was_regained_is_not_awaited: RegainedNotAwaited, Disks, 10 s, seeds 900168..900169, as SnapshotOrder | NotSerialised;
    ag_a_key_counts_for_its_session: KeyOfSession, General, 10 s, seeds 8..9, as Contract | Panic | NotAnswered | NotQuiet;
    ah_grace_is_renewed_without_end: GraceRenewed, General, 10 s, seeds 31..32, as GraceTooLong;
    ai_a_refused_commit_leaves_its_changes: RefusedStays, Transactions, 10 s, seeds 632..633, as GhostCommit;
    aj_what_is_refused_is_done: RefusedIsDone, General, 10 s, seeds 32..33, as NotAnswered;
    ak_a_watch_misses_the_past: WatchMissesPast, General, 10 s, seeds 9..10, as WatchedWrong;
    al_a_sum_of_another_vector: SumOfAnotherVector, General, 10 s, seeds 0..1, as Diverged;
    an_parts_return_past_an_exclusive_request: ReturnedPastExclusive, ReadersEverywhere, 10 s, seeds 0..1, as GivenUnasked | Overtaken;
    ao_locks_elsewhere_count_for_the_limit: AwayElsewhereCounted, General, 10 s, seeds 1..2, as GivenUnasked;
    aq_a_member_counts_twice: MemberCountsTwice, Majority, 10 s, seeds 0..1, as NotAtMajority;
    ar_sent_counts_as_durable: SentCountsAsDurable, Majority, 10 s, seeds 0..1, as NotAtMajority;
    as_acknowledged_from_memory: AckFromMemory, Majority, 10 s, seeds 0..1, as LeftBeforeDurable | NotAtMajority;
    at_a_clock_that_is_behind_is_not_noticed: BehindNotNoticed, Clocks, 20 s, seeds 1..2, as Contract | GivenToUnreachable | Starved;
    au_a_home_is_ignored: HomeIgnored, Homed, 10 s, seeds 0..1, as ConflictingHolders | LeftBeforeDurable | TwoOwners | Violation | Panic | Starved | NotAnswered;
    av_idle_parts_go_to_their_namesakes: ReturnedByName, Homed, 10 s, seeds 0..1, as GivenUnasked;
    aw_a_sponsor_splits_without_naming: SplitUnnamed, Growth, 20 s, seeds 0..1, as ConflictingHolders | Panic | Violation;
    br_a_sponsor_names_parts_that_are_elsewhere: NamedElsewhere, Growth, 20 s, seeds 30..31, as TwoOwners | Diverged | Violation | NoOwner | Panic;
    ax_done_without_naming: DoneUnnamed, Growth, 20 s, seeds 9..10, as TwoOwners | Diverged | Violation | NoOwner | NotAnswered | Panic;
    bg_a_sponsor_names_no_homed_locks: HomedUnnamed, Growth, 20 s, seeds 29..30, as TwoOwners | Diverged | Violation | NoOwner | NotAnswered | Panic;
    bi_parts_are_given_to_one_that_leaves: GivenToLeaver, Changes, 20 s, seeds 18..19, as NoOwner | Panic | NotAnswered | Violation | Diverged | Starved | NotQuiet;
    bj_a_member_leaves_with_parts_of_others: LeavesWithParts, Changes, 20 s, seeds 2..3, as NoOwner | Panic | NotAnswered | Violation | Diverged | Starved | NotQuiet;
    bs_guards_are_seen_once: GuardsSeenOnce, Guarded, 10 s, seeds 800..801, as GuardLost;
    bt_commits_under_guards_are_not_noted: GuardedNotNoted, Guarded, 10 s, seeds 803..804, as NotSerialised;
    bu_reclaims_of_guards_are_not_awaited: GuardsNotAwaited, Guarded, 10 s, seeds 824..825, as Contract;
    cd_a_downgrade_lets_go: DowngradeLetsGo, ReadWrite, 5 s, seeds 0..1, as ConflictingHolders | TokenOrder | HoldLost | Contract;
    cg_enough_is_less_than_the_amount: EnoughBelowAmount, Enough, 10 s, seeds 1..2, as Contract;
    ch_a_spare_is_counted_as_held: EnoughSpareHeld, Enough, 10 s, seeds 1..2, as ConflictingHolders | Contract | LeftBeforeDurable | TokenOrder | SnapshotOrder;
    cm_the_whole_target_is_walked_for_each_lock: EnoughTargetWalked, ManyLocks, 10 s, seeds 1..2, as TooMuchWork;
    cj_what_was_dropped_stays_a_candidate: AmendKeepsDropped, Enough, 10 s, seeds 0..1, as Contract;
    bk_requests_of_one_that_was_evicted_stay: RequestsOutlive, Evictions, 20 s, seeds 2..3, as Violation | Panic | NotAnswered | Starved;
    bl_a_member_grants_unbacked: GrantsUnbacked, TimedEvictions, 20 s, seeds 1..2, as ConflictingHolders | TokenOrder | SnapshotOrder;
    bm_a_silent_voter_acknowledges: AcknowledgesSilent, TimedEvictions, 20 s, seeds 11..12, as ConflictingHolders | TokenOrder | NotAnswered | Starved;
    bo_a_member_leaves_in_grace: LeavesInGrace, TimedEvictions, 20 s, seeds 22200000000455..22200000000456, as ConflictingHolders | HoldLost;
    cd_a_member_leaves_that_is_to_stay: LeavesAfterCancel, Staying, 20 s, seeds 12..13, as Panic;
    bq_registers_name_an_earlier_member: RowsNotForgotten, Returns, 20 s, seeds 24600000000006..24600000000007, as Panic | Forgotten;
    ca_a_witness_promises_from_memory: WitnessPromiseNotOnDisk, Witnesses, 20 s, seeds 1..2, as LeftBeforeDurable;
    cb_a_member_promises_for_a_witness: PromisesForWitness, Witnesses, 20 s, seeds 17..18, as LeftBeforeDurable;
    cc_a_silence_of_a_witness_is_not_on_disk: SilenceNotOnDisk, Witnesses, 20 s, seeds 0..1, as LeftBeforeDurable;
    bv_survivors_recover_without_reports: RecoversWithoutReports, Recoveries, 20 s, seeds 29..30, as Panic | Diverged;
    ay_a_state_before_the_epoch: StateBeforeEpoch, Growth, 20 s, seeds 8..9, as TwoOwners | Violation | Diverged | Panic | NotAnswered;
    az_a_new_member_serves_unsettled: ServesUnsettled, Growth, 20 s, seeds 29..30, as GivenUnasked | ConflictingHolders | Panic | Violation | TwoOwners;
    dj_a_part_is_split_off_before_its_member_is_settled: SplitsUnsettled, Growth, 20 s, seeds 0..1, as SplitEarly;
    bz_a_rule_counts_before_parts_are_given: RuleAtOnce, Rules, 20 s, seeds 0..1, as TwoOwners | ConflictingHolders | Violation | Panic | Diverged | SnapshotOrder;
    ca_a_rule_takes_the_parts_of_held_locks: RehomedInUse, Rules, 20 s, seeds 0..1, as ConflictingHolders | Panic | TwoOwners;
    cb_the_home_of_a_moved_part_is_judged_here: RuleJudgedHere, Rules, 20 s, seeds 9..10, as Diverged | Violation | TwoOwners | NoOwner | Panic | NotAnswered;
    cl_a_version_is_used_that_not_all_speak: VersionTooEarly, Upgrades, 20 s, seeds 0..1, as Contract;
    ck_a_member_is_admitted_before_all_have_given: RuleUnseen, Rules, 20 s, seeds 17958879010012..17958879010013, as NotAnswered;
    dm_a_rule_is_set_before_all_have_seen_a_split: SplitUnseen, Rules, 20 s, seeds 17960621130049..17960621130050, as NotAnswered;
    dn_a_started_server_is_confirmed_by_who_does_not_hear_it: ConfirmedUnheard, Absences, 30 s, seeds 22..23, as ConflictingHolders | TokenOrder | SnapshotOrder | NotSerialised;
    df_compacted_epochs_are_passed_over: ServesWithoutCompacted, Compacted, 20 s, seeds 20058..20059, as Panic;
    dh_a_state_is_taken_after_the_end: StateAfterEnd, Compacted, 20 s, seeds 17960332720004..17960332720005, as Violation;
    di_all_that_was_held_back_is_applied_at_once: HeldBackAtOnce, Compacted, 20 s, seeds 17960332720096..17960332720097, as TooMuchWork;
    dl_readings_that_were_told_are_forgotten: ToldNotRemembered, Disks, 20 s, seeds 17960571880020..17960571880021, as TokenOrder;
    de_an_epoch_awaits_its_own_entry: EpochAwaitsItsEntry, RuledDisks, 20 s, seeds 49..50, as NotAnswered;
    am_forks_are_not_compared: ForksNotCompared, Disks, 10 s, seeds 900034..900035, as ForkMerged | ForkUnseen | NotAnswered;
    ba_heads_are_not_told: HeadsNotTold, Disks, 10 s, seeds 900014..900015, as ForkMerged | ForkUnseen | NotAnswered;
    bc_a_lease_of_a_client_that_went_elsewhere_stays: AbandonedLeaseStays, General, 10 s, seeds 1..2, as GraceTooLong | NotAnswered | Starved | NotQuiet;
    bd_a_snapshot_lacks_what_its_client_saw_elsewhere: AtLeastIgnored, General, 10 s, seeds 1..2, as SnapshotTooOld;
    be_a_large_value_is_walked_for_each_change: LargeValueWalked, Values, 10 s, seeds 1..2, as TooMuchWork;
    da_a_started_server_trusts_the_policy_that_it_knows: TrustsPolicy, Absences, 20 s, seeds 3..4, as ConflictingHolders | TokenOrder | SnapshotOrder | NotSerialised | Panic;
    dd_a_started_server_serves_unasked: ServesUnasked, Absences, 20 s, seeds 3..4, as ConflictingHolders | TokenOrder | SnapshotOrder | NotSerialised | Panic;
}
