//! Real links over loopback: real certificates, ephemeral ports. Events are awaited, nothing sleeps.

mod broken;
mod control;
mod links;
mod refused;
mod world;
