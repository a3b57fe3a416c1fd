//! The session as transcripts.

mod closing;
mod failover;
mod requests;
mod talk;
mod transactions;
