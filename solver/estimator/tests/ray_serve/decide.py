"""Writes decisions.txt: what Ray Serve's own autoscaling policy decides on random inputs.

    python -m venv /tmp/ray && /tmp/ray/bin/pip install 'ray[serve]==2.55.1'
    /tmp/ray/bin/python solver/estimator/tests/ray_serve/decide.py > solver/estimator/tests/ray_serve/decisions.txt

Each row is one deployment: its settings, a semicolon, and its steps, a tenth of a second apart. A step is the mean number
of ongoing requests, the running replicas, and the decision. Running replicas follow the decision some steps later.
"""

import random

import ray
from ray.serve import autoscaling_policy
from ray.serve.config import AutoscalingConfig, AutoscalingContext

SEQUENCES, STEPS, STEP_S, SEED = 50, 200, 0.1, 20


class Clock:
    """Stands in for the module `time` inside Ray's policy."""

    now = 0.0

    def time(self):
        return self.now


def context(config, running, target, requests, state):
    """What Ray's controller tells the policy."""
    return AutoscalingContext(
        deployment_id=None,
        deployment_name="d",
        app_name="a",
        current_num_replicas=running,
        target_num_replicas=target,
        running_replicas=[],
        total_num_requests=requests,
        total_queued_requests=None,
        aggregated_metrics=None,
        raw_metrics=None,
        capacity_adjusted_min_replicas=config.min_replicas,
        capacity_adjusted_max_replicas=config.max_replicas,
        policy_state=state,
        last_scale_up_time=None,
        last_scale_down_time=None,
        current_time=None,
        config=config,
        total_pending_async_requests=0,
    )


def sequence(rng, clock, policy):
    """One deployment: its settings and its steps as text."""
    least = rng.randint(1, 4)
    config = AutoscalingConfig(
        min_replicas=least,
        max_replicas=least + rng.randint(0, 30),
        target_ongoing_requests=rng.choice([0.5, 1, 2, 3, 7.5]),
        upscale_delay_s=rng.choice([0, 0.1, 0.3, 0.7, 2]),
        downscale_delay_s=rng.choice([0, 0.2, 1, 3]),
        upscaling_factor=rng.choice([1, 1, 1, 0.3, 2]),
        downscaling_factor=rng.choice([1, 1, 1, 0.25, 0.6]),
    )
    settings = [
        config.target_ongoing_requests,
        config.upscale_delay_s,
        config.downscale_delay_s,
        config.get_upscaling_factor(),
        config.get_downscaling_factor(),
        config.min_replicas,
        config.max_replicas,
    ]
    lag, state, target = rng.randint(1, 20), {}, config.min_replicas
    decided, steps, requests = [target] * (lag + 1), [], 0.0
    for step in range(STEPS):
        # A random level that stays for some steps, with noise; quarters are exact in binary.
        if step == 0 or rng.random() < 0.06:
            level = rng.uniform(0, 1.3) * config.max_replicas * config.target_ongoing_requests
        requests = max(0, round(4 * (level + rng.gauss(0, 0.1 * level)))) / 4
        running = decided[-1 - lag] if rng.random() > 0.01 else 0
        if running == 0 and requests == 0:
            running = 1
        clock.now = STEP_S * step
        decision, state = policy(context(config, running, target, requests, state))
        # DeploymentAutoscalingState.apply_bounds
        target = max(config.min_replicas, min(config.max_replicas, decision))
        decided.append(target)
        steps.append(f"{requests:g},{running},{target}")
    return ",".join(f"{value:g}" for value in settings) + ";" + " ".join(steps)


def main():
    clock = Clock()
    autoscaling_policy.time = clock
    # As Ray's controller wraps it.
    policy = autoscaling_policy._apply_autoscaling_config(autoscaling_policy.default_autoscaling_policy)
    rng = random.Random(SEED)
    print(f"# ray {ray.__version__}, by decide.py, seed {SEED}")
    for _ in range(SEQUENCES):
        print(sequence(rng, clock, policy))


main()
