# Service and agent, for CPUs. Three targets:
#
#   docker build --target service -t apportion .
#   docker build --target agent -t apportion-agent .
#   docker build --target agent-cuda -t apportion-agent-cuda .
#
# Everything is installed by scripts/setup and built by make, as on any other machine.

FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
RUN make build && install -d /out && \
    install -m 755 target/release/apportion target/release/apportion-agent /out/ && \
    install -m 644 .cache/onnxruntime/libonnxruntime.so /out/

# The library with the CUDA provider beside it. Nothing is compiled here.
FROM rust:1.95-bookworm AS onnxruntime-cuda
WORKDIR /src
COPY scripts scripts
RUN scripts/setup cuda && install -d /out && install -m 644 .cache/onnxruntime-cuda/*.so /out/

FROM debian:bookworm-slim AS service
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates libstdc++6 postgresql && \
    rm -rf /var/lib/apt/lists/* && useradd --create-home --home-dir /var/lib/apportion apportion
COPY --from=build /out/apportion /usr/local/bin/
USER apportion
VOLUME /var/lib/apportion
EXPOSE 7070 7071
STOPSIGNAL SIGTERM
ENTRYPOINT ["apportion"]
CMD ["serve", "--data-dir", "/var/lib/apportion", "--http", "0.0.0.0:7070", "--grpc", "0.0.0.0:7071"]

FROM debian:bookworm-slim AS agent
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates libstdc++6 && \
    rm -rf /var/lib/apt/lists/* && useradd --create-home --home-dir /var/lib/apportion-agent apportion
COPY --from=build /out/apportion-agent /usr/local/bin/
COPY --from=build /out/libonnxruntime.so /usr/local/lib/
ENV ORT_DYLIB_PATH=/usr/local/lib/libonnxruntime.so
USER apportion
VOLUME /var/lib/apportion-agent
EXPOSE 8000 8001 8002
STOPSIGNAL SIGTERM
# Run it with --join and APPORTION_TOKEN. Agents and clients are told the container's address towards the service; where they
# reach it by another one, name that: docker run --network host -e APPORTION_ADVERTISE=10.0.0.5 ...
ENTRYPOINT ["apportion-agent", "--state-dir", "/var/lib/apportion-agent", "--http", "0.0.0.0:8000", "--ingress-grpc", "0.0.0.0:8001", "--data", "0.0.0.0:8002"]

# CUDA 13 and cuDNN 9 are what the pinned library was built for (scripts/onnxruntime-cuda.txt).
FROM nvidia/cuda:13.0.1-cudnn-runtime-ubuntu24.04 AS agent-cuda
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates libstdc++6 && \
    rm -rf /var/lib/apt/lists/* && useradd --create-home --home-dir /var/lib/apportion-agent apportion
COPY --from=build /out/apportion-agent /usr/local/bin/
COPY --from=onnxruntime-cuda /out/ /usr/local/lib/onnxruntime/
ENV ORT_DYLIB_PATH=/usr/local/lib/onnxruntime/libonnxruntime.so LD_LIBRARY_PATH=/usr/local/lib/onnxruntime
USER apportion
VOLUME /var/lib/apportion-agent
EXPOSE 8000 8001 8002
STOPSIGNAL SIGTERM
ENTRYPOINT ["apportion-agent", "--state-dir", "/var/lib/apportion-agent", "--http", "0.0.0.0:8000", "--ingress-grpc", "0.0.0.0:8001", "--data", "0.0.0.0:8002", "--hardware", "gpu", "--provider", "cuda"]
