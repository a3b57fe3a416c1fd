//! The session as transcripts.

mod closing;
mod downgrades;
mod enough;
mod failover;
mod requests;
mod talk;
mod transactions;
