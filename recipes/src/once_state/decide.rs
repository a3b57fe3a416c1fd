//! The decision if an instance may claim a critical section. It is made under the lock only.

use super::options::Takeover;
use super::record::{Content, RunState};

/// The answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// The instance may start a run. `failures`: runs that failed before it.
    Claim { failures: u32 },
    /// Another instance has done it with this run.
    DoneByOther { run: u64 },
    /// A run of another instance failed, and the back-off lasts.
    Paused,
    /// The runner has lost its lock, and its watermark lasts.
    MayStillRun,
}

/// Decides for an instance that holds the lock and whose latest own run is `mine`.
pub(super) fn decide(content: &Content, mine: Option<u64>, takeover: Takeover) -> Decision {
    // Too old, or unreadable: nothing is known of a run.
    let Some(record) = &content.record else { return Decision::Claim { failures: 0 } };
    let is_own = mine == Some(record.run);
    match &record.state {
        // It still finds it needed.
        RunState::Done if is_own => Decision::Claim { failures: 0 },
        RunState::Done => Decision::DoneByOther { run: record.run },
        // Its lock is here, so its lease is over.
        RunState::Started => match takeover {
            Takeover::Watermark if content.live => Decision::MayStillRun,
            Takeover::Lease | Takeover::Watermark => Decision::Claim { failures: record.attempts },
        },
        // Its own loop has waited for the back-off.
        RunState::Failed { .. } if content.pause && !is_own => Decision::Paused,
        RunState::Failed { .. } => Decision::Claim { failures: record.attempts },
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::Record;
    use super::*;

    fn content(run: u64, state: RunState, live: bool, pause: bool) -> Content {
        let record = Record { run, state, who: String::new(), attempts: 3, at_ms: 0 };
        Content { record: Some(record), live, pause }
    }

    #[test]
    fn the_table_of_decisions() {
        let failed = || RunState::Failed { error: String::new() };
        let (none, again) = (Decision::Claim { failures: 0 }, Decision::Claim { failures: 3 });
        let lease = |content: &Content, mine| decide(content, mine, Takeover::Lease);
        assert_eq!(lease(&Content { live: true, pause: true, record: None }, None), none);
        assert_eq!(lease(&content(5, RunState::Done, true, true), Some(5)), none);
        assert_eq!(
            lease(&content(5, RunState::Done, false, false), Some(4)),
            Decision::DoneByOther { run: 5 }
        );
        assert_eq!(lease(&content(5, RunState::Started, true, true), None), again);
        assert_eq!(lease(&content(5, failed(), false, true), None), Decision::Paused);
        assert_eq!(lease(&content(5, failed(), false, false), None), again);
        assert_eq!(lease(&content(5, failed(), false, true), Some(5)), again);
        let watermark =
            |live| decide(&content(5, RunState::Started, live, false), Some(5), Takeover::Watermark);
        assert_eq!((watermark(true), watermark(false)), (Decision::MayStillRun, again));
    }
}
