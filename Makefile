# SPDX-License-Identifier: Apache-2.0
# Copyright The koord-rt Authors

SHELL       := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)
# One kind of compile for binaries, tests, linters and the lab's parts, which the build cache tells apart by these: a dependency is
# compiled once, and once more for the race detector, which needs cgo. What debuggers read is stripped at the end anyway, and costs a
# fourteenth of the compilers' time.
export CGO_ENABLED := 0
export GOFLAGS := $(strip $(GOFLAGS) -trimpath -buildvcs=false -gcflags=all=-dwarf=false)
BUILD   := go build -ldflags '$(LDFLAGS)'
TOOL    := go tool -modfile=hack/tools/go.mod
LABTIME ?= 60m
LAB      = $(LAB_BEHIND) go test -tags lab -vet=off -count=1 -timeout $(LABTIME) -v
BEHIND   = nice -n 10
PASSED   = echo "make test: $$lane passed, after $$SECONDS s of it and those before it"
# Repeats at a lane's end what failed in it.
VERDICT  = go run ./test/lab/cmd/verdict
FUZZTIME ?= 5000x
# Where unit tests and fuzz targets put their many small files: memory, if there is 1 GiB of it that programs may run from.
MEMORY    = $(shell d=/dev/shm/koord-rt-make-$$$$; if mkdir $$d && cp /bin/true $$d/ && $$d/true && \
	[ "$$(df --output=avail $$d | tail -1)" -gt 1048576 ]; then echo /dev/shm; else echo $${TMPDIR:-/tmp}; fi 2>/dev/null; rm -rf $$d)
IN_MEMORY = GOTMPDIR=$${GOTMPDIR:-$${TMPDIR:-/tmp}} TMPDIR=$(MEMORY)

.PHONY: help
help: ## Show the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-16s %s\n", $$1, $$2}'

.PHONY: build
build: ## Build the binaries into bin/
	@mkdir -p bin
	$(BUILD) -o bin/koord-nri ./nri-plugin
	$(BUILD) -o bin/koord-runtime-proxy ./cri-proxy
	$(BUILD) -o bin/koordlet ./koordlet
	$(BUILD) -o bin/koordctl ./koordctl
	$(BUILD) -o bin/koord-manager ./cluster

.PHONY: linux
linux:
	@[ "$$(uname -s)" = Linux ] || { echo "This needs Linux: koord-rt works on Linux containers. On $$(uname -s), run it in a Linux VM."; exit 1; }

.PHONY: demo
demo: linux build ## Show LSR, LS and BE pods on a private containerd, before and after, then load that comes and goes (root)
	@go run ./test/demo

.PHONY: demo-cluster
demo-cluster: linux build ## Show a whole cluster: ConfigMap to kernel, Deployment to batch pod, load that lowers batch-cpu (root)
	@go run ./test/demo cluster

.PHONY: demo-fresh
demo-fresh: linux ## make demo in a new Debian that has nothing but make, gcc, git and Go (root; 15 min)
	@hack/fresh-demo.sh

.PHONY: test-where
test-where:
	@[ "$$(uname -s)" = Linux ] || { echo "make test: no lane can run on $$(uname -s). lint, unit and fuzz build code that calls Linux;" \
		"host, proxy, cluster, vm and compat run containers and emulate machines with Linux tools. Run it in a Linux VM."; exit 1; }
	@[ "$$(id -u)" = 0 ] || { echo "make test: not root, so not every lane can run. lint and fuzz can: make lint fuzz-short." \
		"unit cannot as a whole: tests of kernel/ make cgroups and change processes." \
		"host, proxy, cluster and compat cannot: they run containerd, dockerd and kubelets and write cgroups." \
		"vm cannot: what makes its systems (debootstrap, mounts, device nodes) is root's. Run it as root."; exit 1; }

.PHONY: test
test: test-where lab-ahead ## Run all tests but those of lab-peers, lab-long, lab-vm-full and lab-crio (root; sets up what it needs)
	@# What measures CPU, memory or network comes last and alone, the rest beside each other. The binaries come first: two that
	@# compile at once compile the same twice.
	@$(MAKE) --no-print-directory build
	@$(MAKE) --no-print-directory -j2 lab-vm beside-vm
	@$(MAKE) --no-print-directory lab-host-alone lab-cluster-alone
	@echo "make test: all lanes passed: lint, unit, fuzz, host, proxy, cluster, vm, compat"

# Lanes that wait for containers begin when their runtimes are compiled; the guests and what only computes give way to them.
.PHONY: beside-vm
beside-vm:
	@$(BEHIND) $(MAKE) --no-print-directory lab-compiled
	@$(MAKE) --no-print-directory -j4 beside-cluster beside-host beside-proxy computing

# One after the other, whatever -j says.
.PHONY: computing
computing:
	@for lane in lint test-unit fuzz-short; do $(BEHIND) $(MAKE) --no-print-directory -j1 $$lane; $(PASSED); done

