"""Ray Serve with two applications: others may scale `photos`, and not `closed`. The argument is the dashboard's port."""

import signal
import sys

import ray
from ray import serve


@serve.deployment(ray_actor_options={"num_cpus": 0})
class Variant:
    async def __call__(self) -> str:
        return "ok"


ray.init(
    num_cpus=2,
    object_store_memory=100_000_000,
    include_dashboard=True,
    dashboard_host="127.0.0.1",
    dashboard_port=int(sys.argv[1]),
)
serve.start(proxy_location="Disabled")
for name, is_open in (("photos", True), ("closed", False)):
    variant = Variant.options(name="find-l").bind()
    serve.run(variant, name=name, route_prefix=None, external_scaler_enabled=is_open)
print("ready", flush=True)
signal.pause()
