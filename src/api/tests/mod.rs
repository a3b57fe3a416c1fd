//! The border: what gets in, what is refused and how, what comes out.

mod refusals;
mod translations;
