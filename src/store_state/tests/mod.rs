//! Stories of the store.
