//! The table of the parts that each sub-machine may use.
//!
//! The replica owns all parts and decides; a sub-machine borrows the parts that its work needs, and nothing
//! else. `lend!(Writer, self)` lends them, from the replica or from a sub-machine that has them itself. A
//! part that is lent with `&` can only be read there. A sub-machine that needs one more part gets it here,
//! where a review sees it.

/// Lends a sub-machine the parts that it may use.
macro_rules! lend {
    (Writer, $of:ident) => {
        $crate::replica::writer::Writer {
            config: &$of.config,
            now: $of.now,
            out: &mut $of.out,
            ids: &mut $of.ids,
            log: &mut $of.log,
            locks: &mut $of.locks,
            lifecycle: &$of.lifecycle,
            members: &mut $of.members,
            data: &mut $of.data,
        }
    };
    (Requests, $of:ident) => {
        $crate::replica::clients::grants::Requests {
            config: &$of.config,
            now: $of.now,
            out: &mut $of.out,
            locks: &mut $of.locks,
            clients: &mut $of.clients,
            data: &mut $of.data,
            watches: &mut $of.watches,
        }
    };
    (LeaseCalls, $of:ident) => {
        $crate::replica::clients::lease_calls::LeaseCalls {
            config: &$of.config,
            now: $of.now,
            out: &mut $of.out,
            ids: &mut $of.ids,
            log: &$of.log,
            locks: &mut $of.locks,
            lifecycle: &mut $of.lifecycle,
            clients: &mut $of.clients,
            data: &mut $of.data,
            watches: &mut $of.watches,
        }
    };
    (AcquireCalls, $of:ident) => {
        $crate::replica::clients::AcquireCalls {
            config: &$of.config,
            now: $of.now,
            out: &mut $of.out,
            ids: &mut $of.ids,
            log: &mut $of.log,
            locks: &mut $of.locks,
            lifecycle: &$of.lifecycle,
            members: &mut $of.members,
            clients: &mut $of.clients,
            data: &mut $of.data,
            watches: &mut $of.watches,
        }
    };
    (TxnCalls, $of:ident) => {
        $crate::replica::data::transactions::TxnCalls {
            config: &$of.config,
            now: $of.now,
            out: &mut $of.out,
            ids: &mut $of.ids,
            log: &mut $of.log,
            locks: &mut $of.locks,
            lifecycle: &$of.lifecycle,
            members: &mut $of.members,
            clients: &mut $of.clients,
            data: &mut $of.data,
            watches: &mut $of.watches,
        }
    };
    (MajorityCommits, $of:ident) => {
        $crate::replica::data::majority::MajorityCommits {
            config: &$of.config,
            now: $of.now,
            out: &mut $of.out,
            log: &mut $of.log,
            members: &$of.members,
            data: &mut $of.data,
        }
    };
    (WatchCalls, $of:ident) => {
        $crate::replica::watches::WatchCalls {
            config: &$of.config,
            now: $of.now,
            out: &mut $of.out,
            log: &$of.log,
            locks: &mut $of.locks,
            lifecycle: &$of.lifecycle,
            members: &$of.members,
            clients: &$of.clients,
            watches: &mut $of.watches,
        }
    };
    (Applier, $of:ident) => {
        $crate::replica::entries::Applier {
            config: &$of.config,
            now: $of.now,
            out: &mut $of.out,
            ids: &mut $of.ids,
            log: &mut $of.log,
            locks: &mut $of.locks,
            lifecycle: &mut $of.lifecycle,
            members: &mut $of.members,
            clients: &mut $of.clients,
            data: &mut $of.data,
            watches: &mut $of.watches,
        }
    };
    (LinkHandler, $of:ident) => {
        $crate::replica::peers::links::LinkHandler {
            config: &$of.config,
            now: $of.now,
            out: &mut $of.out,
            ids: &mut $of.ids,
            log: &mut $of.log,
            locks: &mut $of.locks,
            lifecycle: &$of.lifecycle,
            members: &$of.members,
            peers: &mut $of.peers,
            clients: &$of.clients,
        }
    };
    (Clocks, $of:ident) => {
        $crate::replica::peers::clock_skew::Clocks {
            config: &$of.config,
            now: $of.now,
            out: &mut $of.out,
            ids: &mut $of.ids,
            log: &mut $of.log,
            locks: &mut $of.locks,
            lifecycle: &mut $of.lifecycle,
            members: &$of.members,
            peers: &mut $of.peers,
        }
    };
    (LogRecovery, $of:ident) => {
        $crate::replica::lifecycle::LogRecovery {
            config: &$of.config,
            now: $of.now,
            out: &mut $of.out,
            ids: &mut $of.ids,
            log: &mut $of.log,
            locks: &mut $of.locks,
            lifecycle: &mut $of.lifecycle,
            members: &$of.members,
        }
    };
    (Decisions, $of:ident) => {
        $crate::replica::members::Decisions {
            config: &$of.config,
            now: $of.now,
            out: &mut $of.out,
            log: &mut $of.log,
            locks: &mut $of.locks,
            lifecycle: &mut $of.lifecycle,
            members: &mut $of.members,
            peers: &mut $of.peers,
        }
    };
    (ForcedRecovery, $of:ident) => {
        $crate::replica::members::ForcedRecovery {
            config: &$of.config,
            now: $of.now,
            out: &mut $of.out,
            log: &mut $of.log,
            locks: &mut $of.locks,
            lifecycle: &mut $of.lifecycle,
            members: &mut $of.members,
            peers: &mut $of.peers,
        }
    };
    (FailureDetector, $of:ident) => {
        $crate::replica::members::FailureDetector {
            config: &$of.config,
            now: $of.now,
            out: &mut $of.out,
            log: &mut $of.log,
            lifecycle: &mut $of.lifecycle,
            members: &mut $of.members,
            peers: &mut $of.peers,
        }
    };
    (CheckpointSteps, $of:ident) => {
        $crate::replica::record::checkpoint_builder::CheckpointSteps {
            config: &$of.config,
            out: &mut $of.out,
            log: &$of.log,
            locks: &mut $of.locks,
            clients: &mut $of.clients,
            data: &mut $of.data,
            copies: &mut $of.copies,
        }
    };
    (StateTransfer, $of:ident) => {
        $crate::replica::peers::transfer::StateTransfer {
            config: &$of.config,
            now: $of.now,
            out: &mut $of.out,
            ids: &$of.ids,
            log: &mut $of.log,
            locks: &mut $of.locks,
            lifecycle: &$of.lifecycle,
            members: &$of.members,
            data: &mut $of.data,
            copies: &mut $of.copies,
        }
    };
    (Describer, $of:ident) => {
        $crate::replica::clients::describe::Describer {
            config: &$of.config,
            now: $of.now,
            out: &mut $of.out,
            log: &mut $of.log,
            locks: &$of.locks,
            lifecycle: &$of.lifecycle,
            members: &$of.members,
            peers: &$of.peers,
            clients: &mut $of.clients,
        }
    };
    (Timeouts, $of:ident) => {
        $crate::replica::clients::timeouts::Timeouts {
            config: &$of.config,
            now: $of.now,
            out: &mut $of.out,
            log: &mut $of.log,
            locks: &mut $of.locks,
            lifecycle: &$of.lifecycle,
            members: &$of.members,
            peers: &$of.peers,
            clients: &mut $of.clients,
            data: &mut $of.data,
            watches: &mut $of.watches,
        }
    };
    (Comparison, $of:ident) => {
        $crate::replica::peers::anti_entropy::Comparison {
            config: &$of.config,
            now: $of.now,
            out: &mut $of.out,
            log: &mut $of.log,
            locks: &$of.locks,
            lifecycle: &$of.lifecycle,
            members: &$of.members,
            peers: &mut $of.peers,
            data: &mut $of.data,
        }
    };
    (Deferral, $of:ident) => {
        $crate::replica::clients::deferral::Deferral {
            config: &$of.config,
            now: $of.now,
            log: &$of.log,
            lifecycle: &$of.lifecycle,
            clients: &mut $of.clients,
            data: &$of.data,
        }
    };
    (KeyExpiry, $of:ident) => {
        $crate::replica::data::expiry::KeyExpiry {
            config: &$of.config,
            now: $of.now,
            ids: &$of.ids,
            lifecycle: &$of.lifecycle,
            members: &$of.members,
            peers: &$of.peers,
            data: &mut $of.data,
        }
    };
    (Peering, $of:ident) => {
        $crate::replica::peers::peering::Peering {
            config: &$of.config,
            now: $of.now,
            out: &mut $of.out,
            ids: &mut $of.ids,
            log: &mut $of.log,
            locks: &mut $of.locks,
            lifecycle: &mut $of.lifecycle,
            members: &mut $of.members,
            peers: &mut $of.peers,
            clients: &$of.clients,
            data: &mut $of.data,
            copies: &mut $of.copies,
        }
    };
    (ClientCalls, $of:ident) => {
        $crate::replica::clients::ClientCalls {
            config: &$of.config,
            now: $of.now,
            out: &mut $of.out,
            ids: &mut $of.ids,
            log: &mut $of.log,
            locks: &mut $of.locks,
            lifecycle: &mut $of.lifecycle,
            members: &mut $of.members,
            peers: &$of.peers,
            clients: &mut $of.clients,
            data: &mut $of.data,
            watches: &mut $of.watches,
        }
    };
    (StatusView, $of:ident) => {
        $crate::replica::clients::status::StatusView {
            config: &$of.config,
            now: $of.now,
            out: &$of.out,
            log: &$of.log,
            locks: &$of.locks,
            lifecycle: &$of.lifecycle,
            members: &$of.members,
            peers: &$of.peers,
            clients: &$of.clients,
            data: &$of.data,
            watches: &$of.watches,
        }
    };
}
pub(in crate::replica) use lend;
