// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package config_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/config"
)

// The arguments of upstream's DaemonSet (koordinator 1.8, config/manager and its chart), and what users add to it.
func TestKoordletFlagsOfUpstream(t *testing.T) {
	t.Parallel()
	c := config.DefaultKoordlet()
	notes, err := c.SetFlags(map[string]string{
		"addr": ":9316", "cgroup-root-dir": "/host-cgroup/", "sys-root-dir": "/host-sys/", "sys-fs-root-dir": "/host-sys-fs/", "proc-root-dir": "/proc/",
		"feature-gates": "AllAlpha=true,AllBeta=true,CPUBurst=false,BlkIOReconcile=true,NodeTopologyReport=false,BECPUSuppress=false", "v": "4",
		"logtostderr": "true", "runtime-hooks-network": "unix", "runtime-hooks-addr": "/host-var-run-koordlet/koordlet.sock", "kubelet-insecure-tls": "true",
		"kubelet-sync-interval": "20s", "collect-res-used-interval": "2s", "memory-evict-cool-time-seconds": "8", "cpu-evict-cool-time-seconds": "40",
		"prediction-safety-margin-percent": "20", "prediction-cold-start-duration": "1h", "prediction-training-interval": "2m",
		"prediction-cpu-histogram-decay-halflife": "6h", "prediction-memory-histogram-decay-halflife": "7h", "containerd-endpoint": "/run/c.sock",
		"psi-collector-interval": "20s", "hami-core-library-directory-path": "/x.so", "disable-query-kubelet-config": "true", "only-evict-by-api": "true",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := config.DefaultKoordlet()
	want.Host.CgroupRoot, want.Host.Sys, want.Host.Resctrl, want.Host.HAMiLibrary = "/host-cgroup", "/host-sys", "/host-sys-fs/resctrl", "/x.so"
	want.Features = map[string]config.Mode{"cpu-burst": config.ModeOff, "blkio": config.ModeActive}
	want.APIServer.Topology, want.Log.Level, want.RuntimeEndpoint = false, "debug", "/run/c.sock"
	want.Kubelet.SkipVerify, want.Kubelet.Interval, want.Kubelet.QueryConfig = true, config.Duration(20*time.Second), false
	want.Collect = config.Collect{Interval: config.Duration(2 * time.Second), SlowInterval: config.Duration(20 * time.Second)}
	want.Evict.Features = []string{"BECPUEvict", "BEMemoryEvict", "CPUAllocatableEvict", "CPUEvict", "MemoryAllocatableEvict", "MemoryEvict"}
	want.Evict.StopContainers = config.StopNever
	want.Evict.MemoryCooldown, want.Evict.CPUCooldown = config.Duration(8*time.Second), config.Duration(40*time.Second)
	want.Predict = config.Predict{
		Enable: true, Interval: config.Duration(2 * time.Minute), ColdStart: config.Duration(time.Hour), SafetyMarginPercent: 20,
		CPUHalfLife: config.Duration(6 * time.Hour), MemoryHalfLife: config.Duration(7 * time.Hour), CPUPercentile: 95, MemoryPercentile: 98,
	}
	if d := cmp.Diff(want, c); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	told := []string{"--addr has no effect", "--logtostderr has", "--runtime-hooks-addr has", "--runtime-hooks-network has", "feature gate BECPUSuppress=false has no effect"}
	if len(notes) != len(told) {
		t.Errorf("%q", notes)
	}
	for i := range min(len(notes), len(told)) {
		if !strings.HasPrefix(notes[i], told[i]) {
			t.Errorf("%q, want %q …", notes[i], told[i])
		}
	}
	if config.DefaultKoordlet().Features != nil {
		t.Error("the defaults were changed")
	}
}

// No flag of upstream's koordlet ends the program: those of its reference (koordinator-node.md 2.2), klog's, and the one that the user's
// documents advise.
func TestNoFlagOfUpstreamIsUnknown(t *testing.T) {
	t.Parallel()
	const upstream = "addr enable-pprof pprof-addr kube-api-qps kube-api-burst configmap-name configmap-namespace feature-gates " +
		"resource-force-update-seconds cgroup-root-dir sys-root-dir sys-fs-root-dir proc-root-dir var-run-root-dir var-lib-kubelet-dir run-root-dir " +
		"containerd-endpoint docker-endpoint pouch-endpoint default-runtime-type hami-core-library-directory-path pod-resources-proxy-path " +
		"xpu-device-infos-dir kubelet-preferred-address-type kubelet-sync-interval kubelet-sync-timeout kubelet-insecure-tls kubelet-read-only-port " +
		"node-topology-sync-interval disable-query-kubelet-config enable-node-metric-report report-interval enable-pod-taskids " +
		"xpu-enforce-collect-from-device-infos collect-res-used-interval collect-sys-metric-outdated-interval collect-node-cpu-info-interval " +
		"collect-node-storage-info-interval cpi-collector-interval collect-cpi-timewindow psi-collector-interval coldpage-collector-interval " +
		"enable-pagecache-collector enable-resctrl-collector resctrl-collector-interval metric-gc-interval-seconds metric-expire-seconds tsdb-path " +
		"tsdb-retention-duration tsdb-max-bytes tsdb-enable-prometheus-metric tsdb-stripe-size tsdb-wal-segment-size " +
		"tsdb-max-block-chunk-segment-size tsdb-head-chunks-write-buffer-size tsdb-min-block-duration tsdb-max-block-duration " +
		"reconcile-interval-seconds cpu-suppress-interval-seconds cpu-evict-interval-seconds memory-evict-interval-seconds " +
		"memory-evict-cool-time-seconds cpu-evict-cool-time-seconds only-evict-by-api qos-extension-plugins runtime-hooks-network runtime-hooks-addr " +
		"runtime-hooks-failure-policy runtime-hooks-plugin-failure-policy runtime-hooks-config-path runtime-hooks-host-endpoint " +
		"runtime-hooks-disable-stages runtime-hooks-reconcile-interval disable-unset-cpu-quota enable-nri-runtime-hook " +
		"runtime-hooks-nri-connect-timeout runtime-hooks-nri-backoff-duration runtime-hooks-nri-backoff-cap runtime-hooks-nri-backoff-steps " +
		"runtime-hooks-nri-backoff-factor runtime-hooks-nri-socket-path runtime-hooks-nri-plugin-name runtime-hooks-nri-plugin-index " +
		"prediction-checkpoint-filepath prediction-cold-start-duration prediction-safety-margin-percent " +
		"prediction-memory-histogram-decay-halflife prediction-cpu-histogram-decay-halflife prediction-training-interval " +
		"prediction-model-expiration-duration prediction-model-checkpoint-interval prediction-model-checkpoint-max-per-step audit-log-dir " +
		"audit-verbose audit-max-disk-space-mb audit-max-concurrent-readers audit-max-events-limit watch-timeout " +
		"v vmodule logtostderr alsologtostderr stderrthreshold log_dir log_file log_file_max_size log_backtrace_at add_dir_header one_output " +
		"skip_headers skip_log_headers"
	known := map[string]config.KoordletFlag{}
	for _, f := range config.KoordletFlags() {
		if _, twice := known[f.Name]; twice {
			t.Errorf("--%s stands there twice", f.Name)
		}
		known[f.Name] = f
	}
	for name := range strings.FieldsSeq(upstream) {
		f, ok := known[name]
		if !ok {
			t.Errorf("--%s is not known", name)
		}
		if !f.Acts() && !strings.HasPrefix(f.Help, "no effect: ") {
			t.Errorf("--%s: nothing says why it has no effect: %q", name, f.Help)
		}
	}
	c := config.DefaultKoordlet()
	notes, err := c.SetFlags(map[string]string{"watch-timeout": "10m", "enable-pprof": "true", "kubelet-ca-file": "/etc/kubelet.crt"})
	if err != nil || len(notes) != 1 || !strings.Contains(notes[0], "--watch-timeout has no effect") || !c.Pprof || c.Kubelet.CAFile != "/etc/kubelet.crt" {
		t.Errorf("%q, %v, pprof %v, kubelet.caFile %q", notes, err, c.Pprof, c.Kubelet.CAFile)
	}
}

func TestKoordletFlagsAreChecked(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]string{
		"unheard-of=1":                        "--unheard-of is not known",
		"v=much":                              "--v=much",
		"kubelet-insecure-tls=perhaps":        "kubelet-insecure-tls",
		"kubelet-ca-file=kubelet.crt":         "kubelet.caFile",
		"disable-query-kubelet-config=maybe":  "disable-query-kubelet-config",
		"only-evict-by-api=perhaps":           "only-evict-by-api",
		"collect-res-used-interval=1":         "collect-res-used-interval",
		"collect-res-used-interval=1ms":       "collect.interval",
		"memory-evict-cool-time-seconds=1s":   "memory-evict-cool-time-seconds",
		"memory-evict-cool-time-seconds=-1":   "memory-evict-cool-time-seconds",
		"prediction-safety-margin-percent=x":  "prediction-safety-margin-percent",
		"cgroup-root-dir=relative":            "host.cgroupRoot",
		"feature-gates=Flying=true":           `"Flying" is not known`,
		"feature-gates=CPUBurst":              "want Name=true",
		"feature-gates=CPUBurst=1,CPUBurst=0": "given twice",
	} {
		name, value, _ := strings.Cut(flag, "=")
		c := config.DefaultKoordlet()
		if _, err := c.SetFlags(map[string]string{name: value}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", flag, err, want)
		}
	}
	c := config.DefaultKoordlet()
	c.FailClosed = []string{"cpu-burst"}
	if _, err := c.SetFlags(map[string]string{"feature-gates": "CPUBurst=false"}); !errors.Is(err, config.ErrFlag) || !strings.Contains(err.Error(), "failClosed") {
		t.Errorf("a feature that is insisted on: %v", err)
	}
}

// Where upstream's flags are given its gates decide who may evict, with its defaults, all off; our own file has its own.
func TestKoordletEvictGates(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		given map[string]string
		file  []string
		want  []string
		note  bool
	}{
		"no flag":                    {},
		"who looks for a fault":      {given: map[string]string{"v": "4", "enable-pprof": "true", "watch-timeout": "1m"}},
		"a flag of upstream's":       {given: map[string]string{"cgroup-root-dir": "/host-cgroup/"}, want: []string{}, note: true},
		"no gate":                    {given: map[string]string{"feature-gates": ""}, want: []string{}, note: true},
		"another gate":               {given: map[string]string{"feature-gates": "CPUBurst=true"}, want: []string{}, note: true},
		"one on, one off":            {given: map[string]string{"feature-gates": "BEMemoryEvict=false,CPUEvict=true"}, want: []string{"CPUEvict"}},
		"all of alpha but one":       {given: map[string]string{"feature-gates": "CPUEvict=false,AllAlpha=true,BECPUEvict=false,MemoryEvict=false"}, want: []string{"BEMemoryEvict", "CPUAllocatableEvict", "MemoryAllocatableEvict"}},
		"the file says so":           {given: map[string]string{"addr": ":1"}, file: []string{"MemoryEvict"}, want: []string{"MemoryEvict"}},
		"the flag wins":              {given: map[string]string{"feature-gates": "MemoryEvict=false,CPUEvict=true"}, file: []string{"MemoryEvict"}, want: []string{"CPUEvict"}},
		"the file, and no alpha":     {given: map[string]string{"feature-gates": "AllAlpha=false"}, file: []string{"MemoryEvict"}, want: []string{}, note: true},
		"the file alone":             {file: []string{"MemoryEvict"}, want: []string{"MemoryEvict"}},
		"the file, and nobody there": {file: []string{}, want: []string{}},
	} {
		c := config.DefaultKoordlet()
		c.Evict.Features = tc.file
		notes, err := c.SetFlags(tc.given)
		told := slices.ContainsFunc(notes, func(n string) bool { return strings.HasPrefix(n, "nobody is evicted") })
		if err != nil || told != tc.note || c.Evict.Mode != config.ModeActive {
			t.Errorf("%s: %q, %v, %s", name, notes, err, c.Evict.Mode)
		}
		if d := cmp.Diff(tc.want, c.Evict.Features); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// Every flag and gate has its line, once, and those that say that they act do.
func TestKoordletFlagsAreDescribed(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	line := func(name, help string, acts bool) {
		if seen[name] || help == "" || strings.HasPrefix(help, "no effect") == acts {
			t.Errorf("%s: %q", name, help)
		}
		seen[name] = true
	}
	flags, gates := config.KoordletFlags(), config.KoordletGates()
	for _, f := range flags {
		line("--"+f.Name, f.Help, f.Acts())
	}
	for _, g := range gates {
		line(g.Name, g.Help, g.Acts())
	}
	if !slices.IsSortedFunc(flags, func(a, b config.KoordletFlag) int { return strings.Compare(a.Name, b.Name) }) ||
		!slices.IsSortedFunc(gates, func(a, b config.KoordletGate) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("not in order")
	}
}

func FuzzParseGates(f *testing.F) {
	f.Add("AllAlpha=true,AllBeta=true")
	f.Add("CPUBurst=1, ,CPUBurst=0")
	f.Fuzz(func(t *testing.T, text string) {
		gates, err := config.ParseGates(text)
		if err != nil && gates != nil {
			t.Fatal(gates, err)
		}
		for name := range maps.Keys(gates) {
			if !strings.Contains(text, name) {
				t.Fatalf("%q is not in %q", name, text)
			}
		}
	})
}
