//! How are the resources of a service listed, read, written, deleted and watched?
//!
//! One implementation serves all of them. A kind of resource is a row of data ([`kinds`]): paths, key, columns and
//! operations. The commonest addition is a kind: its row, its name, and one line in `commands`.

mod apply;
mod command;
mod event_feed;
mod event_reader;
mod kind;
pub mod kinds;
mod rows;
mod watch;

pub use command::{ListRequest, ResourceCommand};
pub use kind::{ResourceKind, ResourceName};
pub use rows::table;
