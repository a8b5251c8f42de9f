# A Debian with systemd and Aerobee in /opt/aerobee, as docs/operations/install.md leaves it; of the images that the tests build.
FROM python:3.13-slim
RUN apt-get update \
 && apt-get install -y --no-install-recommends curl jq procps systemd \
 && rm -rf /var/lib/apt/lists/*
COPY --from=aerobee:test /opt/aerobee /opt/aerobee
