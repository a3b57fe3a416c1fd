//! The session as transcripts.

mod failover;
mod requests;
mod talk;
mod transactions;
