//! Stories of the list of decisions.
