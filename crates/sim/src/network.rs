//! What lies between the nodes: delay, loss, doubles, and links that are cut one way or both.

use crate::plan::{Network as Profile, Node};
use crate::rng::{Purpose, Rng};
use crate::time::{Micros, Moment};

/// All links, and what chance does to the messages on them.
#[derive(Debug)]
pub struct Network {
    seed: u64,
    profile: Profile,
    nodes: usize,
    /// How many messages each link has carried, so that each has rng of its own.
    carried: Vec<u64>,
    /// How many faults cut each link at present.
    cuts: Vec<u32>,
    calm: bool,
}

/// What became of one message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fate {
    pub arrives: Option<Moment>,
    /// Comes a second time.
    pub again: Option<Moment>,
}

impl Network {
    pub fn new(seed: u64, profile: Profile, nodes: usize) -> Network {
        let links = nodes * nodes;
        let (carried, cuts) = (vec![0; links], vec![0; links]);
        Network { seed, profile, nodes, carried, cuts, calm: false }
    }

    /// From now on nothing goes wrong any more.
    pub fn calm_down(&mut self) {
        self.calm = true;
        self.cuts.fill(0);
    }

    fn link(&self, from: Node, to: Node) -> usize {
        from.place() * self.nodes + to.place()
    }

    /// Cuts the links from one node to the other, one way; or mends them.
    pub fn cut(&mut self, from: Node, to: Node, is_cut: bool) {
        let link = self.link(from, to);
        let cuts = &mut self.cuts[link];
        *cuts = if is_cut { *cuts + 1 } else { cuts.saturating_sub(1) };
    }

    pub fn is_cut(&self, from: Node, to: Node) -> bool {
        self.cuts[self.link(from, to)] > 0
    }

    /// What becomes of a message that is sent now. Messages overtake each other as their delays have it.
    pub fn send(&mut self, now: Moment, from: Node, to: Node) -> Fate {
        let link = self.link(from, to);
        self.carried[link] += 1;
        let mut rng = Rng::new(self.seed, Purpose::Message, link as u64, self.carried[link]);
        let delay = self.delay(&mut rng);
        let is_lost = self.cuts[link] > 0 || (!self.calm && rng.ppm(self.profile.loss_ppm));
        if is_lost {
            return Fate::default();
        }
        let doubled = !self.calm && rng.ppm(self.profile.double_ppm);
        let again = doubled.then(|| now + delay + self.delay(&mut rng));
        Fate { arrives: Some(now + delay), again }
    }

    fn delay(&self, rng: &mut Rng) -> Micros {
        let profile = &self.profile;
        let usual = rng.between(profile.delay, profile.delay * 2);
        if !self.calm && rng.ppm(profile.slow_ppm) {
            return usual + rng.between(0, profile.slow);
        }
        usual
    }
}
