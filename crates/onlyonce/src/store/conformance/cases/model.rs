//! Long histories of every kind of write, against a map in memory.

use std::collections::BTreeMap;

use crate::clock::StoreTime;
use crate::record::{Record, Response, SettledBy, State, StateKind, Token};
use crate::scope::OperationId;
use crate::store::cas::{self, Effect};
use crate::store::conformance::Factory;
use crate::store::conformance::check::{Outcome, Stop, equal};
use crate::store::conformance::lab::Lab;
use crate::store::conformance::writes::{LEASE, Write, draft, response};
use crate::store::{Beat, Draft, Lease, Store, Swap};

/// Fresh writes, repeats of old ones and late copies of them, chosen by a seed.
pub(super) async fn any_history_goes_as_in_the_model<F: Factory>(factory: &F) -> Outcome {
    for seed in 1..=SEEDS {
        let lab = Lab::fresh(factory).await;
        let mut walk = Walk::new(seed);
        for step in 0..STEPS {
            walk.step(&lab).await.map_err(|stop| match stop {
                Stop::Failed(why) => Stop::Failed(format!("seed {seed}, step {step}: {why}")),
                skipped @ Stop::Skipped(_) => skipped,
            })?;
        }
    }
    Ok(())
}

struct Walk {
    dice: u64,
    tokens: u32,
    model: BTreeMap<OperationId, Record>,
    claimed: Vec<Draft>,
    /// What was read, in the store and in the model: their counts and times may differ.
    read: Vec<(OperationId, Record, Record)>,
    /// What was sent, to the store and to the model.
    sent: Vec<(Write, Write)>,
}

impl Walk {
    fn new(seed: u64) -> Self {
        Self {
            dice: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            tokens: 0,
            model: BTreeMap::new(),
            claimed: Vec::new(),
            read: Vec::new(),
            sent: Vec::new(),
        }
    }

    async fn step<S: Store>(&mut self, lab: &Lab<S>) -> Outcome {
        match self.roll(8) {
            0 | 1 => self.claim(lab).await,
            2 => self.renew(lab).await,
            3 => self.send_again(lab).await,
            4 | 5 => self.write_as_owner(lab).await,
            _ => self.write_as_other(lab).await,
        }
    }

    async fn claim<S: Store>(&mut self, lab: &Lab<S>) -> Outcome {
        let draft = self.new_draft();
        let inserted = cas::claim(self.model.get(&draft.id), &draft, NOW);
        let is_new = inserted.is_some();
        self.model.extend(inserted.map(|record| (draft.id, record)));
        equal("mine", lab.claim(&draft).await?.mine, is_new)?;
        self.agree(lab, draft.id).await?;
        self.claimed.push(draft);
        Ok(())
    }

    async fn renew<S: Store>(&mut self, lab: &Lab<S>) -> Outcome {
        let Some(draft) = self.some_draft() else {
            return Ok(());
        };
        let lease = Lease::new(LEASE);
        let renewed = cas::renew(self.model.get(&draft.id), draft.token, lease, NOW);
        let beat = renewed.as_ref().map_or(Beat::Lost, |_| Beat::Kept);
        self.model.extend(renewed.map(|record| (draft.id, record)));
        equal("the beat", lab.renew(&[&draft]).await?, vec![beat])?;
        self.agree(lab, draft.id).await
    }

    async fn write_as_owner<S: Store>(&mut self, lab: &Lab<S>) -> Outcome {
        let Some(draft) = self.some_draft() else {
            return Ok(());
        };
        let moment = StoreTime::from_ms(5);
        let write = match self.roll(7) {
            0 | 1 => Write::settle(&draft),
            2 => Write::settle_with(&draft, response("second")),
            3 => Write::release(&draft),
            4 => Write::mark_unknown(&draft),
            5 => Write::return_to_unknown(&draft, moment),
            _ => Write::vouch(&draft),
        };
        self.send(lab, write.clone(), write).await
    }

