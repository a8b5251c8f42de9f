# Build: everything that needs pip and the sources. Nothing of it is in the image but /opt/aerobee.
FROM python:3.13-slim AS build
WORKDIR /src
# What is installed is in the lock files, with the hash of each file: `make lock` makes them anew.
COPY deploy/image/requirements.lock deploy/image/build.lock deploy/image/
RUN python -m venv --without-pip /opt/aerobee \
 && python -m venv --without-pip /opt/build \
 && pip --python /opt/aerobee/bin/python install --no-cache-dir --no-compile --disable-pip-version-check \
      --only-binary :all: --require-hashes -r deploy/image/requirements.lock \
 && pip --python /opt/build/bin/python install --no-cache-dir --disable-pip-version-check \
      --only-binary :all: --require-hashes -r deploy/image/build.lock
COPY pyproject.toml README.md LICENSE ./
COPY aerobee aerobee
COPY broker broker
COPY remoting remoting
COPY store store
COPY deploy/image/sbom.py deploy/image/
# Compiled here, once, for the tree is read-only where it runs. With the hash of the source in them,
# not its time, two builds give the same files.
RUN /opt/build/bin/python -m hatchling build -t wheel -d dist \
 && pip --python /opt/aerobee/bin/python install --no-cache-dir --no-compile --disable-pip-version-check \
      --no-index --no-deps dist/*.whl \
 && pip --python /opt/aerobee/bin/python check \
 && install --directory /opt/aerobee/share \
 && /opt/aerobee/bin/python deploy/image/sbom.py /opt/aerobee/share/sbom.cdx.json \
 && /opt/aerobee/bin/python -m compileall -q -f --invalidation-mode unchecked-hash /opt/aerobee/lib

FROM python:3.13-slim
# /data belongs to the user of the image, and to group 0 so that it can be written under any user id.
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /data --shell /usr/sbin/nologin aerobee \
 && install --directory --owner=10001 --group=0 --mode=0770 /data
COPY --from=build /opt/aerobee /opt/aerobee

ENV PATH=/opt/aerobee/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    AEROBEE_DATA=/data \
    AEROBEE_BIND_ADDRESS=0.0.0.0 \
    AEROBEE_IMAGE=1

# There is no VOLUME here on purpose: without a mount on /data the broker refuses to start and says
# so, where an anonymous volume would be lost with its container and nobody would have been told.
USER 10001
WORKDIR /data

# name server · broker · the same for clients with the VIP channel on · RocketMQ 5.x clients, where
# grpcPort is 8081 · metrics and probes
EXPOSE 9876 10911 10909 8081 5557
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 CMD ["aerobee", "healthcheck"]
ENTRYPOINT ["aerobee"]
CMD ["broker", "run"]

# Last, because it changes with every commit.
# Where its sources are, and which: --build-arg SOURCE=URL --build-arg REVISION=$(git rev-parse HEAD)
ARG SOURCE=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Aerobee" \
      org.opencontainers.image.description="A RocketMQ broker in Python" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.revision="$REVISION" \
      org.opencontainers.image.source="$SOURCE" \
      org.opencontainers.image.licenses="Apache-2.0"
