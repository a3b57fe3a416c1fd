//! Laws and examples of the values.
