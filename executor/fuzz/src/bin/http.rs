//! Requests over HTTP.
#![no_main]
#[path = "../entrances.rs"]
mod entrances;
libfuzzer_sys::fuzz_target!(|data: &[u8]| entrances::http(data));
