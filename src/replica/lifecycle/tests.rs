//! The lifecycle as a whole: updates, deadlines and permissions.

use std::time::Duration;

use super::*;

const MAX_LOG: usize = 100;

fn dc(id: u8) -> DcId {
    DcId::new(id).expect("a small id")
}

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

fn applied(own: u64) -> VersionVector {
    VersionVector::from_iter([(dc(0), own)])
}

fn fork() -> Fork {
    Fork { dc: dc(1), seq: 7, ours: 1, theirs: 2, peer: dc(1) }
}

/// Datacenter 0 of two, with an empty directory.
fn new() -> Lifecycle {
    let (peers, peer_timeout) = (DcSet::only(dc(1)), Duration::from_secs(3));
    Lifecycle::new(&Parameters {
        me: dc(0),
        peers,
        peer_timeout,
        max_log: MAX_LOG,
        may_serve: true,
        speaks: super::peer_versions::VERSION,
    })
}

/// The same at its first step after a restart, with `leases` in grace.
fn restarted(leases: usize) -> Lifecycle {
    let mut life = new();
    life.on_joined();
    life.on_restart(Some(at(500)), 0, &applied(5));
    life.on_leases_in_grace(leases);
    assert!(life.begin_step(at(0)) && !life.begin_step(at(1)));
    life
}

fn judge(life: &mut Lifecycle, judgement: Judgement) {
    life.on_clock_judged(judgement, at(900));
}

/// The same, serving and settled.
fn serving() -> Lifecycle {
    let mut life = restarted(0);
    life.on_heard(dc(1));
    judge(&mut life, Judgement::Right);
    assert_eq!(life.settle(0).phase, Some(Phase::Serving));
    assert!(life.announced.announce(None), "before, it had just started");
    life.check(&applied(5), 0);
    life
}

fn poll(life: &mut Lifecycle, ms: u64) -> Option<Action> {
    life.poll(at(ms), &applied(5), DcSet::EMPTY)
}

#[test]
fn the_clock_of_a_restart_is_judged_when_its_reservation_is_over_and_again_until_it_is_right() {
    let mut life = restarted(0);
    life.on_heard(dc(1));
    assert_eq!((poll(&mut life, 499), life.next_deadline(DcSet::EMPTY)), (None, at(500)));
    assert_eq!(poll(&mut life, 500), Some(Action::JudgeClock));
    judge(&mut life, Judgement::Contradicted);
    assert!(life.state.is_starting() && life.state.is_contradicted());
    assert_eq!((poll(&mut life, 899), life.next_deadline(DcSet::EMPTY)), (None, at(900)));
    assert_eq!(poll(&mut life, 900), Some(Action::JudgeClock));
    judge(&mut life, Judgement::Right);
    assert_eq!((poll(&mut life, 900), life.phase()), (None, Phase::Serving));
}

#[test]
fn a_restart_serves_when_members_were_heard_or_waited_for_and_leases_have_reclaimed() {
    let mut life = restarted(2);
    judge(&mut life, Judgement::Right);
    assert_eq!((life.phase(), life.next_deadline(DcSet::EMPTY)), (Phase::ReadOnly, at(3_000)));
    assert_eq!((poll(&mut life, 3_000), life.phase()), (None, Phase::Grace { leases: 2 }));
    life.on_leases_in_grace(1);
    assert_eq!(life.phase(), Phase::Grace { leases: 1 });
    life.on_leases_in_grace(0);
    assert_eq!(life.phase(), Phase::Serving);
}

#[test]
fn a_new_directory_joins_when_all_were_heard_but_not_in_a_start() {
    let mut life = new();
    assert!(life.begin_step(at(0)));
    assert_eq!(poll(&mut life, 0), None);
    life.on_heard(dc(1));
    assert_eq!(poll(&mut life, 0), Some(Action::Join));
    life.on_joined();
    assert_eq!((poll(&mut life, 0), life.phase()), (None, Phase::Serving));

    let mut life = new();
    life.on_restart(Some(at(500)), 0, &applied(5));
    assert!(life.begin_step(at(0)));
    life.on_heard(dc(1));
    assert_eq!(poll(&mut life, 499), None, "the token lead cannot be computed yet");
    judge(&mut life, Judgement::Right);
    assert_eq!(poll(&mut life, 500), Some(Action::Join));
}

