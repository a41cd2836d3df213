//! The page at `/`, seen by a browser, on a service with agents and load.
//!
//! `APPORTION_WRITE=1` writes the documents' pictures. `APPORTION_PAGE_FULL=1` measures the page with a large fleet.

mod access;
mod connection;
mod layout;
mod pictures;
mod replay;
mod speed;
mod stage;
mod tour;
mod views;
