//! Edge. One server: its configuration, the API for clients, and [`node`], which starts and stops all of it
//! in order.

pub mod api;
pub mod config;
pub mod members;
pub mod node;
pub mod orphans;
pub mod reload;
