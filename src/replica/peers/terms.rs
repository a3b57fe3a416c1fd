//! Comparison of the options that must be equal in the cluster, when two members talk.
//!
//! If the member lists differ, both sides close the link and take in nothing of each other. Other options of
//! `[cluster]` may differ for a while, as during a rolling restart that changes them, and no promise rests on
//! them: both sides report it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::links::LinkHandler;
use crate::causal_log::Violation;
use crate::replica::config::AgreedConfig;
use crate::replica::effect::Report;
use geolock_api::names::{DcId, DcSet};

/// The compared options. Times in whole milliseconds. Wire type.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Terms {
    /// The members of the configuration; none once there are decisions about members.
    pub members: DcSet,
    /// [`AgreedConfig::heartbeat`].
    pub heartbeat_ms: u32,
    /// [`AgreedConfig::peer_timeout`].
    pub peer_timeout_ms: u32,
    /// [`AgreedConfig::max_clock_skew`].
    pub max_clock_skew_ms: u32,
}

impl Terms {
    pub(in crate::replica) fn of(members: DcSet, agreed: &AgreedConfig) -> Terms {
        let ms = |time: Duration| u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        Terms {
            members,
            heartbeat_ms: ms(agreed.heartbeat),
            peer_timeout_ms: ms(agreed.peer_timeout),
            max_clock_skew_ms: ms(agreed.max_clock_skew),
        }
    }

    /// Returns the options that differ, each by name with both values in milliseconds.
    pub(in crate::replica) fn differing(
        &self,
        theirs: &Terms,
    ) -> impl Iterator<Item = (&'static str, u32, u32)> + use<> {
        let both = self.options().into_iter().zip(theirs.options());
        both.filter(|(ours, theirs)| ours != theirs)
            .map(|((option, ours), (_, theirs))| (option, ours, theirs))
    }

    /// Returns the options by name, in milliseconds.
    fn options(&self) -> [(&'static str, u32); 3] {
        [
            ("cluster.heartbeat_interval", self.heartbeat_ms),
            ("cluster.peer_timeout", self.peer_timeout_ms),
            ("cluster.max_clock_skew", self.max_clock_skew_ms),
        ]
    }
}

impl LinkHandler<'_> {
    /// Compares the options of `peer` with ours. `before`: those of its last heartbeat on this link. Returns
    /// an error if the members differ.
    pub(in crate::replica) fn compare_terms(
        &mut self,
        peer: DcId,
        theirs: &Terms,
        before: Option<Terms>,
    ) -> Result<(), Violation> {
        if before == Some(*theirs) {
            return Ok(());
        }
        let ours = Terms::of(self.members.configured(), &self.config.agreed);
        // With decisions about members, these count.
        let is_decided = theirs.members.is_empty() || ours.members.is_empty();
        if theirs.members != ours.members && !is_decided {
            return Err(Violation::Members { theirs: theirs.members, ours: ours.members });
        }
        for (option, ours, theirs) in ours.differing(theirs) {
            self.out.report(Report::OptionDiffers { peer, option, ours, theirs });
        }
        Ok(())
    }
}
