//! Where clients come in: the Open Inference Protocol over HTTP.
pub mod http;
pub mod oip;
