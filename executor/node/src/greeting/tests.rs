use super::*;
use apportion_protocol::v1;

/// A target of agents 1, 2 and 3 as agent `own` gets it: each pair has keys made of these numbers.
fn target(own: u64, keys: &[u8]) -> v1::Target {
    let pair = |other: u64, key: u8| vec![key + 16 * (own + other) as u8; LINK_KEY_BYTES];
    let peer = |agent: u64| {
        let link_keys = if agent == own { vec![] } else { keys.iter().map(|key| pair(agent, *key)).collect() };
        v1::Peer { agent, link_keys, ..Default::default() }
    };
    v1::Target { agents: (1..=3).map(peer).collect(), ..Default::default() }
}

fn keyring(own: u64, keys: &[u8]) -> LinkKeyring {
    LinkKeyring::of_target(&target(own, keys), own)
}

fn dialling(ends: LinkEnds, keys: &[u8], nonce: u8) -> Dialling {
    let keys = keyring(ends.from, keys).pair(ends.to).expect("a key of the pair").clone();
    Dialling { ends, keys, nonce: [nonce; NONCE_BYTES] }
}

const ENDS: LinkEnds = LinkEnds { from: 1, to: 2 };

/// The agent that agent 2 with these keys admits.
fn greet(dialling: &Dialling, keys: &[u8]) -> Result<u64, GreetingError> {
    let admission = Admission::of_hello(&dialling.hello(), &keyring(2, keys), [9; NONCE_BYTES])?;
    admission.admit(&dialling.confirm(&admission.answer())?)
}

#[test]
fn two_agents_with_one_key_admit_each_other() {
    assert_eq!(greet(&dialling(ENDS, &[1], 5), &[1]), Ok(1));
    assert_eq!(greet(&dialling(LinkEnds { from: 3, to: 2 }, &[1], 5), &[1]), Ok(3));
}

#[test]
fn the_newest_key_or_the_one_before_is_enough() {
    for (dialled, accepted) in [(&[2, 1][..], &[1][..]), (&[1], &[2, 1]), (&[2, 1], &[3, 2]), (&[3, 2], &[2, 1])] {
        assert_eq!(greet(&dialling(ENDS, dialled, 5), accepted), Ok(1), "{dialled:?} and {accepted:?}");
    }
    for (dialled, accepted) in [(&[1][..], &[2][..]), (&[2, 1], &[4, 3]), (&[3], &[2, 1])] {
        assert_eq!(greet(&dialling(ENDS, dialled, 5), accepted), Err(GreetingError::Proof), "{dialled:?} and {accepted:?}");
    }
}

#[test]
fn another_number_is_refused_with_its_reason() {
    let to_three = dialling(LinkEnds { from: 1, to: 3 }, &[1], 5);
    assert_eq!(greet(&to_three, &[1]), Err(GreetingError::OtherAgent { meant: 3, own: 2 }));
    // Agent 1 with its own key says that it is agent 3, or one that nobody knows, or agent 2 itself.
    let own = dialling(ENDS, &[1], 5);
    for (from, expected) in
        [(3, GreetingError::Proof), (7, GreetingError::UnknownAgent(7)), (2, GreetingError::UnknownAgent(2))]
    {
        let forged = Dialling { ends: LinkEnds { from, to: 2 }, ..own.clone() };
        assert_eq!(greet(&forged, &[1]), Err(expected), "as agent {from}");
    }
    let before_a_target = Admission::of_hello(&own.hello(), &LinkKeyring::default(), [9; NONCE_BYTES]);
    assert_eq!(before_a_target.err(), Some(GreetingError::OtherAgent { meant: 2, own: 0 }));
}

#[test]
fn a_replayed_greeting_is_refused_at_its_end() {
    let dialled = dialling(ENDS, &[1], 5);
    let first = Admission::of_hello(&dialled.hello(), &keyring(2, &[1]), [9; NONCE_BYTES]).expect("its proof is right");
    let confirmation = dialled.confirm(&first.answer()).expect("the answer is right");
    assert_eq!(first.admit(&confirmation), Ok(1));
    let again = Admission::of_hello(&dialled.hello(), &keyring(2, &[1]), [10; NONCE_BYTES]).expect("recorded bytes");
    assert_eq!(again.admit(&confirmation), Err(GreetingError::Proof));
    // An answer to another hello proves nothing to the agent that dials.
    assert_eq!(dialling(ENDS, &[1], 6).confirm(&first.answer()), Err(GreetingError::Proof));
}

