//! Puts events into the order a reader can check in one pass.
//!
//! A store of many nodes hands out events in an order of its own: an event may come before its predecessor in the
//! chain, and a checkpoint before the events it signs. Here an event waits for the one before it, and a checkpoint for
//! the heads it signs. Nothing is ever dropped: what waits in vain is handed on as it is, for the check to find.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::audit::body::Statement;
use crate::audit::in_scope;
use crate::call::Chain;
use crate::event::{Event, EventName};
use crate::limits;

/// Events on their way from a store's order to the log's.
#[derive(Debug, Default)]
pub(super) struct Order<'a> {
    session: Option<&'a str>,
    places: HashMap<Chain, Place>,
    waiting: usize,
    /// What the checkpoint that waits still needs: for each chain, up to which event.
    needs: HashMap<Chain, u64>,
    ready: VecDeque<Event>,
    given_up: bool,
}

#[derive(Debug, Default)]
struct Place {
    handed_on: u64,
    waiting: BTreeMap<u64, Event>,
}

impl<'a> Order<'a> {
    /// An order for the log of one session, or of all.
    pub(super) fn new(session: Option<&'a str>) -> Order<'a> {
        Order { session, ..Order::default() }
    }

    /// The next event in order, if it is known yet.
    pub(super) fn next(&mut self) -> Option<Event> {
        self.ready.pop_front()
    }

    /// Whether events wait for others.
    pub(super) fn waits(&self) -> bool {
        self.waiting > 0
    }

    /// Takes in an event in the store's order.
    pub(super) fn push(&mut self, event: Event) {
        if self.given_up {
            return self.ready.push_back(event);
        }
        let place = self.places.entry(event.chain.clone()).or_default();
        if event.seq <= place.handed_on {
            // Doubled. The check says so.
            return self.ready.push_back(event);
        }
        let chain = event.chain.clone();
        if let Some(twin) = place.waiting.insert(event.seq, event) {
            return self.ready.push_back(twin);
        }
        self.waiting += 1;
        self.advance(chain);
        if self.waiting > limits::AUDIT_WAITING {
            self.give_up();
        }
    }

    /// Hands on whatever waits, as it is.
    pub(super) fn give_up(&mut self) {
        self.given_up = true;
        let mut rest: Vec<Event> =
            std::mem::take(&mut self.places).into_values().flat_map(|place| place.waiting.into_values()).collect();
        rest.sort_by_key(|event| (event.cursor, event.seq));
        self.waiting = 0;
        self.ready.extend(rest);
    }

    /// Hands on what is next in a chain, and what that lets go on in the chain of checkpoints.
    fn advance(&mut self, chain: Chain) {
        let mut turn = Some(chain);
        while let Some(chain) = turn.take() {
            while self.hand_on(&chain) {}
            if chain != Chain::system() && self.needs.is_empty() {
                turn = Some(Chain::system()).filter(|_| self.waits());
            }
        }
    }

    fn hand_on(&mut self, chain: &Chain) -> bool {
        let Some(place) = self.places.get(chain) else { return false };
        let Some((seq, event)) = place.waiting.first_key_value() else { return false };
        if *seq != place.handed_on + 1 {
            return false;
        }
        if event.name == EventName::CheckpointSigned && self.is_early(&event.body.clone()) {
            return false;
        }
        let Some(place) = self.places.get_mut(chain) else { return false };
        let Some((seq, event)) = place.waiting.pop_first() else { return false };
        place.handed_on = seq;
        self.waiting -= 1;
        if self.needs.get(chain).is_some_and(|needed| *needed <= seq) {
            self.needs.remove(chain);
        }
        self.ready.push_back(event);
        true
    }

    /// Whether a checkpoint signs events that were not handed on yet.
    fn is_early(&mut self, body: &str) -> bool {
        if !self.needs.is_empty() {
            return true;
        }
        let heads = Statement::of(body).map(|statement| statement.heads).unwrap_or_default();
        for (chain, seq, _) in heads {
            let chain = Chain(chain.into());
            let handed_on = self.places.get(&chain).map_or(0, |place| place.handed_on);
            if handed_on < seq && in_scope(self.session, &chain) {
                self.needs.insert(chain, seq);
            }
        }
        !self.needs.is_empty()
    }
}
