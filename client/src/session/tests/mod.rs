//! The session as transcripts.

mod amendments;
mod closing;
mod downgrades;
mod enough;
mod failover;
mod reclaims;
mod requests;
mod talk;
mod transactions;
mod understood;
