#!/usr/bin/env python3
"""Gives deployments of Ray Serve the replicas that Apportion advises.

    follow.py --advice http://apportion:7072 --ray http://ray-head:8265 follow.json

The file lists deployments, each with the labels of its groups. A number that is not known changes nothing: the deployment
keeps its replicas, and the reason is told. Needed: Python 3, and an application with `external_scaler_enabled: true`.
"""

import argparse
import json
import ssl
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

METRIC = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/apportion_desired_replicas"
# Longest wait for an answer, in seconds.
ANSWER_MAX = 10


class Unknown(Exception):
    """A number is not known, or Ray refuses it."""


def ask(url, body=None, context=None):
    """The JSON document of an answer."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers={"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_MAX, context=context) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        text = error.read().decode(errors="replace")
        try:
            said = json.loads(text)
            text = said.get("message") or said.get("error") or text
        except (ValueError, AttributeError):
            pass
        raise Unknown(f"{error.code}: {text}") from None
    except (OSError, ValueError) as error:
        raise Unknown(f"{url}: {error}") from None


def advised(advice, labels, context):
    """The replicas of all groups with these labels."""
    selector = urllib.parse.quote(",".join(f"{key}={value}" for key, value in labels.items()), safe="")
    items = ask(f"{advice}{METRIC}?labelSelector={selector}", context=context)["items"]
    return sum(int(item["value"]) for item in items)


def turn(arguments, entries, context):
    """Looks at each deployment once; returns how many could not be looked at."""
    try:
        known = ask(f"{arguments.ray}/api/serve/applications/")["applications"]
    except Unknown as error:
        print(f"all deployments: their replicas stay: {error}", file=sys.stderr, flush=True)
        return len(entries)
    failures = 0
    for entry in entries:
        application, deployment = entry["application"], entry["deployment"]
        place = f"{application}/{deployment}"
        try:
            wanted = advised(arguments.advice, entry["labels"], context)
            if deployment not in known.get(application, {}).get("deployments", {}):
                raise Unknown("Ray has no such deployment")
            current = known[application]["deployments"][deployment]["target_num_replicas"]
            if current == wanted:
                continue
            path = f"/api/v1/applications/{urllib.parse.quote(application, safe='')}/deployments/"
            url = f"{arguments.ray}{path}{urllib.parse.quote(deployment, safe='')}/scale"
            ask(url, {"target_num_replicas": wanted})
            print(f"{place}: {current} -> {wanted}", flush=True)
        except Unknown as error:
            failures += 1
            print(f"{place}: its replicas stay: {error}", file=sys.stderr, flush=True)
    return failures


def main():
    parser = argparse.ArgumentParser(description="Gives deployments of Ray Serve the replicas that Apportion advises.")
    parser.add_argument("--advice", required=True, help="the port for autoscalers, http://HOST:PORT or https://HOST:PORT")
    parser.add_argument("--ray", required=True, help="Ray's dashboard, http://HOST:8265")
    parser.add_argument("--cacert", help="file with the authorities of the port for autoscalers")
    parser.add_argument("--period", type=float, default=5.0, help="seconds between two looks (5)")
    parser.add_argument("--once", action="store_true", help="look once; exit code 1: a deployment could not be scaled")
    parser.add_argument("file", help="the deployments, JSON")
    arguments = parser.parse_args()
    with open(arguments.file, encoding="utf-8") as file:
        entries = json.load(file)
    context = ssl.create_default_context(cafile=arguments.cacert) if arguments.advice.startswith("https:") else None
    while True:
        failures = turn(arguments, entries, context)
        if arguments.once:
            return 1 if failures else 0
        time.sleep(arguments.period)


if __name__ == "__main__":
    sys.exit(main())
