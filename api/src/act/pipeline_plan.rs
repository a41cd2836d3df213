//! How is a pipeline of a round planned: anew, or by scaling actions from the replicas that run?

use super::replan::{ReplanRound, RoundError, Verdict, plan_anew};
use super::rescale::rescale_pipeline;
use crate::decide::replan::ReplanInput;
use apportion_domain::PipelinePlan;
use apportion_wire::HardwareSpec;

/// Plans one pipeline on its devices, as its replan settings say. A demand that they cannot serve is lowered.
pub(super) async fn plan_pipeline(
    wish: &ReplanInput,
    hardware: Vec<HardwareSpec>,
    current: Option<&PipelinePlan>,
    round: &ReplanRound,
) -> Result<Verdict, RoundError> {
    match wish.settings().scaling {
        Some(_) => rescale_pipeline(wish, hardware, current, round).await,
        None => plan_anew(wish, hardware, current, round).await,
    }
}
