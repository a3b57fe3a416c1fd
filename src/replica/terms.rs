//! What all members must have in common is compared when they talk.
//!
//! Other members: the link is closed on both sides, nothing of the other is taken in. Other options of `[agreed]` may be there for
//! a while, as while they are changed by a rolling restart, and nothing that is promised rests on them: both sides say so.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Replica;
use super::config::AgreedConfig;
use super::effect::Report;
use crate::causal_log::Violation;
use crate::names::{DcId, DcSet};

/// See the module. Times in whole milliseconds.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Terms {
    pub members: DcSet,
    pub heartbeat_ms: u32,
    pub peer_timeout_ms: u32,
    pub max_clock_skew_ms: u32,
}

impl Terms {
    pub(super) fn of(agreed: &AgreedConfig) -> Terms {
        let ms = |time: Duration| u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        Terms {
            members: agreed.members,
            heartbeat_ms: ms(agreed.heartbeat),
            peer_timeout_ms: ms(agreed.peer_timeout),
            max_clock_skew_ms: ms(agreed.max_clock_skew),
        }
    }

    /// By name, in milliseconds.
    fn options(&self) -> [(&'static str, u32); 3] {
        [
            ("agreed.heartbeat", self.heartbeat_ms),
            ("agreed.peer_timeout", self.peer_timeout_ms),
            ("agreed.max_clock_skew", self.max_clock_skew_ms),
        ]
    }
}

impl Replica {
    /// What `peer` goes by; `before`: what it went by when last heard on this link. Answers what stands against it.
    pub(super) fn compare_terms(
        &mut self,
        peer: DcId,
        theirs: &Terms,
        before: Option<Terms>,
    ) -> Result<(), Violation> {
        if before == Some(*theirs) {
            return Ok(());
        }
        let ours = Terms::of(&self.config.agreed);
        if theirs.members != ours.members {
            return Err(Violation::Members { theirs: theirs.members, ours: ours.members });
        }
        for ((option, ours), (_, theirs)) in ours.options().into_iter().zip(theirs.options()) {
            if ours != theirs {
                self.report(Report::OptionDiffers { peer, option, ours, theirs });
            }
        }
        Ok(())
    }
}
