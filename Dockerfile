# Builds everything from source. make image makes the same image from a binary
# compiled outside (release/oci), without pulling a base image.
FROM golang:1.26.8 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# Set by builders that build for several platforms; empty means this one.
ARG TARGETOS
ARG TARGETARCH
ARG VERSION
ARG COMMIT
RUN GOOS=$TARGETOS GOARCH=$TARGETARCH make build BINARY=/out/locksidecar VERSION="$VERSION" COMMIT="$COMMIT"

FROM scratch
ARG VERSION
ARG COMMIT
LABEL org.opencontainers.image.title="locksidecar" \
      org.opencontainers.image.description="A distributed lock over HTTP on localhost" \
      org.opencontainers.image.source="https://github.com/locksidecar/locksidecar" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$COMMIT"
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /src/tools/passwd /etc/passwd
COPY --from=build /out/locksidecar /locksidecar
USER 65532:65532
EXPOSE 5626
ENTRYPOINT ["/locksidecar"]
