//! The states on which the next assembly rests: of those that are dispatched, ready, and being endorsed.

use std::collections::BTreeSet;

use super::super::words::{Assembly, Speculation, StateId};

/// Adds up assemblies, in order, and finds those that cannot stand on the ones before.
#[derive(Debug, Default)]
pub(super) struct Footing {
    speculation: Speculation,
    /// Outputs that will not be there.
    broken: BTreeSet<StateId>,
}

impl Footing {
    /// `broken`: outputs of assemblies that the ledger has reverted.
    pub fn new(broken: BTreeSet<StateId>) -> Footing {
        Footing { speculation: Speculation::default(), broken }
    }

    pub fn add(&mut self, assembly: &Assembly) {
        self.speculation.add(assembly);
    }

    /// Returns true if an assembly spends nothing that is spent, or will not be there.
    pub fn carries(&self, assembly: &Assembly) -> bool {
        let is_there =
            |state: &StateId| !self.speculation.spent.contains(state) && !self.broken.contains(state);
        assembly.inputs.iter().all(is_there)
    }

    /// Notes that an assembly falls out.
    pub fn break_off(&mut self, assembly: &Assembly) {
        self.broken.extend(assembly.outputs.iter().cloned());
    }

    pub fn speculation(self) -> Speculation {
        self.speculation
    }
}
