//! From the words of the protocol to their format, and back.

pub(super) mod from_format;
pub(super) mod to_format;
