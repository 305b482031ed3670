# Every target does one thing; make alone lists them.

BINARY   := bin/locksidecar
IMAGE    ?= locksidecar
FUZZTIME ?= 20s

# A checkout may belong to somebody else than the user that builds in it.
GIT     := git -c safe.directory=$(CURDIR)
VERSION ?= $(shell $(GIT) describe --tags --always --dirty 2>/dev/null)
COMMIT  ?= $(shell $(GIT) describe --always --dirty --abbrev=40 --exclude='*' 2>/dev/null)

# The commit comes in by the linker, so go need not ask git for it.
export GOFLAGS := $(filter-out -buildvcs=%,$(GOFLAGS)) -buildvcs=false
LDFLAGS = -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)

# What make generate writes.
GENERATED := docs/config.md

.DEFAULT_GOAL := help
.PHONY: help run build test test-bench lint fmt vet staticcheck cross generate check fuzz soak mutants bench image vuln

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: build ## build and start locksidecar dev: no Redis, one process
	$(BINARY) dev

build: ## build bin/locksidecar, static and reproducible
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o $(BINARY) ./cmd/locksidecar

test: ## run all tests with the race detector; installs redis-server where it can
	@tools/need redis-server redis-server
	@tools/need "$$(go env CC)" build-essential
	CGO_ENABLED=1 go test -race -shuffle=on ./...
	@if [ -f bench/go.mod ]; then $(MAKE) --no-print-directory test-bench; fi

test-bench:
	cd bench && CGO_ENABLED=1 go test -race -shuffle=on ./...

lint: fmt vet staticcheck cross ## check format, vet, staticcheck, and that it builds for macOS

fmt:
	@unformatted=$$(gofmt -l $$(find . -name '*.go' -not -path './.*')); \
	if [ -n "$$unformatted" ]; then echo "run gofmt -w on:"; echo "$$unformatted"; exit 1; fi

vet:
	go vet ./...
	@if [ -f bench/go.mod ]; then (set -x; cd bench && go vet ./...); fi

staticcheck: bin/staticcheck
	bin/staticcheck ./...
	@if [ -f bench/go.mod ]; then (set -x; cd bench && ../bin/staticcheck ./...); fi

bin/staticcheck bin/govulncheck: tools/go.mod tools/go.sum
	go -C tools build -o $(CURDIR)/bin/ tool

cross:
	CGO_ENABLED=0 GOOS=darwin GOARCH=arm64 go build -o /dev/null ./cmd/locksidecar

generate: ## write the generated files anew
	go generate ./...

check: generate ## fail if a generated file is not up to date
	$(GIT) diff --exit-code -- $(GENERATED)

fuzz: ## run each fuzz target for FUZZTIME (20s)
	@set -e; for package in $$(go list ./...); do \
		for target in $$(go test -list '^Fuzz' $$package | grep '^Fuzz'); do \
			(set -x; go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$package); \
		done; \
	done

soak: ## run the soak tests at length: LOCKSIDECAR_SOAK_HOURS=240 of virtual time
	LOCKSIDECAR_SOAK_HOURS=$${LOCKSIDECAR_SOAK_HOURS:-240} go test -race -count=1 -timeout=2h -run Soak -v ./internal/...

mutants: ## prove the tests: each of many one-line mistakes must turn them red
	go test -tags mutants -count=1 -timeout=60m -v ./internal/mutants

bench: build ## measure against the peers; writes the table into the README and draws the charts
	@tools/need redis-server redis-server
	cd bench && go run . -json ../bin/bench.json -charts ../docs -readme ../README.md

image: ## build the container image from a binary compiled here; pulls nothing
	@IMAGE='$(IMAGE)' VERSION='$(VERSION)' COMMIT='$(COMMIT)' tools/image

vuln: bin/govulncheck ## look for known vulnerabilities; needs the network
	bin/govulncheck ./...
