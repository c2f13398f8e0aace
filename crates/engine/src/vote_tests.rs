use super::*;

const RANKS: usize = 4;

/// Where the ranks of a test meet.
#[derive(Default)]
struct Meeting {
    state: Mutex<(Vec<Opinion>, usize, Option<Opinion>)>,
    changed: Condvar,
}

impl Meeting {
    /// Waits until all ranks have told their opinion, and returns that of all.
    fn exchange(&self, mine: Opinion) -> Opinion {
        let mut state = self.state.lock();
        while state.2.is_some() {
            self.changed.wait(&mut state);
        }
        state.0.push(mine);
        if state.0.len() == RANKS {
            let told = std::mem::take(&mut state.0);
            assert!(told.iter().all(|each| each.first == mine.first), "the ranks are in different rounds: {told:?}");
            let is_same = told.iter().all(|each| *each == mine);
            let last = told.iter().map(|each| each.last).max().unwrap();
            let proposals = told.iter().map(|each| each.proposals).sum();
            state.2 = Some(Opinion { last, program: if is_same { mine.program } else { 0 }, proposals, ..mine });
            self.changed.notify_all();
        }
        while state.2.is_none() {
            self.changed.wait(&mut state);
        }
        let common = state.2.unwrap();
        state.1 += 1;
        if state.1 == RANKS {
            (state.1, state.2) = (0, None);
            self.changed.notify_all();
        }
        common
    }
}

fn ballots() -> Vec<Ballot> {
    let meeting = Arc::new(Meeting::default());
    let ballot = || {
        let meeting = Arc::clone(&meeting);
        Ballot::new("test".into(), Arc::new(move |mine| Ok(meeting.exchange(mine))), || {})
    };
    (0..RANKS).map(|_| ballot()).collect()
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
fn decided(units: &[(u64, u64, u64, Arc<Vote>)], count: u64) -> Vec<Option<(u64, u64)>> {
    let mut programs = vec![None; count as usize];
    for (first, last, program, vote) in units {
        assert_eq!(vote.ticket.wait(Some(Duration::from_secs(20))), Some(Ok(())));
        if !vote.is_refused() {
            (*first..=*last).for_each(|number| programs[number as usize - 1] = Some((*first, *program)));
        }
    }
    programs
}

#[test]
fn all_ranks_decide_alike_whatever_they_do() {
    const COLLECTIVES: u64 = 600;
    for seed in 1..20 {
        let ballots = ballots();
        let ranks = ballots.iter().enumerate().map(|(rank, ballot)| {
            let ballot = ballot.clone();
            thread::spawn(move || {
                let (mut common, mut own) = (Draws(seed), Draws(seed * 1000 + rank as u64 + 1));
                let (mut units, mut called) = (Vec::new(), 0);
                while called < COLLECTIVES {
                    // Ranks mostly do the same, and sometimes not.
                    let (shared, strays) = (common.below(1 << 20), own.below(100) < 3);
                    let choice = if strays { own.below(1 << 20) } else { shared };
                    let count = (choice % 5 + 1).min(COLLECTIVES - called);
                    if choice % 7 == 0 {
                        ballot.cut(count, choice % 2 == 0);
                    } else {
                        let vote = ballot.propose(count, choice, vec![choice % 5]);
                        units.push((called + 1, called + count, choice, vote));
                    }
                    called += count;
                    if own.below(20) == 0 {
                        thread::sleep(Duration::from_micros(own.below(500)));
                    }
                }
                assert!(ballot.finish(Duration::from_secs(20)));
                ballot.close();
                decided(&units, COLLECTIVES)
            })
        });
        let ranks: Vec<_> = ranks.collect();
        let outcomes: Vec<_> = ranks.into_iter().map(|rank| rank.join().unwrap()).collect();
        assert!(outcomes.iter().all(|outcome| *outcome == outcomes[0]), "seed {seed}");
        assert!(outcomes[0].iter().any(Option::is_none), "seed {seed}");
    }
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
