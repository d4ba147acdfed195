// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package host

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/engine"
	"github.com/koord-rt/koord-rt/kernel/kerneltest"
	"github.com/koord-rt/koord-rt/model/unit"
)

// What the kubelet leaves to pods is its limit on all of them, with either driver's name; without one it is all there is.
func TestMemoryForPods(t *testing.T) {
	t.Parallel()
	const all = 16384000 << 10
	for name, c := range map[string]struct {
		kernel, dir, file, limit string
		want                     unit.Bytes
	}{
		"none yet":        {"6.12", "/other", "", "", all},
		"no reservation":  {"6.12", "/kubepods", "memory.max", "max", all},
		"reserved":        {"6.12", "/kubepods", "memory.max", "1073741824", 1 << 30},
		"reserved, slice": {"6.12", "/kubepods.slice", "memory.max", "1073741824", 1 << 30},
		"reserved on v1":  {"v1", "/kubepods", "memory.limit_in_bytes", "1073741824", 1 << 30},
		"beyond the node": {"v1", "/kubepods", "memory.limit_in_bytes", "1099511627776", all},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tree := kerneltest.New(t, c.kernel, c.dir)
			if c.file != "" {
				tree.Set(t, c.dir, c.file, c.limit)
			}
			mounts := filepath.Join(tree.Roots.Proc, "self", "mountinfo")
			if err := errors.Join(os.MkdirAll(filepath.Dir(mounts), 0o755), os.WriteFile(mounts, nil, 0o600)); err != nil {
				t.Fatal(err)
			}
			cfg := config.Default().Node
			cfg.Host.CDIDirs = []string{t.TempDir()}
			p := &prober{roots: tree.Roots, cfg: cfg, log: slog.New(slog.NewTextHandler(t.Output(), nil))}
			s, err := p.first(t.Context())
			if err != nil || s.MemAllocatable != c.want || s.MemCapacity != all {
				t.Errorf("allocatable %d of %d, %v", s.MemAllocatable, s.MemCapacity, err)
			}
		})
	}
}

// memory.min that we write on kubepods is not taken for the kubelet's MemoryQoS by a later probe, nor by the first one
// after kill -9; the kubelet's own is, and the administrator's word ends the question. All below a --cgroup-root.
func TestKubeletMemoryQoS(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		min    string // what stands there at the first probe
		own    bool
		answer string
		first  bool
		later  bool // after memory.min has become 4096
	}{
		"nobody, then we":           {"0", true, config.MemoryQoSAuto, false, false},
		"nobody, then the kubelet":  {"0", false, config.MemoryQoSAuto, false, true},
		"we, in an earlier life":    {"4096", true, config.MemoryQoSAuto, false, false},
		"the kubelet":               {"4096", false, config.MemoryQoSAuto, true, true},
		"the kubelet, but told no":  {"4096", false, config.MemoryQoSNo, false, false},
		"nobody yet, but told yes":  {"0", false, config.MemoryQoSYes, true, true},
		"ours, but told it is used": {"4096", true, config.MemoryQoSYes, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tree := kerneltest.New(t, "6.12", "/lab/kubepods")
			tree.Set(t, "/lab/kubepods", "memory.min", c.min)
			mounts := filepath.Join(tree.Roots.Proc, "self", "mountinfo")
			if err := errors.Join(os.MkdirAll(filepath.Dir(mounts), 0o755), os.WriteFile(mounts, nil, 0o600)); err != nil {
				t.Fatal(err)
			}
			cfg := config.Default().Node
			cfg.Host.KubepodsRoot, cfg.Host.KubeletMemoryQoS = "/lab", c.answer
			cfg.Host.CDIDirs = []string{t.TempDir()}
			p := &prober{
				roots: tree.Roots, cfg: cfg, log: slog.New(slog.NewTextHandler(t.Output(), nil)), every: time.Millisecond,
				own: func(dir string) bool { return c.own && dir == "/lab/kubepods" },
			}
			s, err := p.first(t.Context())
			if err != nil || s.Kernel.KubeletMemoryQoS != c.first {
				t.Fatalf("first probe: kubelet's MemoryQoS %v, %v", s.Kernel.KubeletMemoryQoS, err)
			}
			tree.Set(t, "/lab/kubepods", "memory.min", "4096")
			// News, so that the next probe is told of.
			spec := []byte(`{"cdiVersion":"0.6.0","kind":"lab.test/gpu","devices":[{"name":"0","containerEdits":{"env":["A=b"]}}]}`)
			if err := os.WriteFile(filepath.Join(cfg.Host.CDIDirs[0], "gpu.json"), spec, 0o600); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var got *engine.Static
			err = p.run(ctx, func(s engine.Static) {
				if len(s.Kernel.CDI) > 0 {
					got = &s
					cancel()
				}
			})
			if err != nil || got == nil {
				t.Fatalf("no later probe: %v", err)
			}
			if got.Kernel.KubeletMemoryQoS != c.later {
				t.Errorf("later probe: kubelet's MemoryQoS %v", got.Kernel.KubeletMemoryQoS)
			}
		})
	}
}

// A kubelet that starts with another policy is noticed long before the next probe: it gives CPUs to containers at once. A checkpoint of
// which a part is written says nothing yet.
func TestKubeletManagersAreNoticed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := config.Default().Node
		cfg.Host.KubeletCPUManagerState, cfg.Host.KubeletMemoryManagerState = filepath.Join(t.TempDir(), "cpu"), filepath.Join(t.TempDir(), "memory")
		p := &prober{cfg: cfg, log: slog.New(slog.DiscardHandler), every: probeEvery}
		p.last.Kernel.Release = "6.12"
		told := make(chan engine.Static, 8) // ticks of the bubble's clock order nothing between the two sides; a channel does
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- p.run(ctx, func(s engine.Static) { told <- s }) }()
		for i, c := range []struct {
			checkpoint  string // "" is none
			news, isNow bool
		}{
			{`{"policyName":"none"}`, false, false}, {`{"policyN`, false, false}, {`{"policyName":"static"}`, true, true},
			{`{"policyName":"static","entries":{"u":{"c":"1"}}}`, false, true}, {"", true, false},
		} {
			var err error
			if c.checkpoint == "" {
				err = os.Remove(cfg.Host.KubeletCPUManagerState)
			} else {
				err = os.WriteFile(cfg.Host.KubeletCPUManagerState, []byte(c.checkpoint), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(kubeletEvery + time.Second)
			synctest.Wait()
			var got []engine.Static
			for len(told) > 0 {
				got = append(got, <-told)
			}
			if news := len(got) > 0; news != c.news || news && (got[0].Kernel.KubeletStaticCPU != c.isNow || got[0].Kernel.Release != "6.12") {
				t.Errorf("%d: %s: told %+v", i, c.checkpoint, got)
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
