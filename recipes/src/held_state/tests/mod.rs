//! The machines in a simulated world, with trouble.

mod seeds;
mod world;
