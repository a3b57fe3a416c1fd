//! The session as transcripts.

mod requests;
mod talk;
mod transactions;
