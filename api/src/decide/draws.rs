//! Numbers that look random, for tests: a test that fails prints its seed.

/// Draws numbers.
pub struct Draws(pub u64);

impl Draws {
    /// A number below this one.
    pub fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}
