//! The client API as generated from `api/proto/geolock/v1/geolock.proto`, which documents it.

// Generated code: its documentation is the .proto, and the generator adds types that have none.
#![allow(clippy::all, clippy::pedantic, rustdoc::all, missing_docs, reason = "generated")]

tonic::include_proto!("geolock.v1");

/// The trailer of a failed unary call that carries an encoded [`Error`].
pub const ERROR_METADATA: &str = "geolock-error-bin";