#[test]
fn a_proof_counts_for_its_step_and_direction_alone() {
    let dialled = dialling(ENDS, &[1], 5);
    let admission = Admission::of_hello(&dialled.hello(), &keyring(2, &[1]), [9; NONCE_BYTES]).expect("a right hello");
    let answer = admission.answer();
    let reflected: [u8; PROOF_BYTES] = answer[NONCE_BYTES..].try_into().expect("a proof");
    assert_eq!(admission.admit(&reflected), Err(GreetingError::Proof));
    // The way back has the same key, and other proofs.
    let mut hello = dialled.hello();
    hello[..16].rotate_left(8);
    assert_eq!(Admission::of_hello(&hello, &keyring(1, &[1]), [9; NONCE_BYTES]).err(), Some(GreetingError::Proof));
}

#[test]
fn each_changed_byte_of_a_hello_is_refused() {
    let dialled = dialling(ENDS, &[2, 1], 5);
    let keyring = keyring(2, &[2]);
    let second_proof = HELLO_BYTES - PROOF_BYTES;
    for at in 0..HELLO_BYTES {
        let mut hello = dialled.hello();
        hello[at] ^= 1;
        let heard = Admission::of_hello(&hello, &keyring, [9; NONCE_BYTES]);
        // The second proof is of a key that this agent does not have.
        assert_eq!(heard.is_ok(), at >= second_proof, "byte {at}");
    }
}

#[test]
fn versions_and_strangers_are_told_apart() {
    assert_eq!(check_version(&GREETING), Ok(()));
    assert_eq!(check_version(b"apport08"), Err(GreetingError::Version { theirs: "08".into() }));
    assert_eq!(check_version(b"GET / HT"), Err(GreetingError::Stranger));
}

#[test]
fn malformed_keys_are_no_keys_and_none_is_printed() {
    let mut target = target(1, &[1]);
    target.agents[1].link_keys[0].pop();
    let ring = LinkKeyring::of_target(&target, 1);
    assert!(ring.pair(2).is_none() && ring.pair(3).is_some() && ring.pair(1).is_none() && !ring.is_empty());
    target.agents[1].link_keys = vec![vec![1; LINK_KEY_BYTES], vec![2; LINK_KEY_BYTES - 1]];
    assert!(LinkKeyring::of_target(&target, 1).pair(2).is_none());
    assert!(!format!("{ring:?}").contains("65") && format!("{ring:?}").contains("LinkKey(..)"));
    target.set_links(v1::target::Links::Tls);
    let bare = without_link_keys(&target);
    assert_eq!(bare.links(), v1::target::Links::Plain, "another protection is no other target");
    assert!(bare.agents.iter().all(|peer| peer.link_keys.is_empty()) && bare.agents.len() == 3);
    assert!(LinkKeyring::of_target(&bare, 1).is_empty());
}

#[test]
fn keys_that_came_once_count_until_the_agent_leaves() {
    let (full, bare) = (target(1, &[1]), without_link_keys(&target(1, &[1])));
    let mut received = ReceivedKeys::default();
    let mut complete = |mut target: v1::Target| {
        received.complete(&mut target);
        target
    };
    assert_eq!(complete(full.clone()), full);
    assert_eq!(complete(bare.clone()), full);
    assert_eq!(complete(target(1, &[2, 1])), target(1, &[2, 1]), "new keys replace them");
    assert_eq!(complete(bare.clone()), target(1, &[2, 1]));
    // Agent 3 leaves and comes back without keys.
    let mut two = bare.clone();
    two.agents.pop();
    complete(two);
    let ring = LinkKeyring::of_target(&complete(bare), 1);
    assert!(ring.pair(2).is_some() && ring.pair(3).is_none());
    assert_eq!(format!("{received:?}"), "ReceivedKeys(of 3 agents)");
}

proptest::proptest! {
    #[test]
    fn bytes_without_a_key_prove_nothing(
        rest in proptest::collection::vec(proptest::num::u8::ANY, HELLO_BYTES - 16),
        last in proptest::array::uniform32(proptest::num::u8::ANY),
    ) {
        // The numbers are right, so that the proofs are looked at.
        let mut hello = [0; HELLO_BYTES];
        hello[..8].copy_from_slice(&1_u64.to_be_bytes());
        hello[8..16].copy_from_slice(&2_u64.to_be_bytes());
        hello[16..].copy_from_slice(&rest);
        let heard = Admission::of_hello(&hello, &keyring(2, &[1]), [9; NONCE_BYTES]);
        proptest::prop_assert_eq!(heard.err(), Some(GreetingError::Proof));
        let dialled = dialling(ENDS, &[1], 5);
        let mut answer = [0; ANSWER_BYTES];
        answer.copy_from_slice(&rest[..ANSWER_BYTES]);
        proptest::prop_assert_eq!(dialled.confirm(&answer).err(), Some(GreetingError::Proof));
        let admission = Admission::of_hello(&dialled.hello(), &keyring(2, &[1]), [9; NONCE_BYTES]);
        let admission = admission.expect("its proof is right");
        proptest::prop_assert_eq!(admission.admit(&last), Err(GreetingError::Proof));
    }
}
