# Build: everything that needs pip and the sources. Nothing of it is in the image but /opt/aerobee.
FROM python:3.13-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY aerobee aerobee
COPY broker broker
COPY remoting remoting
COPY store store
RUN python -m venv --without-pip /opt/aerobee \
 && pip --python /opt/aerobee/bin/python install --no-cache-dir --disable-pip-version-check '.[compression]'

FROM python:3.13-slim
LABEL org.opencontainers.image.title="Aerobee" \
      org.opencontainers.image.description="A RocketMQ broker in Python" \
      org.opencontainers.image.licenses="Apache-2.0"

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

# name server · broker · the same for clients with the VIP channel on · metrics and probes
EXPOSE 9876 10911 10909 5557
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 CMD ["aerobee", "healthcheck"]
ENTRYPOINT ["aerobee"]
CMD ["broker", "run"]