    async fn write_as_other<S: Store>(&mut self, lab: &Lab<S>) -> Outcome {
        if self.read.is_empty() {
            return Ok(());
        }
        let latest = self.read.len().min(RECENT);
        let index = self.read.len() - 1 - self.roll(latest);
        let (id, ours, models) = self.read[index].clone();
        let draft = Draft { id, ..self.new_draft() };
        let kind = self.roll(6);
        let write = |record: &Record| match kind {
            0 => Write::reap(id, record),
            1 => Write::free(id, record),
            2 => Write::decree(id, record, draft.token),
            3 => Write::delete(id, record),
            _ => Write::take(&draft, record),
        };
        let (ours, models) = (write(&ours), write(&models));
        self.claimed.push(draft);
        self.send(lab, ours, models).await
    }

    async fn send_again<S: Store>(&mut self, lab: &Lab<S>) -> Outcome {
        if self.sent.is_empty() {
            return Ok(());
        }
        let index = self.roll(self.sent.len());
        let (ours, models) = self.sent[index].clone();
        self.send(lab, ours, models).await
    }

    async fn send<S: Store>(&mut self, lab: &Lab<S>, ours: Write, models: Write) -> Outcome {
        let Write { id, guard, to } = &models;
        let effect = cas::swap(self.model.get(id), guard, to, NOW);
        let is_stale = effect == Effect::Stale;
        match effect {
            Effect::Write(record) => drop(self.model.insert(*id, *record)),
            Effect::Delete(_) => drop(self.model.remove(id)),
            Effect::Already(_) | Effect::Stale => {}
        }
        let answer = lab.swap(&ours).await?;
        let what = format!("stale, of {ours:?},");
        equal(&what, matches!(answer, Swap::Stale(_)), is_stale)?;
        self.agree(lab, *id).await?;
        self.sent.push((ours, models));
        Ok(())
    }

    /// The store and the model hold the same, but for counts and times.
    async fn agree<S: Store>(&mut self, lab: &Lab<S>, id: OperationId) -> Outcome {
        let (ours, models) = (lab.load(id).await?.record, self.model.get(&id).cloned());
        let (left, right) = (ours.as_ref().map(shape), models.as_ref().map(shape));
        equal("the record", left, right)?;
        self.read.extend(ours.zip(models).map(|(a, b)| (id, a, b)));
        Ok(())
    }

    fn new_draft(&mut self) -> Draft {
        self.tokens += 1;
        let token = (u128::from(self.tokens) << 64).to_be_bytes();
        let number = self.roll(3);
        Draft { token: Token::from_bytes(token), ..draft([1, 2, 3][number]) }
    }

    /// One of the latest, so that it is often the owner.
    fn some_draft(&mut self) -> Option<Draft> {
        let latest = self.claimed.len().min(RECENT);
        let index = (latest > 0).then(|| self.claimed.len() - 1 - self.roll(latest));
        index.map(|index| self.claimed[index].clone())
    }

    /// A number below `sides`, by xorshift.
    fn roll(&mut self, sides: usize) -> usize {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        (self.dice >> 33) as usize % sides
    }
}

type Shape<'a> = (Token, u32, StateKind, bool, Option<(SettledBy, &'a Response)>);

/// What does not depend on the clock, nor on how a store counts.
fn shape(record: &Record) -> Shape<'_> {
    let outcome = match &record.state {
        State::Completed { settled_by, response, .. } => Some((*settled_by, &**response)),
        _ => None,
    };
    let (kind, is_taken) = (record.state.kind(), record.taken_from.is_some());
    (record.token, record.attempt, kind, is_taken, outcome)
}

/// The model's clock stands still.
const NOW: StoreTime = StoreTime::from_ms(1_000);
const SEEDS: u64 = 4;
const STEPS: u32 = 200;
/// From how many of the latest the walk chooses.
const RECENT: usize = 6;
