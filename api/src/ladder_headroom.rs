//! How large is the headroom of a plan's ladder? For example 1.5, or `feedback`.

use apportion_serving::headroom_controller::{HeadroomController, PROMISE};
use apportion_serving::ladder::Headroom;
use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use utoipa::ToSchema;

/// The factors of a constant headroom.
pub const FACTORS: RangeInclusive<f64> = 0.1..=10.0;

/// The headroom of ladders in a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum LadderHeadroom {
    /// A factor on the load, from 0.1 to 10.
    Constant(f64),
    /// A headroom that follows the misses, as in agents.
    Feedback(Feedback),
}

/// The word for a headroom that follows the misses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Feedback {
    /// The word itself.
    Feedback,
}

/// A text is no headroom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a factor from 0.1 to 10, or feedback")]
pub struct NoHeadroom;

impl LadderHeadroom {
    /// The headroom with this factor; `None` if it is out of [`FACTORS`].
    #[must_use]
    pub fn constant(factor: f64) -> Option<Self> {
        FACTORS.contains(&factor).then_some(Self::Constant(factor))
    }

    /// The headroom for the estimator.
    #[must_use]
    pub fn headroom(self) -> Headroom {
        match self {
            Self::Constant(factor) => Headroom::Constant(factor),
            Self::Feedback(_) => Headroom::Feedback(Box::new(HeadroomController::new(PROMISE))),
        }
    }
}

impl FromStr for LadderHeadroom {
    type Err = NoHeadroom;

    fn from_str(text: &str) -> Result<Self, NoHeadroom> {
        if text == "feedback" {
            return Ok(Self::Feedback(Feedback::Feedback));
        }
        text.parse().ok().and_then(Self::constant).ok_or(NoHeadroom)
    }
}

impl<'de> Deserialize<'de> for LadderHeadroom {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_any(NumberOrWord)
    }
}

struct NumberOrWord;

impl Visitor<'_> for NumberOrWord {
    type Value = LadderHeadroom;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number from 0.1 to 10, or \"feedback\"")
    }

    fn visit_f64<E: Error>(self, factor: f64) -> Result<LadderHeadroom, E> {
        LadderHeadroom::constant(factor).ok_or_else(|| E::invalid_value(Unexpected::Float(factor), &self))
    }

    fn visit_u64<E: Error>(self, factor: u64) -> Result<LadderHeadroom, E> {
        self.visit_f64(factor as f64)
    }

    fn visit_i64<E: Error>(self, factor: i64) -> Result<LadderHeadroom, E> {
        self.visit_f64(factor as f64)
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<LadderHeadroom, E> {
        match word {
            "feedback" => Ok(LadderHeadroom::Feedback(Feedback::Feedback)),
            _ => Err(E::invalid_value(Unexpected::Str(word), &self)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const FEEDBACK: LadderHeadroom = LadderHeadroom::Feedback(Feedback::Feedback);

    #[test]
    fn a_headroom_is_a_factor_or_feedback() {
        for (text, factor) in [("0.1", 0.1), ("1.50", 1.5), ("10", 10.0)] {
            assert_eq!(text.parse(), Ok(LadderHeadroom::Constant(factor)), "{text}");
        }
        assert_eq!("feedback".parse(), Ok(FEEDBACK));
        for wrong in ["", "0", "0.09", "10.1", "NaN", "inf", "-1", "Feedback"] {
            assert_eq!(wrong.parse::<LadderHeadroom>(), Err(NoHeadroom), "{wrong:?}");
        }
    }

    #[test]
    fn in_json_a_factor_is_a_number() {
        for (json, read) in [(json!(1.5), LadderHeadroom::Constant(1.5)), (json!("feedback"), FEEDBACK)] {
            let parsed: LadderHeadroom = serde_json::from_value(json.clone()).expect("a headroom");
            assert_eq!((parsed, serde_json::to_value(read).expect("JSON")), (read, json));
        }
        let whole: LadderHeadroom = serde_json::from_value(json!(2)).expect("a headroom");
        assert_eq!(whole, LadderHeadroom::Constant(2.0));
        for wrong in [json!("1.5"), json!(0), json!(-1), json!(11.0), json!(true), json!([1.5]), Value::Null] {
            let refused = serde_json::from_value::<LadderHeadroom>(wrong.clone()).expect_err("it is no headroom");
            let refused = refused.to_string();
            assert!(refused.ends_with("expected a number from 0.1 to 10, or \"feedback\""), "{wrong}: {refused}");
        }
    }
}