#[test]
fn an_older_copy_stops_granting_at_once_and_joins_when_it_has_all_and_unknown_leases_are_over() {
    let mut life = serving();
    assert!(!life.own_log.note_known(5, &applied(5)));
    assert!(life.own_log.note_known(6, &applied(5)));
    life.on_doubt(at(60_000));
    assert_eq!((life.phase(), life.permissions().grant), (Phase::ReadOnly, false));
    assert_eq!(life.next_deadline(DcSet::EMPTY), at(60_000));
    life.own_log.note_relied_on(&applied(6));
    assert_eq!(life.poll(at(60_000), &applied(5), DcSet::EMPTY), None);
    assert_eq!(life.poll(at(60_000), &applied(6), DcSet::EMPTY), Some(Action::AwaitRegained));
    assert_eq!(life.poll(at(60_000), &applied(6), DcSet::EMPTY), Some(Action::Join));
    life.on_joined();
    life.check(&applied(6), 0);
    assert_eq!(life.phase(), Phase::Serving);
}

#[test]
fn what_is_permitted() {
    let permissions = |life: &Lifecycle| (life.permissions().grant, life.permissions().append);
    let mut life = restarted(1);
    assert_eq!(permissions(&life), (false, false), "starting");
    judge(&mut life, Judgement::Right);
    assert_eq!(permissions(&life), (false, false), "read-only");
    life.on_heard(dc(1));
    assert_eq!(permissions(&life), (false, true), "in grace");
    life.on_leases_in_grace(0);
    assert_eq!(permissions(&life), (true, true), "serving");
    assert!(life.on_clock_skew(true));
    assert_eq!(permissions(&life), (true, false), "serving with a stall");
    assert_eq!(life.not_serving(Duration::ZERO), Some(NotServing::ClockSkew));
    life.on_fork(fork());
    assert_eq!(permissions(&life), (false, false), "forked");
    assert_eq!(life.not_serving(Duration::ZERO), Some(NotServing::Forked));
}

#[test]
fn a_settled_lifecycle_needs_no_update_before_something_changes() {
    let full = 4 * MAX_LOG + 1;
    let mut life = serving();
    assert!(!life.needs_update(full - 1) && life.next_deadline(DcSet::EMPTY) == Instant::FAR_FUTURE);
    assert!(life.needs_update(full), "the log is full");
    type Change = fn(&mut Lifecycle);
    let changes: [Change; 5] = [
        |life| life.on_fork(fork()),
        |life| life.on_doubt(at(9)),
        |life| life.on_leases_in_grace(1),
        |life| assert!(life.on_clock_skew(true)),
        |life| assert_eq!(life.on_disk_space(DiskSpace::Full), DiskSpace::Enough),
    ];
    for change in changes {
        let mut life = serving();
        change(&mut life);
        assert!(life.needs_update(0));
    }
    life.on_heard(dc(1));
    assert!(!life.own_log.note_known(5, &applied(5)) && !life.on_clock_skew(false));
    assert!(!life.needs_update(0), "nothing has changed");
}

#[test]
fn only_news_is_announced() {
    let mut life = serving();
    let quiet = Settled { phase: None, log_full: None, permissions: life.permissions() };
    assert_eq!(life.settle(0), quiet);
    assert!(!life.announced.announce(None), "that is announced");
    assert!(life.announced.announce(Some(NotServing::Grace { for_ms: 9 })));
    assert!(
        !life.announced.announce(Some(NotServing::Grace { for_ms: 8 })),
        "the rest of the time is no news"
    );
    life.on_leases_in_grace(3);
    assert_eq!(life.settle(0).phase, Some(Phase::Grace { leases: 3 }));
    assert_eq!(life.settle(401).log_full, Some(true));
}

#[test]
fn a_fork_outlives_a_restart_unless_an_operator_ends_it() {
    let mut life = new();
    life.on_joined();
    life.on_fork(fork());
    life.on_restart(Some(at(500)), 0, &applied(5));
    assert_eq!((life.phase(), life.state.fork()), (Phase::Starting, Some(fork())));
    assert!(life.on_fork_resolved() && !life.on_fork_resolved() && !life.state.is_forked());
}
