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

# The modules of their own that are tested and checked with the product.
MODULES := $(patsubst %/go.mod,%,$(wildcard bench/go.mod acceptance/go.mod release/go.mod e2e/go.mod))

# What make generate writes.
GENERATED := docs/config.md docs/commands.md charts/locksidecar/README.md

.DEFAULT_GOAL := help
.PHONY: help run build test test-product test-bench test-acceptance test-examples chart-test pictures lint fmt vet staticcheck cross generate check fuzz soak mutants bench image sbom release test-release test-journals figures e2e e2e-short endings vuln

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: build ## build and start locksidecar dev: no Redis, one process
	$(BINARY) dev

build: ## build bin/locksidecar, static and reproducible
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o $(BINARY) ./cmd/locksidecar

test: test-product test-bench test-examples test-release test-journals ## run all tests with the race detector; installs redis-server where it can

# One package at a time: tests start servers and watch the time, and machines
# often have two cores.
test-product:
	@tools/need redis-server redis-server
	@tools/need "$$(go env CC)" build-essential
	CGO_ENABLED=1 go test -race -shuffle=on -p=1 -timeout=20m ./...

test-bench:
	cd bench && CGO_ENABLED=1 go test -race -shuffle=on ./...

test-acceptance: ## run the tests that look from outside, in a real browser too; installs chromium where it can
	@tools/need chromium chromium
	@tools/need redis-server redis-server
	cd acceptance && CGO_ENABLED=1 go test -race -shuffle=on -p=1 -timeout=20m -count=1 ./... # go cannot see that the program has changed

# Without the race detector: for it, SQLite, which is translated from C, would
# have to be compiled a second time, and no example shares memory.
test-examples: ## run every example; installs the languages that are missing where it can
	@tools/need curl curl
	@tools/need python3 python3
	@tools/need node nodejs
	@tools/need php php-cli
	@tools/need ruby ruby
	cd examples && go test -shuffle=on -p=1 -timeout=20m -count=1 ./...

# Without the race detector, for which Helm and the API server's admission would
# have to be compiled a second time.
chart-test: ## render the charts by Helm 4 and 3, and run the API server's own admission on pods; no cluster
	@tools/need redis-server redis-server
	cd charts/test && go test -shuffle=on -timeout=20m -count=1 ./... # go cannot see that the charts have changed

pictures: ## take the pictures of the status page in docs/ anew
	@tools/need chromium chromium
	@tools/need redis-server redis-server
	mkdir -p bin/gallery
	cd acceptance && LOCKSIDECAR_GALLERY=$(CURDIR)/bin/gallery go test -count=1 -run '^TestTheGallery$$' ./page
	cp bin/gallery/status-page-wide.png bin/gallery/status-page-phone.png docs/

lint: fmt vet staticcheck cross ## check format, vet, staticcheck, and that it builds for macOS

fmt:
	@unformatted=$$(gofmt -l $$(find . -name '*.go' -not -path './.*')); \
	if [ -n "$$unformatted" ]; then echo "run gofmt -w on:"; echo "$$unformatted"; exit 1; fi

vet:
	go vet ./...
	@for module in $(MODULES) examples charts/test; do (set -x; cd $$module && go vet ./...) || exit; done

staticcheck: bin/staticcheck
	bin/staticcheck ./...
	@for module in $(MODULES); do (set -x; cd $$module && ../bin/staticcheck ./...) || exit; done

bin/staticcheck bin/govulncheck: tools/go.mod tools/go.sum
	go -C tools build -o $(CURDIR)/bin/ tool

cross:
	CGO_ENABLED=0 GOOS=darwin GOARCH=arm64 go build -o /dev/null ./cmd/locksidecar

generate: ## write the generated files anew
	go generate ./...
	cd charts/test && go generate ./...

check: generate ## fail if a generated file or a go.mod is not up to date
	$(GIT) diff --exit-code -- $(GENERATED)
	@for module in . $(MODULES) examples charts/test tools; do (set -x; cd $$module && go mod tidy -diff) || exit; done

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

# All counts of one run. A test that fails ends it: there are no figures of a run
# that is red.
figures: export LOCKSIDECAR_FIGURES := $(CURDIR)/bin/figures.jsonl
figures: SEED := $(or $(SEED),$(shell od -An -N4 -tu4 /dev/urandom | tr -d ' '))
figures: export LOCKSIDECAR_SOAK_SEED = $(SEED)
figures: export LOCKSIDECAR_SIM_SEED = $(SEED)
figures: ## run the product's tests and mutants, and write what they did into docs/guarantees.md; SEED=1 chooses
	@case '$(COMMIT)' in ''|*-dirty) echo 'commit first: the figures name what was tested'; exit 1;; esac
	@tools/need redis-server redis-server
	@tools/need "$$(go env CC)" build-essential
	@mkdir -p bin && rm -f '$(LOCKSIDECAR_FIGURES)' && echo 'seed $(SEED)'
	CGO_ENABLED=1 go test -race -shuffle=on -p=1 -timeout=20m -count=1 ./...
	$(MAKE) --no-print-directory mutants
	go run ./internal/figures/page -commit '$(COMMIT)' -seed '$(SEED)' \
		-redis "$$(redis-server --version | sed 's/.* v=\([^ ]*\) .*/\1/')" '$(LOCKSIDECAR_FIGURES)' docs/guarantees.md

bench: build ## measure against the peers; writes the table into the README and draws the charts
	@tools/need redis-server redis-server
	cd bench && go run . -json ../bin/bench.json -charts ../docs -readme ../README.md

image: ## build the container image, pulling nothing, and load it into docker
	cd release && go run . image -tag '$(IMAGE)' -version '$(VERSION)' -commit '$(COMMIT)' | docker load

sbom: build ## list what the binary is made of (CycloneDX): bin/locksidecar.cdx.json
	cd release && go tool cyclonedx-gomod bin -json -std -noserial -notimestamp -version '$(VERSION)' -output ../$(BINARY).cdx.json ../$(BINARY)

release: ## make all that a release consists of, in dist/, from a clean tree
	cd release && go run . dist -o ../dist -version '$(VERSION)' -commit '$(COMMIT)'

test-release:
	cd release && go test -shuffle=on -timeout=30m ./...

# An image that was made here goes before kind's own, which has to be pulled.
e2e e2e-short: export KIND_NODE_IMAGE ?= $(shell docker image ls --format '{{.Repository}}:{{.Tag}}' kind-node 2>/dev/null | head -n 1)

# What the scenarios judge by, which needs no cluster.
test-journals:
	cd e2e && go test -shuffle=on ./journal ./figures

e2e: ## run every scenario in a kind cluster of three nodes; E2E_KEEP=1 keeps the cluster
	cd e2e && go test -count=1 -timeout=60m -v ./...

e2e-short: ## run scenarios 1, 2, 5, 10 and 12 in a kind cluster of one node
	cd e2e && go test -count=1 -timeout=15m -short -v ./...

endings: ## run the scenarios and write docs/endings.md of what they have measured
	E2E_FIGURES=$(CURDIR)/bin/endings.json $(MAKE) --no-print-directory e2e
	cd e2e && go run ./figures/page ../bin/endings.json ../docs/endings.md

vuln: bin/govulncheck ## look for known vulnerabilities; needs the network
	bin/govulncheck ./...
