//! Tests of the API layer: accepted messages, refusals, answers; then the whole server on loopback.

mod access;
mod downgrades;
mod enough;
mod forced;
mod guards;
mod held_back;
mod homes;
mod limits;
mod lock_watches;
mod native;
mod refusals;
mod renewal;
mod repetitions;
mod shares;
mod site;
mod store_translations;
mod strangers;
mod streams;
mod transactions;
mod translations;
mod unary;
mod watches;
