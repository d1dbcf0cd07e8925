//! What tokens cost.

use super::Usage;

/// Prices of a model, in millionths of a dollar for a million tokens: 3 dollars a million is `3_000_000`.
///
/// There is no table of prices here, because it would be wrong soon. Without prices every cost is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pricing {
    /// For tokens read that came from no cache.
    pub input: u64,
    /// For tokens read that came from a cache.
    pub cached: u64,
    /// For tokens written.
    pub output: u64,
}

impl Pricing {
    /// What `usage` costs, in millionths of a dollar, rounded up so that no budget is passed unseen.
    pub fn cost(&self, usage: &Usage) -> u64 {
        let of = |tokens: u64, price: u64| u128::from(tokens).saturating_mul(price.into());
        let fresh = usage.input.saturating_sub(usage.cached);
        let total = of(fresh, self.input)
            .saturating_add(of(usage.cached, self.cached))
            .saturating_add(of(usage.output, self.output));
        u64::try_from(total.div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_tokens_cost_their_own_price_and_parts_count_as_a_whole() {
        let pricing = Pricing { input: 3_000_000, cached: 300_000, output: 15_000_000 };
        let usage = Usage { input: 1_000, cached: 400, output: 10, micro_dollars: 0 };
        assert_eq!(pricing.cost(&usage), 600 * 3 + 120 + 150);
        assert_eq!(pricing.cost(&Usage { input: 0, cached: 0, output: 1, micro_dollars: 0 }), 15);
        assert_eq!(Pricing { cached: 1, ..pricing }.cost(&Usage { input: 1, cached: 1, ..Usage::default() }), 1);
        assert_eq!(Pricing::default().cost(&usage), 0);
        let most = Usage { input: u64::MAX, cached: 0, output: u64::MAX, micro_dollars: 0 };
        assert_eq!(Pricing { input: u64::MAX, cached: 0, output: u64::MAX }.cost(&most), u64::MAX);
    }
}
