-- What the service did with the workloads of a pipeline on Kubernetes, so that it knows its own replicas from others'. A row
-- holds for one version of the pipeline: whoever writes the pipeline again has it taken as it is found then.
create table workloads (
    pipeline    text not null references pipelines (name) on delete cascade,
    version     bigint not null,
    kind        text not null,
    namespace   text not null,
    name        text not null,
    applied     bigint not null,               -- the replicas that were written last, or found at first
    before      bigint,                        -- those before, until the API shows the new ones
    applied_at  timestamptz not null,
    ready       bigint not null,               -- the last number that were all ready
    failed      bigint,                        -- the number that was rolled back
    primary key (pipeline, kind, namespace, name)
);
-- The changes of the last hour, for the budget.
create table workload_changes (
    pipeline    text not null references pipelines (name) on delete cascade,
    made_at     timestamptz not null
);
create index workload_changes_pipeline on workload_changes (pipeline, made_at);
