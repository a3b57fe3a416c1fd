//! Questions to the domain, and the limits of its answers.

use std::sync::Arc;

use super::application::Domain;
use crate::once::caught;
use crate::sequencer_state::{
    Assembly, Event, Intent, MAX_REASON, MAX_STATE, Node, NotAssembled, Speculation, StateId,
};

/// Longest names of all states of an assembly together: those of many assemblies go into one message.
const MAX_STATES: usize = 1_536;
/// Longest payload of an assembly.
const MAX_PAYLOAD: usize = 64 << 10;

/// The answer of the domain, as the machine takes it.
pub(super) struct Answer(pub Event);

pub(super) async fn assemble<D: Domain>(
    domain: Arc<D>,
    to: Node,
    round: u64,
    intent: Intent,
    speculation: Speculation,
) -> Answer {
    let mut answer = None;
    let asked = async {
        answer = Some(domain.assemble(&intent, &speculation).await);
        Ok::<_, String>(())
    };
    let panicked = caught(asked).await.err();
    let answer = match (panicked, answer) {
        (Some(panicked), _) => Err(NotAssembled::Invalid(panicked)),
        (None, Some(answer)) => answer.and_then(|assembly| check(&intent, assembly)),
        (None, None) => Err(NotAssembled::Parked),
    };
    let answer = answer.map_err(|why| match why {
        NotAssembled::Invalid(why) => NotAssembled::Invalid(shortened(why)),
        NotAssembled::Parked => NotAssembled::Parked,
    });
    Answer(Event::Assembled { to, round, intent: intent.id, answer })
}

pub(super) async fn endorse<D: Domain>(domain: Arc<D>, to: Node, round: u64, assembly: Assembly) -> Answer {
    let answer = caught(domain.endorse(&assembly)).await.map_err(shortened);
    Answer(Event::Endorsed { to, round, intent: assembly.intent, answer })
}

/// Refuses an assembly that no message can carry.
fn check(intent: &Intent, assembly: Assembly) -> Result<Assembly, NotAssembled> {
    let wrong = |why: String| Err(NotAssembled::Invalid(why));
    if assembly.intent != intent.id {
        return wrong(format!("the domain assembled {:?} instead", assembly.intent));
    }
    let states = || assembly.inputs.iter().chain(&assembly.outputs).map(StateId::as_str);
    if let Some(state) = states().find(|state| !(1..=MAX_STATE).contains(&state.len())) {
        return wrong(format!("a state has a name of 1 to {MAX_STATE} bytes, one has {}", state.len()));
    }
    let names: usize = states().map(str::len).sum();
    if names > MAX_STATES {
        return wrong(format!("the states have names of at most {MAX_STATES} bytes together, here {names}"));
    }
    let payload = assembly.payload.len();
    if payload > MAX_PAYLOAD {
        return wrong(format!("a payload has at most {MAX_PAYLOAD} bytes, this one has {payload}"));
    }
    Ok(assembly)
}

fn shortened(mut why: String) -> String {
    why.truncate(why.floor_char_boundary(MAX_REASON));
    why
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::sequencer_state::IntentId;

    fn intent() -> Intent {
        Intent { id: IntentId::new(&Node::new("a"), "pay"), content: Bytes::new() }
    }

    fn refused(change: impl FnOnce(&mut Assembly)) -> Option<String> {
        let (inputs, outputs) = (vec![StateId::new("i")], vec![StateId::new("o")]);
        let mut assembly = Assembly { intent: intent().id, inputs, outputs, payload: Bytes::new() };
        change(&mut assembly);
        match check(&intent(), assembly) {
            Err(NotAssembled::Invalid(why)) => Some(why),
            Err(NotAssembled::Parked) | Ok(_) => None,
        }
    }

    #[test]
    fn an_assembly_that_no_message_can_carry_is_named() {
        assert_eq!(refused(|_| {}), None);
        let why = refused(|it| it.intent = IntentId::new(&Node::new("b"), "pay"));
        assert_eq!(why.as_deref(), Some("the domain assembled b/pay instead"));
        let why = refused(|it| it.inputs.push(StateId::new("")));
        assert_eq!(why.as_deref(), Some("a state has a name of 1 to 256 bytes, one has 0"));
        let why = refused(|it| it.outputs = vec![StateId::new(&"x".repeat(256)); 6]);
        assert_eq!(why.as_deref(), Some("the states have names of at most 1536 bytes together, here 1537"));
        let why = refused(|it| it.payload = Bytes::from(vec![0; 65_537]));
        assert_eq!(why.as_deref(), Some("a payload has at most 65536 bytes, this one has 65537"));
    }
}
