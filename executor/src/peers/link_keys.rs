//! Which keys has the target in force given to this agent?

use apportion_node::greeting::LinkKeyring;
use std::sync::{Arc, Mutex, PoisonError};

/// The keys of this agent's links. Clones share them: the loop sets them, and connections read them when they greet.
#[derive(Clone, Debug, Default)]
pub struct LinkKeys(Arc<Mutex<Arc<LinkKeyring>>>);

impl LinkKeys {
    /// The keys of a new target, from the next greeting on. Connections that are up stay up.
    pub fn set(&self, keyring: LinkKeyring) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(keyring);
    }

    /// The keys in force.
    #[must_use]
    pub fn current(&self) -> Arc<LinkKeyring> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
