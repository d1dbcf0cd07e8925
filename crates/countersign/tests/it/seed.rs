//! Seeded chance: the same seed gives the same inputs, and a failure names it.

/// A xorshift generator.
pub(crate) struct Seed {
    state: u64,
}

impl Seed {
    pub(crate) fn new(seed: u64) -> Seed {
        // Neighbouring seeds must not give neighbouring streams, and zero must not stay zero.
        Seed { state: (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() >> 33) as usize % end
    }

    pub(crate) fn pick<'a, T: ?Sized>(&mut self, choices: &[&'a T]) -> &'a T {
        choices[self.below(choices.len())]
    }
}
