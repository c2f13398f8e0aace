use std::sync::atomic::AtomicUsize;

use super::*;
use crate::vote_tree::{self, Messages};

const RANKS: usize = 4;
const PATIENCE: Duration = Duration::from_secs(60);

/// The connections between the ranks of a test, which are threads.
#[derive(Default)]
struct Network {
    inboxes: Vec<Inbox>,
    /// The messages that were sent.
    sent: AtomicUsize,
    /// The rounds that the first rank has finished.
    rounds: AtomicUsize,
}

#[derive(Default)]
struct Inbox {
    arrived: Mutex<FxHashMap<usize, VecDeque<Opinion>>>,
    changed: Condvar,
}

struct OfRank(usize, Arc<Network>);

impl Messages for OfRank {
    fn send(&self, to: usize, opinion: Opinion) -> Result<()> {
        let OfRank(rank, network) = self;
        network.sent.fetch_add(1, Relaxed);
        network.inboxes[to].arrived.lock().entry(*rank).or_default().push_back(opinion);
        network.inboxes[to].changed.notify_all();
        Ok(())
    }

    fn receive(&self, from: usize, _collective: u64) -> Result<Opinion> {
        let inbox = &self.1.inboxes[self.0];
        let mut arrived = inbox.arrived.lock();
        loop {
            if let Some(opinion) = arrived.get_mut(&from).and_then(VecDeque::pop_front) {
                return Ok(opinion);
            }
            if inbox.changed.wait_for(&mut arrived, PATIENCE).timed_out() {
                return Err(Error::runtime("no message has come"));
            }
        }
    }
}

fn connected(ranks: usize) -> (Vec<Ballot>, Arc<Network>) {
    let inboxes = (0..ranks).map(|_| Inbox::default()).collect();
    let network = Arc::new(Network { inboxes, ..Network::default() });
    let ballot = |rank| {
        let messages = OfRank(rank, Arc::clone(&network));
        let exchange = move |mine| {
            let common = vote_tree::exchange(rank, ranks, mine, &messages)?;
            messages.1.rounds.fetch_add(usize::from(rank == 0), Relaxed);
            Ok(common)
        };
        Ballot::new("test".into(), Arc::new(exchange), || {})
    };
    ((0..ranks).map(ballot).collect(), network)
}

fn ballots() -> Vec<Ballot> {
    connected(RANKS).0
}

/// Numbers that look random.
struct Draws(u64);

