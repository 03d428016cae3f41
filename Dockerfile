# A VEEN hub: non-root, read-only root file system, one writable volume.
#
#   docker compose up --build -d
FROM python:3.11-slim AS build
WORKDIR /src
RUN python -m venv /opt/veen
COPY requirements-build.lock requirements-hub.lock ./
RUN /opt/veen/bin/pip install --no-cache-dir --require-hashes --only-binary :all: -r requirements-hub.lock \
 && pip install --no-cache-dir --require-hashes --only-binary :all: -r requirements-build.lock
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels . \
 && /opt/veen/bin/pip install --no-cache-dir --no-deps --no-index /wheels/*.whl

FROM python:3.11-slim
COPY --from=build /opt/veen /opt/veen
RUN useradd --system --uid 10001 --home-dir /var/lib/veen --shell /usr/sbin/nologin veen \
 && install -d -o veen -g veen -m 0700 /var/lib/veen \
 && ln -s /opt/veen/bin/veen /opt/veen/bin/veen-hub /usr/local/bin/
USER veen
ENV PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HOME=/var/lib/veen \
    VEEN_DATA_DIR=/var/lib/veen \
    VEEN_LISTEN=0.0.0.0:37411
VOLUME /var/lib/veen
EXPOSE 37411
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s CMD ["veen", "hub", "health", "--hub", "/var/lib/veen"]
# The exec form, so that signals reach the hub itself.
ENTRYPOINT ["veen", "hub", "start", "--foreground"]
