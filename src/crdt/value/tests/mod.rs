//! Laws and examples of the values.

mod bytes_from_outside;
mod checks;
mod crate_types;
mod examples;
mod history;
mod laws;
mod oracle;

use bytes::Bytes;

use geolock_api::names::DcId;

fn dc(id: u8) -> DcId {
    DcId::new(id).expect("a small id")
}

fn bytes(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}