.PHONY: beside-cluster
beside-cluster:
	@lane=lab-cluster-beside; $(MAKE) --no-print-directory -j1 $$lane; $(PASSED)

# Both run koord-nri, of which doctor wants one on a machine, and make device nodes of the same names.
.PHONY: beside-host
beside-host:
	@for lane in lab-host-beside lab-compat; do $(MAKE) --no-print-directory -j1 $$lane; $(PASSED); done

.PHONY: beside-proxy
beside-proxy:
	@lane=lab-proxy; $(MAKE) --no-print-directory -j1 $$lane; $(PASSED)

.PHONY: test-quick
test-quick: ## The inner loop: vet and unit tests, no lab (under a minute warm)
	go vet ./...
	go test -vet=off ./...

# What needs the libraries of Kubernetes' clients and servers: the race detector would compile all of them once more, which takes minutes.
CLIENTS = /koord-rt/(cluster|packaging|hack|test)(/|$$)
# What has no goroutine to race with (TestPureCoreHasNoGoroutines of test/arch).
PURE = /koord-rt/(model|policy)(/|$$)

.PHONY: test-unit
test-unit: ## Unit tests, with the race detector for what runs on the node and has goroutines (lint vets)
	CGO_ENABLED=1 $(IN_MEMORY) go test -race -vet=off -count=1 $$(go list ./... | grep -vE '$(CLIENTS)|$(PURE)')
	$(IN_MEMORY) go test -vet=off -count=1 $$(go list ./... | grep -E '$(CLIENTS)|$(PURE)')

.PHONY: test-race
test-race: ## All unit tests with the race detector
	CGO_ENABLED=1 $(IN_MEMORY) go test -race -vet=off -count=1 ./...

.PHONY: fuzz-short
fuzz-short: ## Run each fuzz target for FUZZTIME (default 5000 inputs)
	@$(IN_MEMORY) go run ./hack/fuzz -for $(FUZZTIME)

# Downloads wait for the network while other lanes compute. They end with make. Errors are shown but not final: the lane that
# needs the part fetches it itself.
.PHONY: lab-ahead
lab-ahead: linux ## Fetch what the lab needs in the background
	@mkdir -p bin && go build -o bin/lab-parts ./test/lab/cmd/parts
	@nice -n 5 bin/lab-parts -while $$PPID -fetch test vm >/dev/null &

# Errors are not final here either.
.PHONY: lab-compiled
lab-compiled: linux
	-@go run ./test/lab/cmd/parts test >/dev/null

.PHONY: lab-parts
lab-parts: ## Build or fetch what the lab needs into the cache
	go run ./test/lab/cmd/parts all

.PHONY: lab-host
lab-host: ## Lane 1: real containerd on this host
	@$(MAKE) --no-print-directory -j1 lab-host-beside lab-host-alone

.PHONY: lab-host-beside
lab-host-beside: build
	$(LAB) -run '^TestHost(Conformance|CoreSched|Lifecycle|OnlyKoordlet|Proxy|Scenarios)' ./test/e2e | $(VERDICT)
	$(LAB) -skip '^TestPeer' ./test/lab/host | $(VERDICT)

# What measures CPU, memory or network, or a machine that has them to spare.
.PHONY: lab-host-alone
lab-host-alone: build
	$(LAB) -run '^TestHost(Demo|Koordlet|Memory|Network|ShippedDeadlines|Suppress)' ./test/e2e | $(VERDICT)

.PHONY: lab-proxy
lab-proxy: build ## Lane 1 with the proxy: critest, dockerd
	$(LAB) -run 'Docker|Critest|DisturbedHost' -skip 'CriDockerd' -p 1 ./test/lab/docker ./cri-proxy/internal/docker ./cri-proxy/internal/proxy ./test/lab/critest | $(VERDICT)

.PHONY: lab-cluster
lab-cluster: ## Lane 2: etcd, kube-apiserver and kubelet, koord-manager between them
	@$(MAKE) --no-print-directory -j1 lab-cluster-beside lab-cluster-alone

.PHONY: lab-cluster-beside
lab-cluster-beside: build
	$(LAB) -run '^TestCluster(ControlPlane|Node$$|NodeDiskFull|NodeKoordlet|NodeThrough|Manager$$|Manager[ANRU]|UpstreamSamples)' ./test/lab/cluster | $(VERDICT)

# What measures CPU or memory.
.PHONY: lab-cluster-alone
lab-cluster-alone: build
	$(LAB) -run '^TestCluster(Node|Manager)Measured$$' ./test/lab/cluster | $(VERDICT)

