//! What agents say to each other.
#![no_main]
#[path = "../entrances.rs"]
mod entrances;
libfuzzer_sys::fuzz_target!(|data: &[u8]| entrances::frames(data));
