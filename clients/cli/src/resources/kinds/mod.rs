//! Which kinds of resources are there?

mod base;
mod registered;
mod running;

pub use registered::{
    FileResource, HardwareResource, PipelineResource, ProfileResource, ProjectResource, ScheduleResource, TraceResource,
    WebhookResource,
};
pub use running::{
    AgentResource, AuditResource, DecisionResource, EventResource, HOLDS, HoldResource, MachineResource, PlanResource,
    ProfileJobResource, TargetResource, TokenResource,
};
