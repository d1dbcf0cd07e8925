//! A small generator whose seed reproduces a run.

/// Numbers that look random and follow from a seed.
pub(super) struct Random(u64);

impl Random {
    /// The seed of this run: `SEED`, or a fixed one. Printed, so that a failure can be run again.
    pub(super) fn seeded(what: &str) -> Random {
        let given = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or(0x5eed_0001);
        println!("{what}: SEED={seed}");
        Random(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(bound.max(1)).unwrap()).unwrap()
    }

    pub(super) fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }

    pub(super) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}