impl Draws {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// For each collective the program that it runs in. `None`: it is cut.
type Outcome = Vec<Option<(u64, u64)>>;

fn decided(units: &[(u64, u64, u64, Arc<Vote>)], count: u64) -> Outcome {
    let mut programs = vec![None; count as usize];
    for (first, last, program, vote) in units {
        assert_eq!(vote.ticket.wait(Some(PATIENCE)), Some(Ok(())));
        if !vote.is_refused() {
            (*first..=*last).for_each(|number| programs[number as usize - 1] = Some((*first, *program)));
        }
    }
    programs
}

/// Calls the same collectives as the other ranks, with pauses. In half of the steps a rank may stray: it runs another
/// program, two programs, or none. `strays` is the probability in a thousand.
fn go_own_ways(ballot: &Ballot, rank: usize, collectives: u64, seed: u64, strays: u64) -> Outcome {
    let (mut common, mut own) = (Draws(seed), Draws(seed * 10_000 + rank as u64 + 1));
    let (mut units, mut called) = (Vec::new(), 0);
    while called < collectives {
        let (program, may_stray) = (common.below(1 << 20), common.below(2) == 0);
        let count = (program % 5 + 1).min(collectives - called);
        let stray = if own.below(1000) < strays && may_stray { 1 + own.below(3) } else { 0 };
        let parts = match stray {
            1 => vec![(count, program + 1)],
            2 if count > 1 => vec![(1, program), (count - 1, program)],
            2 | 3 => vec![(count, 0)],
            _ => vec![(count, if program % 7 == 0 { 0 } else { program })],
        };
        for (count, program) in parts {
            match program {
                0 => ballot.cut(count, own.below(400) == 0),
                _ => {
                    units.push((called + 1, called + count, program, ballot.propose(count, program, vec![program % 5])))
                }
            }
            called += count;
        }
        if own.below(20) == 0 {
            thread::sleep(Duration::from_micros(own.below(500)));
        }
    }
    assert!(ballot.finish(PATIENCE));
    ballot.close();
    decided(&units, collectives)
}

/// The outcome, which all ranks share, and the seconds of a round.
fn outcome_of(ranks: usize, collectives: u64, seed: u64, strays: u64) -> (Outcome, f64) {
    let (ballots, network) = connected(ranks);
    let begin = Instant::now();
    let threads: Vec<_> = ballots
        .into_iter()
        .enumerate()
        .map(|(rank, ballot)| thread::spawn(move || go_own_ways(&ballot, rank, collectives, seed, strays)))
        .collect();
    let mut outcomes: Vec<Outcome> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert!(outcomes.iter().all(|outcome| *outcome == outcomes[0]), "{ranks} ranks, seed {seed}");
    let rounds = network.rounds.load(Relaxed);
    assert_eq!(network.sent.load(Relaxed), rounds * 2 * (ranks - 1));
    (outcomes.swap_remove(0), begin.elapsed().as_secs_f64() / rounds as f64)
}

#[test]
fn all_ranks_decide_alike_whatever_they_do() {
    for seed in 1..20 {
        let (outcome, _) = outcome_of(RANKS, 600, seed, 60);
        assert!(outcome.iter().any(Option::is_none) && outcome.iter().any(Option::is_some), "seed {seed}");
    }
}

/// `cargo test --release --package engine -- vote --nocapture` shows the times.
#[test]
fn a_thousand_ranks_decide_alike() {
    for ranks in [17, 18, 100, 1000] {
        // About one rank strays in each step that has strays.
        let (outcome, seconds) = outcome_of(ranks, 200, 7, (1000 / ranks as u64).max(1));
        let whole = outcome.iter().flatten().count();
        println!("{ranks:5} ranks: {:7.3} ms per round, {whole} of 200 collectives in whole programs", 1e3 * seconds);
        assert!((1..200).contains(&whole), "{ranks} ranks: {whole}");
    }
}

#[test]
fn a_rank_that_votes_on_another_collective_is_an_error() {
    let (_, network) = connected(2);
    let opinion = |first| Opinion { first, last: first, program: 0, proposals: 0 };
    OfRank(1, Arc::clone(&network)).send(0, opinion(3)).unwrap();
    let error = vote_tree::exchange(0, 2, opinion(4), &OfRank(0, network)).unwrap_err();
    assert_eq!(error.message, "internal error: rank 1 votes on collective 3, and not on 4");
}

#[test]
fn equal_programs_are_whole_and_others_are_cut() {
    let ballots = ballots();
    let propose = |rank: usize, program: u64| ballots[rank].propose(2, program, Vec::new());
    let same: Vec<_> = (0..RANKS).map(|rank| propose(rank, 7)).collect();
    let differ: Vec<_> = (0..RANKS).map(|rank| propose(rank, if rank == 2 { 8 } else { 7 })).collect();
    let again: Vec<_> = (0..RANKS).map(|rank| propose(rank, 7)).collect();
    for (votes, is_refused) in [(same, false), (differ, true), (again, false)] {
        for vote in votes {
            assert_eq!(vote.ticket.wait(Some(Duration::from_secs(20))), Some(Ok(())));
            assert_eq!(vote.is_refused(), is_refused);
        }
    }
    ballots.iter().for_each(Ballot::close);
}

#[test]
fn programs_that_begin_before_the_end_of_a_round_do_not_stay_late() {
    for (alone, together) in [(3, 2), (4, 2), (5, 3), (6, 4), (11, 2)] {
        let ballots = ballots();
        // A vote is for some collectives ahead, because none of these is in a program.
        for _ in 0..alone {
            ballots.iter().for_each(|ballot| ballot.cut(1, false));
            ballots.iter().for_each(|ballot| assert!(ballot.finish(PATIENCE)));
        }
        let mut last = Vec::new();
        for _ in 0..8 {
            last = ballots.iter().map(|ballot| ballot.propose(together, 7, Vec::new())).collect();
            ballots.iter().for_each(|ballot| assert!(ballot.finish(PATIENCE)));
        }
        assert!(!last.iter().any(|vote: &Arc<Vote>| vote.is_refused()), "{alone}, then {together} at a time");
        ballots.iter().for_each(Ballot::close);
    }
}

#[test]
fn a_failed_vote_fails_the_programs_that_wait() {
    let ballot = Ballot::new("test".into(), Arc::new(|_| Err(Error::runtime("no answer"))), || {});
    let failed = |vote: Arc<Vote>| vote.ticket.wait(Some(Duration::from_secs(20))).unwrap().unwrap_err().message;
    assert_eq!(failed(ballot.propose(1, 7, Vec::new())), "test: no answer");
    assert_eq!(failed(ballot.propose(1, 7, Vec::new())), "test: no answer");
    assert!(!ballot.joins(3, 0));
    assert!(ballot.finish(Duration::ZERO));
}

#[test]
fn a_collective_joins_when_it_came_before_and_waits_longer_after_each_pause() {
    let ballot = Ballot::new("test".into(), Arc::new(Ok), || {});
    let joins = |count: usize| (0..count).map(|_| u8::from(ballot.joins(5, 0))).collect::<Vec<_>>();
    assert_eq!(joins(4), [0, 0, 1, 1]);
    ballot.note_pause(&[5]);
    assert_eq!(joins(3), [0, 0, 1]);
    ballot.note_pause(&[5]);
    assert_eq!(joins(5), [0, 0, 0, 0, 1]);
    let vote = ballot.propose(1, 7, vec![5]);
    vote.ticket.wait(None);
    assert!(!vote.is_refused());
    ballot.note_pause(&[5]);
    assert_eq!(joins(5), [0, 0, 0, 0, 1]);
    ballot.close();
}

#[test]
fn after_a_refused_program_all_ranks_cut_up_to_the_same_number() {
    let ballots = ballots();
    ballots.iter().for_each(|ballot| (0..2).for_each(|_| assert!(!ballot.joins(5, 0))));
    for (rank, ballot) in ballots.iter().enumerate() {
        ballot.propose(3, rank as u64 + 1, vec![5]);
    }
    ballots.iter().for_each(|ballot| assert!(ballot.finish(Duration::from_secs(20))));
    for ballot in &ballots {
        let mut joins = Vec::new();
        for _ in 4..8 {
            joins.push(ballot.joins(5, 0));
            ballot.cut(1, false);
        }
        assert_eq!(joins, [false, false, true, true]);
        ballot.close();
    }
}
