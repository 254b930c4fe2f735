# dra-node-agent. The build context is the repository; nothing outside the lock files is fetched.
ARG PYTHON=3.13
FROM python:${PYTHON}-slim-bookworm AS build

# Settings of the build machine's mirror, if any, are pip's own (PIP_* variables, pip.conf).
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/build && python -m venv --without-pip /opt/agent
WORKDIR /src
COPY config/locks config/locks
RUN /opt/build/bin/pip install --require-hashes -r config/locks/requirements-build.lock \
 && pip --python /opt/agent/bin/python install --no-compile --require-hashes \
    -r config/locks/requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY agent agent
COPY config config
# Bytecode for everything, checked by content: the root file system is read-only at run time, and
# an agent that compiles at each start takes 30 MiB and two seconds of CPU more.
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --no-index -w /dist . \
 && pip --python /opt/agent/bin/python install --no-compile --no-deps --no-index /dist/*.whl \
 && python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/agent/lib

FROM python:${PYTHON}-slim-bookworm
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="dra-node-agent" \
      org.opencontainers.image.description="Retries transient failures of Kubernetes DRA drivers and tells permanent ones" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /opt/agent /opt/agent
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# Kubelet's plugin directories and the drivers' sockets belong to root and are closed to others, so
# the agent is uid 0; it needs no capability, no new privileges and no writable root (see deploy/).
# hadolint ignore=DL3002
USER 0
# Exec form: signals reach the agent itself, and no shell is needed.
ENTRYPOINT ["/opt/agent/bin/python", "-m", "agent"]
CMD ["run"]
