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
		"psi-collector-interval": "20s", "hami-core-library-directory-path": "/x.so",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := config.DefaultKoordlet()
	want.Host.CgroupRoot, want.Host.Sys, want.Host.Resctrl, want.Host.HAMiLibrary = "/host-cgroup", "/host-sys", "/host-sys-fs/resctrl", "/x.so"
	want.Features = map[string]config.Mode{"cpu-burst": config.ModeOff, "blkio": config.ModeActive}
	want.APIServer.Topology, want.Log.Level, want.RuntimeEndpoint = false, "debug", "/run/c.sock"
	want.Kubelet.SkipVerify, want.Kubelet.Interval = true, config.Duration(20*time.Second)
	want.Collect = config.Collect{Interval: config.Duration(2 * time.Second), SlowInterval: config.Duration(20 * time.Second)}
	want.Evict.MemoryCooldown, want.Evict.CPUCooldown = config.Duration(8*time.Second), config.Duration(40*time.Second)
	want.Predict = config.Predict{
		Enable: true, Interval: config.Duration(2 * time.Minute), ColdStart: config.Duration(time.Hour), SafetyMarginPercent: 20,
		CPUHalfLife: config.Duration(6 * time.Hour), MemoryHalfLife: config.Duration(7 * time.Hour),
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

func TestKoordletFlagsAreChecked(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]string{
		"unheard-of=1":                        "--unheard-of is not known",
		"v=much":                              "--v=much",
		"kubelet-insecure-tls=perhaps":        "kubelet-insecure-tls",
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

// All gates of evictions together are the switch; one alone leaves it to the strategy.
func TestKoordletEvictGates(t *testing.T) {
	t.Parallel()
	all := "BECPUEvict=false,BEMemoryEvict=false,CPUAllocatableEvict=false,CPUEvict=false,MemoryAllocatableEvict=false,MemoryEvict=false"
	for gates, want := range map[string]config.Mode{
		all: config.ModeOff, strings.Replace(all, "CPUEvict=false", "CPUEvict=true", 1): config.ModeActive, "BECPUEvict=false": config.ModeActive, "": config.ModeActive,
	} {
		c := config.DefaultKoordlet()
		if _, err := c.SetFlags(map[string]string{"feature-gates": gates}); err != nil || c.Evict.Mode != want {
			t.Errorf("%s: %s, %v", gates, c.Evict.Mode, err)
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
