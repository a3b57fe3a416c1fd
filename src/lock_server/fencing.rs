//! Logs when this member fences itself: it grants nothing, because no majority of the voters acknowledges it.

use std::mem;

/// A change that the operator has to hear of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FencingChange {
    Begins,
    Over,
}

/// The state of this member, if members are evicted by time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Fencing {
    /// No majority has acknowledged it since its start, which is normal for a moment; or members are not
    /// evicted by time.
    #[default]
    NotBacked,
    Backed,
    Fenced,
}

impl Fencing {
    /// Notes for how long a majority backs this member; `None` if members are not evicted by time. Returns
    /// the change, if there is one.
    fn note(&mut self, backed_for_ms: Option<u64>) -> Option<FencingChange> {
        let now = match (backed_for_ms, *self) {
            (None, _) | (Some(0), Fencing::NotBacked) => Fencing::NotBacked,
            (Some(0), Fencing::Backed | Fencing::Fenced) => Fencing::Fenced,
            (Some(_), _) => Fencing::Backed,
        };
        match (mem::replace(self, now), now) {
            (Fencing::Backed, Fencing::Fenced) => Some(FencingChange::Begins),
            (Fencing::Fenced, Fencing::Backed | Fencing::NotBacked) => Some(FencingChange::Over),
            _ => None,
        }
    }

    /// Notes the same, and logs the change.
    pub(super) fn log(&mut self, backed_for_ms: Option<u64>) {
        match self.note(backed_for_ms) {
            Some(FencingChange::Begins) => tracing::warn!(
                "no majority of the voters acknowledges this member, which may be evicted: it grants nothing, and opens and \
                 renews no lease until one does. Look at the other members and at the network to them"
            ),
            Some(FencingChange::Over) => {
                tracing::info!("a majority of the voters acknowledges this member again: it grants")
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_loses_its_majority_says_so_once_and_says_when_it_is_back() {
        let mut fencing = Fencing::default();
        let said: Vec<_> =
            [None, Some(0), Some(0), Some(9), Some(8), Some(0), Some(0), Some(9), Some(0), None, Some(0)]
                .into_iter()
                .map(|backed_for_ms| fencing.note(backed_for_ms))
                .collect();
        let (begins, over) = (Some(FencingChange::Begins), Some(FencingChange::Over));
        // Not at a start, nor when the policy is set.
        assert_eq!(said, [None, None, None, None, None, begins, None, over, begins, over, None]);
    }
}