.PHONY: lab-peers
lab-peers: build ## Upstream's agent as we run it for benchmarks and as hook server, its proxy, cri-dockerd, kube-controller-manager, containerd's events, make demo-cluster
	$(LAB) -run '^TestPeer' ./test/lab/host | $(VERDICT)
	$(LAB) -run '(UpstreamKoordlet|UpstreamProxy|Components|TestClusterHooks|CriDockerd)' -p 1 ./test/lab/cluster ./test/lab/critest ./cri-proxy/internal/docker | $(VERDICT)
	$(LAB) -run '^TestDemoCluster$$' ./test/e2e | $(VERDICT)

# Guests without anything of ours: each of these machines is booted by TestVM, too, which fails where one of them would.
BARE_GUESTS = ^Test(BareGuests|SystemdGuest|CgroupV1Guest)$$

.PHONY: lab-vm
lab-vm: LABTIME = 120m
lab-vm: LAB_BEHIND = $(BEHIND)
lab-vm: build ## Lane 3: VMs with cgroup v2, NUMA and RDT, kernels 6.1, 6.12, 7.2; systemd
	$(LAB) -p 1 -skip '$(BARE_GUESTS)' ./test/lab/vm ./test/lab/vmparts | $(VERDICT)
	$(LAB) -run '^TestVM$$' ./test/e2e | $(VERDICT)

.PHONY: lab-vm-full
lab-vm-full: LABTIME = 240m
lab-vm-full: build ## Lane 3 with every test on every kernel, one of them compiled here (two to three hours), and what the bare machines are
	$(LAB) -run '$(BARE_GUESTS)' ./test/lab/vm | $(VERDICT)
	$(LAB) -run '^TestFullVM$$' ./test/e2e | $(VERDICT)

# Tests of lab-host and lab-cluster with more of what they take for granted.
.PHONY: lab-long
lab-long: build ## koordlet beside 500 containers, and without its API server for five minutes
	KOORD_RT_CONTAINERS=500 $(LAB) -run '^TestHostKoordlet$$' ./test/e2e | $(VERDICT)
	KOORD_RT_AWAY=5m $(LAB) -run '^TestClusterNodeKoordlet$$' ./test/lab/cluster | $(VERDICT)

.PHONY: test-long
test-long: test test-race lab-peers lab-long lab-vm-full ## make test, upstream's programs, many containers, a long outage, and the full VM matrix

.PHONY: lab-compat
lab-compat: build ## containerd 2.0 and 1.7 with NRI, 1.6 behind the proxy; NRI 0.8 to 0.12
	$(LAB) -run '^TestCompat' ./test/e2e | $(VERDICT)

# Not part of test-long: there is no recipe for CRI-O here. Go's module proxy does not serve it, nor has Debian a package.
.PHONY: lab-crio
lab-crio: export KOORD_RT_PARTS = cri-o=$(CRIO)
lab-crio: build ## koord-nri and the proxy on a CRI-O that you bring: make lab-crio CRIO=FOLDER (crio, conmon, pinns)
	@[ -x "$(CRIO)/crio" -a -x "$(CRIO)/conmon" -a -x "$(CRIO)/pinns" ] || { echo "make lab-crio CRIO=FOLDER: crio, conmon and pinns must be in FOLDER"; exit 1; }
	$(LAB) -run '^TestCRIO' ./test/e2e | $(VERDICT)

.PHONY: bench
bench: build ## The figures of docs/benchmarks (root, more than two hours)
	@go run ./test/bench

# Both linters hold many types. To collect garbage seldom saves a sixth of their CPU time or more, for about 1 GiB. Compilers gain nothing.
.PHONY: lint
lint: export GOGC := 400
lint: ## gofmt, vet, staticcheck, house rules
	@out=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')); if [ -n "$$out" ]; then echo "gofmt would change:"; echo "$$out"; exit 1; fi
	@# With the tag there is everything that there is without it (TestLintSeesEveryFile), so one run does.
	go vet -tags lab ./...
	$(TOOL) staticcheck -tags lab ./...

.PHONY: generate
generate: ## Rewrite docs/reference, packaging/crds and the deep copies of api/ from the code
	$(TOOL) controller-gen object:headerFile=hack/boilerplate.go.txt crd paths=./api/... output:crd:dir=packaging/crds
	go run ./hack/crdbounds packaging/crds
	go run ./hack/reference

IMAGE ?= koord-manager:latest

.PHONY: manifests
manifests: ## Print what installs koord-manager (make -s manifests IMAGE=… | kubectl apply --server-side -f -)
	@cd packaging; for f in manifests/namespace.yaml crds/*.yaml manifests/priorityclasses.yaml manifests/rbac-*.yaml manifests/manager.yaml \
		manifests/webhook.yaml manifests/policy-koordlet.yaml; do echo ---; sed -e '1{/^---$$/d}' -e 's#image: koord-manager:latest#image: $(IMAGE)#' $$f; done

.PHONY: verify
verify: generate lint ## Generated files are up to date
	git diff --exit-code -- docs/reference packaging/crds api

.PHONY: clean
clean: ## Remove bin/
	rm -rf bin
