//! How large may a query and its answer be?

/// Longest query in bytes. Proxies refuse request lines of more than 8 KiB, and a percent sign triples a character.
pub const QUERY_BYTES_MAX: usize = 2_048;
/// Longest answer in bytes. One series of many labels has a few hundred.
pub const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Most series of an answer.
pub const SERIES_MAX: usize = 1_000;
/// Most selectors of a query of which the age is asked, each by a query of its own.
pub const SELECTORS_MAX: usize = 8;
/// Longest token in bytes.
pub const TOKEN_BYTES_MAX: usize = 16 << 10;
/// Most bytes of certificates.
pub const CA_BYTES_MAX: usize = 1 << 20;
/// Longest text of a server that a message quotes, in characters.
pub const QUOTED_CHARACTERS_MAX: usize = 300;
